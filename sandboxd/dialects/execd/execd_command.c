/* execd_command.c - routes of commands, and the translation between them and the verbs. */
#include "sandboxd/dialects/execd/execd_command.h"

#include "sandboxd/dialects/execd/execd.h"
#include "sandboxd/dialects/execd/execd_contexts.h"
#include "sandboxd/dialects/execd/execd_errors.h"
#include "sandboxd/dialects/execd/execd_events.h"
#include "sandboxd/dialects/execd/execd_logs.h"
#include "sandboxd/dialects/execd/execd_path.h"
#include "sandboxd/dialects/execd/execd_request.h"
#include "sandboxd/dialects/execd/execd_run.h"
#include "sandboxd/dialects/plane.h"
#include "shared/base/clock.h"
#include "shared/base/memory.h"
#include "shared/base/random.h"
#include "shared/base/text.h"

#include <string.h>

enum { BODY_BYTES = 1024 * 1024, GRACE_MS = 3000 };
static const char FOREGROUND[] = "cmd", BACKGROUND[] = "bg";

static const char *sandbox_of(const struct http_request *request)
{
    return caller_of(request)->claims.sandbox_id;
}

/* ---- a run ---- */

static bool place(const struct http_request *request, struct command *command, struct error *err)
{
    if (!command->cwd)
        return true;
    char *cwd = execd_path(request, command->cwd, err);
    if (!cwd)
        return error_prefix(err, "cwd");
    free(command->cwd);
    command->cwd = cwd;
    return true;
}

/* An id of ours says how it runs, and is known longer than its output. */
static void name(struct command *command, bool is_background)
{
    char id[RANDOM_ID_BYTES];
    random_id(id, is_background ? BACKGROUND : FOREGROUND);
    memcpy(command->id, id, sizeof id);
}

static bool read_run(struct http_request *request, struct execd_request *asked, struct error *err)
{
    char workdir[FRONT_LAUNCHER_PATH_BYTES];
    uint32_t uid = 0;
    struct registry *registry = sandboxes_registry(plane_of(request)->sandboxes);
    if (!registry_start_of(registry, sandbox_of(request), workdir, &uid))
        return error_set(err, ERROR_NOT_FOUND, "no such sandbox");
    json_t *body = http_request_json(request, err);
    bool is_read = body && execd_request_parse(asked, body, uid, err);
    json_decref(body);
    if (!is_read)
        return false;
    if (place(request, asked->command, err))
        return true;
    command_free(asked->command);
    return false;
}

static void run(struct http_request *request, const struct execd_request *asked)
{
    enum execd_run_kind kind = asked->is_background ? EXECD_RUN_BACKGROUND : EXECD_RUN_FOREGROUND;
    name(asked->command, asked->is_background);
    asked->command->origin = plane_origin(request);
    struct execd_run *run = execd_run_new(request, asked->command->id, kind);
    process_exec(plane_of(request)->sandboxes, sandbox_of(request), asked->command, execd_run_follower(run));
}

static void handle_run(struct http_request *request)
{
    struct error err = {0};
    struct execd_request asked;
    if (read_run(request, &asked, &err))
        run(request, &asked);
    else
        http_reply_error(request, &err);
}

void execd_command_run_line(struct http_request *request, const char *line)
{
    struct error err = {0};
    AUTO(command) *command = command_new();
    if (!execd_request_set_line(command, line, &err)) {
        http_reply_error(request, &err);
        return;
    }
    const struct execd_request asked = {.command = TAKE(command)};
    run(request, &asked);
}

/* ---- verbs with a short answer: the request is found again by its number ---- */

static struct process_call call_of(struct http_request *request, const char *id,
                                   void (*done)(void *cookie, const struct verb_answer *answer))
{
    return (struct process_call){.sandbox_id = sandbox_of(request),
                                 .process_id = id,
                                 .done = done,
                                 .cookie = (void *)(uintptr_t)http_request_number(request)};
}

static struct http_request *find_waiting(void *cookie)
{
    return http_request_find(loop_current(), (uint64_t)(uintptr_t)cookie);
}

/* Of a command that is not known, or has ended, this dialect says that its runtime failed. */
static void answer_interrupt(void *cookie, const struct verb_answer *answer)
{
    struct http_request *request = find_waiting(cookie);
    enum error_kind kind = answer->error.kind;
    if (!request)
        return;
    if (kind == ERROR_NONE)
        http_reply_empty(request, 200);
    else if (kind == ERROR_NOT_FOUND || kind == ERROR_CONFLICT)
        execd_reply_error(request, 500, "RUNTIME_ERROR", answer->error.message);
    else
        http_reply_error(request, &answer->error);
}

