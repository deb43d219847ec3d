/* execd_command.c - routes of commands, and the translation between them and the verbs. */
#include "sandboxd/dialects/execd/execd_command.h"

#include "sandboxd/dialects/execd/execd.h"
#include "sandboxd/dialects/execd/execd_request.h"
#include "sandboxd/dialects/execd/execd_run.h"
#include "sandboxd/dialects/plane.h"

enum { BODY_BYTES = 1024 * 1024 };

static void handle_run(struct http_request *request)
{
    struct error err = {0};
    struct execd_request asked;
    json_t *body = http_request_json(request, &err);
    bool is_read = body && execd_request_parse(&asked, body, &err);
    json_decref(body);
    if (!is_read) {
        http_reply_error(request, &err);
        return;
    }
    asked.command->origin = plane_origin(request);
    struct execd_run *run = execd_run_new(request, asked.is_background ? EXECD_RUN_BACKGROUND : EXECD_RUN_FOREGROUND);
    process_exec(plane_of(request)->sandboxes, caller_of(request)->claims.sandbox_id, asked.command,
                 execd_run_follower(run));
}

const struct http_route *execd_command_routes(size_t *count)
{
    static const struct http_route ROUTES[] = {
        {"POST", EXECD_PREFIX "/command", EXECD_CARRIERS, "process", BODY_BYTES, handle_run},
    };
    *count = sizeof ROUTES / sizeof *ROUTES;
    return ROUTES;
}
