/* native.c - routes, and the translation between them and the verbs. */
#include "sandboxd/dialects/native/native.h"

#include "sandboxd/dialects/fields.h"
#include "sandboxd/dialects/native/events.h"
#include "sandboxd/dialects/native/exec_request.h"
#include "sandboxd/dialects/native/info.h"
#include "sandboxd/dialects/native/output_reply.h"
#include "sandboxd/dialects/native/raw_reply.h"
#include "sandboxd/dialects/plane.h"
#include "shared/base/text.h"

#include <string.h>

enum { BODY_BYTES = 1024 * 1024, SMALL_BODY_BYTES = 4096 };

static const char *sandbox_of(const struct http_request *request)
{
    return caller_of(request)->claims.sandbox_id;
}

static bool accepts_sse(const struct http_request *request)
{
    const char *accept = http_request_header(request, "accept");
    return accept && strstr(accept, "text/event-stream");
}

/* Of a route without parameters; what came all the same is answered here. */
static bool takes_no_query(struct http_request *request)
{
    static const char *const NAMES[] = {NULL};
    struct error err = {0};
    if (http_request_query_only(request, NAMES, &err))
        return true;
    http_reply_error(request, &err);
    return false;
}

/* The body's object, of such a route. */
static json_t *read_body(struct http_request *request, struct error *err)
{
    static const char *const NAMES[] = {NULL};
    return http_request_query_only(request, NAMES, err) ? http_request_json(request, err) : NULL;
}

/* ---- exec ---- */

static void handle_exec(struct http_request *request)
{
    struct error err = {0};
    json_t *body = read_body(request, &err);
    struct exec_request exec = {0};
    bool parsed = body && exec_request_parse(&exec, body, &err);
    json_decref(body);
    if (!parsed) {
        http_reply_error(request, &err);
        return;
    }
    bool sse = exec.reply == EXEC_SSE || (!exec.reply_chosen && accepts_sse(request));
    struct output_reply_plan plan = {
        .framing = sse ? HTTP_SSE : HTTP_NDJSON,
        .expires_s = caller_of(request)->claims.expires_at + PLANE_AFTER_EXPIRY_S,
    };
    if (exec.reply == EXEC_ONE_JSON) {
        plan.kind = OUTPUT_REPLY_ONE_JSON;
        plan.mode = FOLLOWER_AT_END;
    } else if (exec.reply == EXEC_DETACHED) {
        plan.kind = OUTPUT_REPLY_STARTED;
        plan.mode = FOLLOWER_AT_END;
    } else {
        plan.kind = OUTPUT_REPLY_STREAM;
        plan.mode = FOLLOWER_DRIVER;
    }
    exec.command->origin = plane_origin(request); /* recorded when it is started, not when it is there already */
    struct output_reply *reply = output_reply_new(request, &plan);
    process_exec(plane_of(request)->sandboxes, sandbox_of(request), exec.command, output_reply_follower(reply));
}

/* ---- verbs with a short answer: the request is found again by its number ---- */

