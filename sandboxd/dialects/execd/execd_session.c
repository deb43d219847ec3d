/* execd_session.c - routes of sessions, and the translation between them and the verbs. */
#include "sandboxd/dialects/execd/execd_session.h"

#include "sandboxd/dialects/execd/execd.h"
#include "sandboxd/dialects/execd/execd_contexts.h"
#include "sandboxd/dialects/execd/execd_folder.h"
#include "sandboxd/dialects/execd/execd_path.h"
#include "sandboxd/dialects/execd/execd_request.h"
#include "sandboxd/dialects/plane.h"
#include "sandboxd/front_files/front_files.h"
#include "shared/base/memory.h"
#include "shared/base/random.h"

#include <string.h>

enum { SMALL_BODY_BYTES = 64 * 1024, RUN_BODY_BYTES = 6 * KERNEL_CODE_MAX + 65536 };

/* A request between its folder and what is to begin there. */
struct session_order {
    char id[KERNEL_ID_BYTES];
    char *cwd; /* NULL: where it is */
    char *code;
    uint64_t timeout_ms;
};

static void order_free(struct session_order *order)
{
    free(order->cwd);
    free(order->code);
    free(order);
}

/* The body's folder, if it names one. */
static bool read_cwd(const struct http_request *request, const json_t *body, char **cwd, struct error *err)
{
    const char *given;
    if (!execd_request_text(body, "cwd", FRONT_FILES_PATH_MAX, &given, err))
        return false;
    *cwd = given && *given ? execd_path(request, given, err) : NULL;
    return *cwd || !given || !*given;
}

/* ---- POST /session ---- */

static void answer_created(void *cookie, const struct verb_answer *answer)
{
    struct http_request *request = execd_waiting_start(cookie, answer);
    if (request)
        http_reply_json(request, 200, json_pack("{s:s}", "session_id", answer->kernels->id));
}

/* Takes the order. */
static void create(struct http_request *request, void *cookie, const struct error *err)
{
    struct session_order *order = cookie;
    if (request && err) {
        http_reply_error(request, err);
    } else if (request) {
        struct kernel_call call = execd_call(request, order->id, answer_created);
        struct command *command = command_new();
        command->cwd = TAKE(order->cwd);
        command->origin = plane_origin(request);
        kernels_create_durable(plane_of(request)->sandboxes, &call, command, 0);
    }
    order_free(order);
}

static void handle_create(struct http_request *request)
{
    struct error err = {0};
    char *cwd = NULL;
    json_t *body = http_request_json(request, &err);
    bool is_read = body && read_cwd(request, body, &cwd, &err);
    json_decref(body);
    if (!is_read) {
        http_reply_error(request, &err);
        return;
    }
    struct session_order *order = memory_new(sizeof *order);
    random_id(order->id, EXECD_SESSION);
    order->cwd = cwd;
    if (cwd)
        execd_folder(request, cwd, true, create, order);
    else
        create(request, order, NULL);
}

/* ---- POST /session/{id}/run ---- */

/* Takes the order. */
static void run(struct http_request *request, void *cookie, const struct error *err)
{
    struct session_order *order = cookie;
    struct execd_order asked = {.id = order->id,
                                .kind = EXECD_CELL_SESSION,
                                .code = {.code = order->code,
                                         .size = strlen(order->code),
                                         .timeout_ms = order->timeout_ms,
                                         .cwd = order->cwd,
                                         .merges = true,
                                         .restarts = true}};
    if (request && err)
        http_reply_error(request, err);
    else if (request)
        execd_run_code(request, &asked);
    order_free(order);
}

static bool read_run(const struct http_request *request, const json_t *body, struct session_order *order,
                     struct error *err)
{
    const char *code;
    if (!execd_request_text(body, "command", KERNEL_CODE_MAX, &code, err))
        return false;
    if (!code || !*code)
        return error_set(err, ERROR_INVALID, "command: a shell command line, which must be there");
    order->code = memory_string(code);
    return read_cwd(request, body, &order->cwd, err) && execd_request_ms(body, "timeout", &order->timeout_ms, err);
}

static void on_session(void *cookie, const struct verb_answer *answer);

/* What is no session, though it may be a context, is not there. */
static void handle_run(struct http_request *request)
{
    struct kernel_call call = execd_call(request, http_request_parameter(request, "id"), on_session);
    kernels_list(plane_of(request)->sandboxes, &call);
}

static void begin_run(struct http_request *request)
{
    struct error err = {0};
    struct session_order *order = memory_new(sizeof *order);
    json_t *body = http_request_json(request, &err);
    bool is_read = body && read_run(request, body, order, &err);
    json_decref(body);
    (void)snprintf(order->id, sizeof order->id, "%s", http_request_parameter(request, "id"));
    if (!is_read) {
        order_free(order);
        http_reply_error(request, &err);
    } else if (order->cwd) {
        execd_folder(request, order->cwd, false, run, order);
    } else {
        run(request, order, NULL);
    }
}

static void on_session(void *cookie, const struct verb_answer *answer)
{
    struct http_request *request = http_request_find(loop_current(), (uint64_t)(uintptr_t)cookie);
    struct error err = answer->error;
    if (!request)
        return;
    if (err.kind == ERROR_NONE && execd_is_session(answer->kernels)) {
        begin_run(request);
        return;
    }
    if (err.kind == ERROR_NONE || err.kind == ERROR_NOT_FOUND)
        error_set(&err, ERROR_INTERNAL, "no session \"%.64s\" in this sandbox", http_request_parameter(request, "id"));
    http_reply_error(request, &err);
}

/* ---- DELETE /session/{id} ---- */

static void on_to_remove(void *cookie, const struct verb_answer *answer)
{
    struct http_request *request = execd_waiting(cookie, answer);
    struct error err = {0};
    if (!request)
        return;
    if (execd_is_session(answer->kernels)) {
        execd_remove(request, answer->kernels->id);
        return;
    }
    error_set(&err, ERROR_NOT_FOUND, "no session \"%.64s\" in this sandbox", answer->kernels->id);
    http_reply_error(request, &err);
}

static void handle_remove(struct http_request *request)
{
    struct kernel_call call = execd_call(request, http_request_parameter(request, "id"), on_to_remove);
    kernels_list(plane_of(request)->sandboxes, &call);
}

const struct http_route *execd_session_routes(size_t *count)
{
    static const struct http_route ROUTES[] = {
        {"POST", EXECD_PREFIX "/session", EXECD_CARRIERS, "process", SMALL_BODY_BYTES, handle_create},
        {"POST", EXECD_PREFIX "/session/{id}/run", EXECD_CARRIERS, "process", RUN_BODY_BYTES, handle_run},
        {"DELETE", EXECD_PREFIX "/session/{id}", EXECD_CARRIERS, "process", 0, handle_remove},
    };
    *count = sizeof ROUTES / sizeof *ROUTES;
    return ROUTES;
}
