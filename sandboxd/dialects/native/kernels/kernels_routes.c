/* kernels_routes.c - routes, and the translation between them and the verbs. */
#include "sandboxd/dialects/native/kernels/kernels_routes.h"

#include "sandboxd/dialects/native/files/files_request.h"
#include "sandboxd/dialects/native/kernels/kernel_reply.h"
#include "sandboxd/dialects/native/kernels/kernel_request.h"
#include "sandboxd/dialects/native/kernels/kernel_specs.h"
#include "sandboxd/dialects/plane.h"
#include "shared/base/clock.h"
#include "shared/base/memory.h"
#include "shared/base/text.h"

#include <string.h>

enum { CODE_BODY_BYTES = 6 * KERNEL_CODE_MAX + 65536, BODY_BYTES = 1024 * 1024, SMALL_BODY_BYTES = 4096 };

static const char *sandbox_of(const struct http_request *request)
{
    return caller_of(request)->claims.sandbox_id;
}

/* ---- answers: the request is found again by its number ---- */

static json_t *show(const struct kernel_view *view)
{
    char created[CLOCK_TEXT_BYTES];
    clock_format(created, view->created_ms);
    json_t *object =
        json_pack("{s:s,s:s,s:s,s:I,s:I,s:s,s:s}", "id", view->id, "language", view->language, "state",
                  kernel_state_name(view->state), "execution_count", (json_int_t)view->execution_count, "waiting",
                  (json_int_t)view->waiting, "created_at", created, "process", view->process_id);
    if (view->implementation[0])
        json_object_set_new(object, "implementation", json_string(view->implementation));
    if (view->version[0])
        json_object_set_new(object, "version", json_string(view->version));
    if (view->state != KERNEL_LOST)
        return object;
    json_object_set_new(object, "oom", json_boolean(view->oom));
    json_object_set_new(object, "reason", json_string(view->reason));
    return object;
}

/* The request, when it still waits and the verb went well; a failure is answered here. */
static struct http_request *find_waiting(void *cookie, const struct verb_answer *answer)
{
    struct http_request *request = http_request_find(loop_current(), (uint64_t)(uintptr_t)cookie);
    if (request && answer->error.kind != ERROR_NONE) {
        http_reply_error(request, &answer->error);
        return NULL;
    }
    return request;
}

static void answer_created(void *cookie, const struct verb_answer *answer)
{
    struct http_request *request = find_waiting(cookie, answer);
    if (request && answer->kernel_count == 1)
        http_reply_json(request, answer->is_new ? 201 : 200, show(answer->kernels));
}

static void answer_empty(void *cookie, const struct verb_answer *answer)
{
    struct http_request *request = find_waiting(cookie, answer);
    if (request)
        http_reply_empty(request, 204);
}

static void answer_list(void *cookie, const struct verb_answer *answer)
{
    struct http_request *request = find_waiting(cookie, answer);
    if (!request)
        return;
    json_t *list = json_array();
    for (size_t i = 0; i < answer->kernel_count; i++)
        json_array_append_new(list, show(&answer->kernels[i]));
    http_reply_json(request, 200, json_pack("{s:o}", "kernels", list));
}

static struct kernel_call call_of(const struct http_request *request,
                                  void (*done)(void *cookie, const struct verb_answer *answer))
{
    return (struct kernel_call){.sandbox_id = sandbox_of(request),
                                .kernel_id = http_request_parameter(request, "id"),
                                .done = done,
                                .cookie = (void *)(uintptr_t)http_request_number(request)};
}

/* ---- what comes in ---- */

static bool takes_no_query(const struct http_request *request, struct error *err)
{
    static const char *const NAMES[] = {NULL};
    return http_request_query_only(request, NAMES, err);
}

static json_t *read_body(struct http_request *request, struct error *err)
{
    return takes_no_query(request, err) ? http_request_json(request, err) : NULL;
}

static void handle_create(struct http_request *request)
{
    struct error err = {0};
    struct kernel_create create = {0};
    json_t *body = read_body(request, &err);
    if (!body || !kernel_request_create(&create, body, &err)) {
        json_decref(body);
        http_reply_error(request, &err);
        return;
    }
    struct kernel_call call = call_of(request, answer_created);
    call.kernel_id = create.id;
    create.command->origin = plane_origin(request); /* recorded when it is started, not when it is there already */
    if (create.is_durable)
        kernels_create_durable(plane_of(request)->sandboxes, &call, create.command, create.timeout_ms);
    else
        kernels_create(plane_of(request)->sandboxes, &call, create.language, create.command, create.timeout_ms);
    json_decref(body);
}

static bool accepts_sse(const struct http_request *request)
{
    const char *accept = http_request_header(request, "accept");
    return accept && strstr(accept, "text/event-stream");
}