static void *number_cookie(const struct http_request *request)
{
    return (void *)(uintptr_t)http_request_number(request);
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

static void answer_empty(void *cookie, const struct verb_answer *answer)
{
    struct http_request *request = find_waiting(cookie, answer);
    if (request)
        http_reply_empty(request, 204);
}

static void reply_list(struct http_request *request, const char *name, const struct verb_answer *answer,
                       bool terminals_only)
{
    json_t *list = json_array();
    for (size_t i = 0; i < answer->count; i++)
        if (answer->views[i].terminal || !terminals_only)
            json_array_append_new(list, events_process(&answer->views[i]));
    json_t *object = json_object();
    json_object_set_new(object, name, list);
    http_reply_json(request, 200, object);
}

static void answer_list(void *cookie, const struct verb_answer *answer)
{
    struct http_request *request = find_waiting(cookie, answer);
    if (request)
        reply_list(request, "processes", answer, false);
}

static void answer_terminals(void *cookie, const struct verb_answer *answer)
{
    struct http_request *request = find_waiting(cookie, answer);
    if (request)
        reply_list(request, "terminals", answer, true);
}

static void answer_input(void *cookie, const struct verb_answer *answer)
{
    struct http_request *request = find_waiting(cookie, answer);
    if (request)
        http_reply_json(
            request, 200,
            json_pack("{s:I}", "stdin_offset", (json_int_t)(answer->count == 1 ? answer->views[0].stdin_offset : 0)));
}

static void answer_one(void *cookie, const struct verb_answer *answer)
{
    struct http_request *request = find_waiting(cookie, answer);
    if (!request || answer->count != 1)
        return;
    json_t *object = events_process(&answer->views[0]);
    if (answer->line)
        json_object_set_new(object, "command_line",
                            json_stringn(answer->line, text_utf8_prefix(answer->line, strlen(answer->line))));
    http_reply_json(request, 200, object);
}

static struct process_call call_of(struct http_request *request,
                                   void (*done)(void *cookie, const struct verb_answer *answer))
{
    return (struct process_call){.sandbox_id = sandbox_of(request),
                                 .process_id = http_request_parameter(request, "id"),
                                 .done = done,
                                 .cookie = number_cookie(request)};
}

static void handle_list(struct http_request *request)
{
    if (!takes_no_query(request))
        return;
    struct process_call call = call_of(request, answer_list);
    process_list(plane_of(request)->sandboxes, &call);
}

static void handle_terminals(struct http_request *request)
{
    if (!takes_no_query(request))
        return;
    struct process_call call = call_of(request, answer_terminals);
    process_list(plane_of(request)->sandboxes, &call);
}

static void handle_one(struct http_request *request)
{
    if (!takes_no_query(request))
        return;
    struct process_call call = call_of(request, answer_one);
    process_list(plane_of(request)->sandboxes, &call);
}

static void handle_kill(struct http_request *request)
{
    static const char *const NAMES[] = {"grace", "forget", NULL};
    struct error err = {0};
    uint64_t grace_s = 0;
    bool forgets = false;
    struct process_call call = call_of(request, answer_empty);
    if (!http_request_query_only(request, NAMES, &err) || !fields_query_switch(request, "forget", &forgets, &err) ||
        !fields_query_number(request, "grace", 1, PROCESS_GRACE_MAX_MS / 1000, &grace_s, &err)) {
        http_reply_error(request, &err);
        return;
    }
    if (grace_s && forgets) {
        error_set(&err, ERROR_INVALID, "grace and forget exclude each other");
        http_reply_error(request, &err);
        return;
    }
    bool is_told = grace_s ? plane_audit(request, &err, "kill", "id=%s grace=%u", call.process_id, (unsigned)grace_s)
                           : plane_audit(request, &err, "kill", "id=%s", call.process_id);
    if (!is_told)
        http_reply_error(request, &err);
    else if (grace_s)
        process_stop(plane_of(request)->sandboxes, &call, grace_s * 1000);
    else if (forgets)
        process_remove(plane_of(request)->sandboxes, &call);
    else
        process_kill(plane_of(request)->sandboxes, &call);
}

static bool parse_signal(const json_t *body, int *number, struct error *err)
{
    static const char *const FIELDS[] = {"signal", NULL};
    if (!fields_only(body, FIELDS, err))
        return false;
    if (!events_signal_parse(json_object_get(body, "signal"), number))
        return error_set(err, ERROR_INVALID, "signal: a name like \"TERM\" or a number from 1 to 64");
    return true;
}

static void handle_signal(struct http_request *request)
{
    struct error err = {0};
    int number = 0;
    json_t *body = read_body(request, &err);
    bool parsed = body && parse_signal(body, &number, &err);
    json_decref(body);
    if (!parsed) {
        http_reply_error(request, &err);
        return;
    }
    struct process_call call = call_of(request, answer_empty);
    if (plane_audit(request, &err, "signal", "id=%s signal=%d", call.process_id, number))
        process_signal(plane_of(request)->sandboxes, &call, number);
    else
        http_reply_error(request, &err);
}

static bool parse_offset(const struct http_request *request, const char *name, uint64_t *offset, struct error *err)
{
    return fields_query_number(request, name, 0, INT64_MAX, offset, err);
}

static void handle_stdin(struct http_request *request)
{
    struct error err = {0};
    bool eof = false;
    uint64_t offset = PROCESS_OFFSET_NONE;
    static const char *const NAMES[] = {"eof", "offset", NULL};
    if (!http_request_query_only(request, NAMES, &err) || !fields_query_switch(request, "eof", &eof, &err) ||
        !parse_offset(request, "offset", &offset, &err)) {
        http_reply_error(request, &err);
        return;
    }
    size_t size = 0;
    const char *body = http_request_body(request, &size);
    AUTO_FREE char *origin = plane_origin(request);
    struct process_call call = call_of(request, answer_input);
    call.origin = origin;
    process_write(plane_of(request)->sandboxes, &call, body ? body : "", size, offset, eof);
}

static bool parse_size(const json_t *body, unsigned *columns, unsigned *rows, struct error *err)
{
    static const char *const FIELDS[] = {"cols", "rows", NULL};
    return fields_only(body, FIELDS, err) && exec_request_cells(json_object_get(body, "cols"), "cols", columns, err) &&
           exec_request_cells(json_object_get(body, "rows"), "rows", rows, err);
}

static void handle_resize(struct http_request *request)
{
    struct error err = {0};
    unsigned columns = 0, rows = 0;
    json_t *body = read_body(request, &err);
    bool parsed = body && parse_size(body, &columns, &rows, &err);
    json_decref(body);
    if (!parsed) {
        http_reply_error(request, &err);
        return;
    }
    struct process_call call = call_of(request, answer_empty);
    process_resize(plane_of(request)->sandboxes, &call, columns, rows);
}

/* ---- output ---- */

static void follow_raw(struct http_request *request, const struct raw_reply_plan *plan)
{
    struct raw_reply *reply = raw_reply_new(request, plan);
    process_follow(plane_of(request)->sandboxes, sandbox_of(request), http_request_parameter(request, "id"),
                   raw_reply_follower(reply));
}

static void follow_events(struct http_request *request, const struct output_reply_plan *plan)
{
    struct output_reply *reply = output_reply_new(request, plan);
    process_follow(plane_of(request)->sandboxes, sandbox_of(request), http_request_parameter(request, "id"),
                   output_reply_follower(reply));
}

/* `raw`: the name of a stream, or missing. */
static bool parse_raw(const struct http_request *request, const char **name, enum output_stream *stream,
                      struct error *err)
{
    *name = http_request_query(request, "raw");
    *stream = text_equal(*name, "stderr") ? OUTPUT_STDERR : OUTPUT_STDOUT;
    if (*name && !text_equal(*name, output_stream_name(*stream)))
        return error_set(err, ERROR_INVALID, "raw: stdout or stderr");
    return true;
}

static void handle_output(struct http_request *request)
{
    struct error err = {0};
    bool follows = false, drives = false;
    const char *raw = NULL;
    enum output_stream stream;
    uint64_t offsets[OUTPUT_STREAMS] = {0};
    static const char *const NAMES[] = {"stdout_offset", "stderr_offset", "follow", "drive", "raw", NULL};
    if (!http_request_query_only(request, NAMES, &err) ||
        !parse_offset(request, "stdout_offset", &offsets[OUTPUT_STDOUT], &err) ||
        !parse_offset(request, "stderr_offset", &offsets[OUTPUT_STDERR], &err) ||
        !fields_query_switch(request, "follow", &follows, &err) ||
        !fields_query_switch(request, "drive", &drives, &err) || !parse_raw(request, &raw, &stream, &err)) {
        http_reply_error(request, &err);
        return;
    }
    int64_t expires_s = caller_of(request)->claims.expires_at;
    if (raw) {
        struct raw_reply_plan plan = {
            .stream = stream, .offset = offsets[stream], .follows = follows, .drives = drives, .expires_s = expires_s};
        follow_raw(request, &plan);
        return;
    }
    struct output_reply_plan plan = {.kind = follows ? OUTPUT_REPLY_STREAM : OUTPUT_REPLY_SNAPSHOT,
                                     .framing = accepts_sse(request) ? HTTP_SSE : HTTP_NDJSON,
                                     .mode = drives ? FOLLOWER_DRIVER : FOLLOWER_WATCHER,
                                     .expires_s = expires_s};
    memcpy(plan.offsets, offsets, sizeof plan.offsets);
    follow_events(request, &plan);
}

/* ---- info ---- */

static void handle_info(struct http_request *request)
{
    AUTO_REGISTRY_VIEW view = {0};
    if (!takes_no_query(request))
        return;
    if (!registry_find(sandboxes_registry(plane_of(request)->sandboxes), sandbox_of(request), &view)) {
        struct error err = {0};
        error_set(&err, ERROR_NOT_FOUND, "no such sandbox");
        http_reply_error(request, &err);
        return;
    }
    AUTO_TEXT text = {0};
    info_append(&text, &view, &caller_of(request)->claims);
    const char *url = atomic_load(&plane_of(request)->url);
    if (url)
        info_append_previews(&text, url, plane_of(request)->previews.domain, view.id);
    http_reply_bytes(request, 200, "application/json", text.data, text.length);
}

static void handle_health(struct http_request *request)
{
    http_reply_json(request, 200, json_pack("{s:b}", "ok", 1));
}

#define CAPABILITY (HTTP_BEARER | HTTP_PATH)

static const struct http_route ROUTES[] = {
    {"POST", "/s/{sandbox}/exec", CAPABILITY, "process", BODY_BYTES, handle_exec},
    {"GET", "/s/{sandbox}/processes", CAPABILITY, "process", 0, handle_list},
    {"GET", "/s/{sandbox}/processes/{id}", CAPABILITY, "process", 0, handle_one},
    {"DELETE", "/s/{sandbox}/processes/{id}", CAPABILITY, "process", 0, handle_kill},
    {"GET", "/s/{sandbox}/processes/{id}/output", CAPABILITY, "process", 0, handle_output},
    {"POST", "/s/{sandbox}/processes/{id}/stdin", CAPABILITY, "process", BODY_BYTES, handle_stdin},
    {"POST", "/s/{sandbox}/processes/{id}/resize", CAPABILITY, "process", SMALL_BODY_BYTES, handle_resize},
    {"GET", "/s/{sandbox}/terminals", CAPABILITY, "shell:ro", 0, handle_terminals},
    {"POST", "/s/{sandbox}/processes/{id}/signal", CAPABILITY, "process", SMALL_BODY_BYTES, handle_signal},
    {"GET", "/s/{sandbox}/info", CAPABILITY, "", 0, handle_info},
    {"GET", "/healthz", 0, NULL, 0, handle_health},
    {"GET", "/readyz", 0, NULL, 0, handle_health},
};

const struct http_route *native_routes(size_t *count)
{
    *count = sizeof ROUTES / sizeof *ROUTES;
    return ROUTES;
}