void execd_command_stop(struct http_request *request)
{
    struct error err = {0};
    const char *id = http_request_query(request, "id");
    if (!id || !*id) {
        execd_reply_error(request, 400, "MISSING_QUERY", "id: of the command to be interrupted");
        return;
    }
    if (!process_is_id(id)) {
        execd_reply_error(request, 500, "RUNTIME_ERROR", "no command has such an id");
        return;
    }
    struct process_call call = call_of(request, id, answer_interrupt);
    if (plane_audit(request, &err, "kill", "id=%s grace=%d", id, GRACE_MS / 1000))
        process_stop(plane_of(request)->sandboxes, &call, GRACE_MS);
    else
        http_reply_error(request, &err);
}

/* The id may be a context's, or a session's. */
static void handle_interrupt(struct http_request *request)
{
    const char *id = http_request_query(request, "id");
    if (id && *id)
        execd_interrupt(request, id, execd_command_stop);
    else
        execd_command_stop(request);
}

static void put_time(json_t *object, const char *field, int64_t wall_ms)
{
    char text[CLOCK_TEXT_BYTES];
    clock_format(text, wall_ms);
    json_object_set_new(object, field, json_string(text));
}

/* The line as it was sent; its beginning when it is not known any more. */
static json_t *content_json(const struct verb_answer *answer)
{
    static const char SHELL[] = "/bin/bash -c ";
    const char *text = answer->line ? answer->line : answer->views[0].title;
    if (!answer->line && text_starts_with(text, SHELL))
        text += strlen(SHELL);
    return json_stringn(text, text_utf8_prefix(text, strlen(text)));
}

static json_t *status_json(const struct verb_answer *answer)
{
    const struct process_view *view = &answer->views[0];
    json_t *object = json_object();
    json_object_set_new(object, "id", json_string(view->id));
    json_object_set_new(object, "content", content_json(answer));
    json_object_set_new(object, "running", json_boolean(!view->ended));
    if (view->ended) {
        int code = execd_end_code(&view->end);
        char text[EXECD_END_BYTES];
        execd_end_text(&view->end, text);
        json_object_set_new(object, "exit_code", json_integer(code));
        if (code != 0)
            json_object_set_new(object, "error", json_string(text));
    }
    put_time(object, "started_at", view->started_ms);
    if (view->ended)
        put_time(object, "finished_at", view->end.ended_ms);
    return object;
}

static void answer_status(void *cookie, const struct verb_answer *answer)
{
    struct http_request *request = find_waiting(cookie);
    if (request && answer->error.kind != ERROR_NONE)
        http_reply_error(request, &answer->error);
    else if (request && answer->count == 1)
        http_reply_json(request, 200, status_json(answer));
}

/* False: answered. */
static bool check_id(struct http_request *request, const char *id)
{
    struct error err = {0};
    if (process_is_id(id))
        return true;
    error_set(&err, ERROR_NOT_FOUND, "no command has such an id");
    http_reply_error(request, &err);
    return false;
}

static void handle_status(struct http_request *request)
{
    const char *id = http_request_parameter(request, "id");
    if (!check_id(request, id))
        return;
    struct process_call call = call_of(request, id, answer_status);
    process_list(plane_of(request)->sandboxes, &call);
}

/* ---- logs ---- */

static bool read_cursor(const struct http_request *request, uint64_t *cursor, struct error *err)
{
    const char *text = http_request_query(request, "cursor");
    *cursor = 0;
    return !text || !*text || text_parse_u64(text, strlen(text), INT64_MAX, cursor) ||
           error_set(err, ERROR_INVALID, "cursor: a number of bytes, as EXECD-COMMANDS-TAIL-CURSOR said it");
}

static void handle_logs(struct http_request *request)
{
    struct error err = {0};
    uint64_t cursor;
    const char *id = http_request_parameter(request, "id");
    if (!check_id(request, id))
        return;
    if (text_starts_with(id, "cmd_")) {
        execd_reply_error(request, 400, "INVALID_REQUEST_BODY", "only a command in the background has logs");
        return;
    }
    if (!read_cursor(request, &cursor, &err)) {
        http_reply_error(request, &err);
        return;
    }
    plane_record_read(request);
    execd_logs(request, id, cursor);
}

const struct http_route *execd_command_routes(size_t *count)
{
    static const struct http_route ROUTES[] = {
        {"POST", EXECD_PREFIX "/command", EXECD_CARRIERS, "process", BODY_BYTES, handle_run},
        {"DELETE", EXECD_PREFIX "/command", EXECD_CARRIERS, "process", 0, handle_interrupt},
        {"GET", EXECD_PREFIX "/command/status/{id}", EXECD_CARRIERS, "process", 0, handle_status},
        {"GET", EXECD_PREFIX "/command/{id}/logs", EXECD_CARRIERS, "process", 0, handle_logs},
    };
    *count = sizeof ROUTES / sizeof *ROUTES;
    return ROUTES;
}