/* The code is cut as a command line is, and left out where those are. */
static bool record_run(const struct http_request *request, const struct kernel_code *code, struct error *err)
{
    size_t kept = code->size < SPOOL_COMMAND_MAX ? code->size : SPOOL_COMMAND_MAX;
    kept = plane_of(request)->omit_argv ? 0 : text_utf8_prefix(code->code, kept);
    AUTO_TEXT cwd = {0};
    if (code->cwd) {
        text_append_string(&cwd, " cwd=");
        files_request_append_shown(&cwd, code->cwd);
    }
    return plane_audit(request, err, "code.run", "kernel=%s timeout_ms=%llu silent=%d size=%zu%s%s%.*s",
                       http_request_parameter(request, "id"), (unsigned long long)code->timeout_ms, code->silent,
                       code->size, code->cwd ? cwd.data : "", kept ? " code=" : "", (int)kept, code->code);
}

static void handle_run(struct http_request *request)
{
    struct error err = {0};
    struct kernel_ordered ordered = {0};
    json_t *body = read_body(request, &err);
    if (!body || !kernel_request_run(&ordered, body, &err) || !record_run(request, &ordered.code, &err)) {
        json_decref(body);
        http_reply_error(request, &err);
        return;
    }
    bool sse = !ordered.framing_chosen && accepts_sse(request);
    struct kernel_run *run = kernel_reply_new(request, sse ? KERNEL_SSE : ordered.framing);
    kernels_run(plane_of(request)->sandboxes, sandbox_of(request), http_request_parameter(request, "id"), &ordered.code,
                run);
    json_decref(body);
}

static void handle_interrupt(struct http_request *request)
{
    struct error err = {0};
    struct kernel_call call = call_of(request, answer_created);
    if (takes_no_query(request, &err) && plane_audit(request, &err, "code.interrupt", "kernel=%s", call.kernel_id))
        kernels_interrupt(plane_of(request)->sandboxes, &call);
    else
        http_reply_error(request, &err);
}

static void handle_restart(struct http_request *request)
{
    struct error err = {0};
    uint64_t timeout_ms = 0;
    struct kernel_call call = call_of(request, answer_created);
    json_t *body = read_body(request, &err);
    bool parsed = body && kernel_request_restart(&timeout_ms, body, &err);
    json_decref(body);
    if (parsed && plane_audit(request, &err, "code.restart", "kernel=%s", call.kernel_id))
        kernels_restart(plane_of(request)->sandboxes, &call, timeout_ms);
    else
        http_reply_error(request, &err);
}

static void handle_remove(struct http_request *request)
{
    struct error err = {0};
    struct kernel_call call = call_of(request, answer_empty);
    if (takes_no_query(request, &err) && plane_audit(request, &err, "code.remove", "kernel=%s", call.kernel_id))
        kernels_remove(plane_of(request)->sandboxes, &call);
    else
        http_reply_error(request, &err);
}

static void handle_list(struct http_request *request)
{
    struct error err = {0};
    struct kernel_call call = call_of(request, call_of(request, NULL).kernel_id ? answer_created : answer_list);
    if (takes_no_query(request, &err))
        kernels_list(plane_of(request)->sandboxes, &call);
    else
        http_reply_error(request, &err);
}

static void handle_specs(struct http_request *request)
{
    struct error err = {0};
    if (takes_no_query(request, &err))
        kernel_specs_reply(request);
    else
        http_reply_error(request, &err);
}

#define CAPABILITY (HTTP_BEARER | HTTP_PATH)

static const struct http_route ROUTES[] = {
    {"POST", "/s/{sandbox}/kernels", CAPABILITY, "code", BODY_BYTES, handle_create},
    {"GET", "/s/{sandbox}/kernels", CAPABILITY, "code", 0, handle_list},
    {"GET", "/s/{sandbox}/kernels/{id}", CAPABILITY, "code", 0, handle_list},
    {"DELETE", "/s/{sandbox}/kernels/{id}", CAPABILITY, "code", 0, handle_remove},
    {"POST", "/s/{sandbox}/kernels/{id}/run", CAPABILITY, "code", CODE_BODY_BYTES, handle_run},
    {"POST", "/s/{sandbox}/kernels/{id}/interrupt", CAPABILITY, "code", SMALL_BODY_BYTES, handle_interrupt},
    {"POST", "/s/{sandbox}/kernels/{id}/restart", CAPABILITY, "code", SMALL_BODY_BYTES, handle_restart},
    {"GET", "/s/{sandbox}/kernelspecs", CAPABILITY, "code", 0, handle_specs},
};

const struct http_route *kernels_routes(size_t *count)
{
    *count = sizeof ROUTES / sizeof *ROUTES;
    return ROUTES;
}
