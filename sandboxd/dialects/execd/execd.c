/* execd.c - the tables of this folder, joined; and what belongs to none of them. */
#include "sandboxd/dialects/execd/execd.h"

#include "sandboxd/dialects/execd/execd_code.h"
#include "sandboxd/dialects/execd/execd_command.h"
#include "sandboxd/dialects/execd/execd_errors.h"
#include "sandboxd/dialects/execd/execd_files.h"
#include "sandboxd/dialects/execd/execd_metrics.h"
#include "sandboxd/dialects/execd/execd_pty.h"
#include "sandboxd/dialects/execd/execd_session.h"
#include "sandboxd/dialects/plane.h"
#include "shared/base/memory.h"

#include <string.h>

/* It wakes nobody: one that is paused is told to be. */
static void handle_ping(struct http_request *request)
{
    AUTO_REGISTRY_VIEW view = {0};
    struct registry *registry = sandboxes_registry(plane_of(request)->sandboxes);
    bool is_known = registry_find(registry, caller_of(request)->claims.sandbox_id, &view);
    if (is_known && !view.paused)
        http_reply_empty(request, 200);
    else
        execd_reply_error(request, 503, "RUNTIME_ERROR", "the sandbox is paused");
}

static const struct http_route *own_routes(size_t *count)
{
    static const struct http_route ROUTES[] = {
        {"GET", EXECD_PREFIX "/ping", EXECD_CARRIERS, "", 0, handle_ping},
    };
    *count = sizeof ROUTES / sizeof *ROUTES;
    return ROUTES;
}

static const struct http_route *(*const TABLES[])(size_t *count) = {own_routes,           execd_command_routes,
                                                                    execd_session_routes, execd_code_routes,
                                                                    execd_files_routes,   execd_metrics_routes,
                                                                    execd_pty_routes};

struct http_route *execd_routes(size_t *count)
{
    struct http_route *all = NULL;
    *count = 0;
    for (size_t i = 0; i < sizeof TABLES / sizeof *TABLES; i++) {
        size_t some;
        const struct http_route *routes = TABLES[i](&some);
        all = memory_resize(all, (*count + some) * sizeof *all);
        memcpy(all + *count, routes, some * sizeof *all);
        *count += some;
    }
    return all;
}
