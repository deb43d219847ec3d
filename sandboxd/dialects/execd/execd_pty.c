/* execd_pty.c - routes of terminals. */
#include "sandboxd/dialects/execd/execd_pty.h"

#include "sandboxd/dialects/execd/execd.h"
#include "sandboxd/dialects/execd/execd_path.h"
#include "sandboxd/dialects/execd/execd_pty_socket.h"
#include "sandboxd/dialects/execd/execd_request.h"
#include "sandboxd/dialects/plane.h"
#include "sandboxd/sandbox/terminal_holders.h"
#include "shared/base/clock.h"
#include "shared/base/memory.h"
#include "shared/base/text.h"
#include "shared/http/websocket.h"

#include <string.h>

enum { BODY_BYTES = 64 * 1024, PATH_BYTES = 4095 };

static const char *sandbox_of(const struct http_request *request)
{
    return caller_of(request)->claims.sandbox_id;
}

static struct terminal_holders *terminals_of(const struct http_request *request)
{
    return plane_of(request)->terminals;
}

/* ---- one is made ---- */

static bool read_plan(struct http_request *request, struct terminal_plan *plan, struct error *err)
{
    const char *cwd = NULL, *line = NULL;
    json_t *body = http_request_json(request, err);
    bool is_read = body && execd_request_text(body, "cwd", PATH_BYTES, &cwd, err) &&
                   execd_request_text(body, "command", TERMINAL_HOLDERS_LINE, &line, err);
    if (is_read && cwd && *cwd) {
        plan->cwd = execd_path(request, cwd, err);
        is_read = plan->cwd || error_prefix(err, "cwd");
    }
    if (is_read && line && *line)
        plan->line = memory_string(line);
    json_decref(body);
    return is_read;
}

static void handle_make(struct http_request *request)
{
    struct error err = {0};
    struct terminal_plan plan = {0};
    char id[RANDOM_ID_BYTES];
    if (read_plan(request, &plan, &err) &&
        terminal_holders_add(terminals_of(request), sandbox_of(request), &plan,
                             (int64_t)(clock_boot_ns() / UINT64_C(1000000)), id, &err))
        http_reply_json(request, 201, json_pack("{s:s}", "session_id", id));
    else
        http_reply_error(request, &err);
    terminal_plan_done(&plan);
}

/* ---- one is looked at first ---- */

static bool refuse_unknown(struct http_request *request, const char *id)
{
    struct error err = {0};
    error_set(&err, ERROR_NOT_FOUND, "no terminal %.64s", id);
    http_reply_error(request, &err);
    return false;
}

/* Of this dialect: other commands have other rights. False: answered. */
static bool check_id(struct http_request *request, const char *id)
{
    return random_is_id(id, "pty") || refuse_unknown(request, id);
}

static void look(struct http_request *request, void (*done)(void *cookie, const struct verb_answer *answer))
{
    const struct process_call call = {.sandbox_id = sandbox_of(request),
                                      .process_id = http_request_parameter(request, "id"),
                                      .done = done,
                                      .cookie = (void *)(uintptr_t)http_request_number(request)};
    process_list(plane_of(request)->sandboxes, &call);
}

/* Without a terminal it is a command like any other, whatever its id. */
static bool may_use(const struct http_request *request, const struct process_view *view, struct error *err)
{
    return view->terminal || scope_allows(&caller_of(request)->claims.scopes, "process") ||
           error_set(err, ERROR_CAPABILITY_DENIED, "a command without a terminal needs scope process");
}

/* The request with its view; NULL: answered, or gone. */
static struct http_request *find_looking(void *cookie, const struct verb_answer *answer)
{
    struct error err = {0};
    struct http_request *request = http_request_find(loop_current(), (uint64_t)(uintptr_t)cookie);
    if (!request)
        return NULL;
    bool is_there = answer->error.kind == ERROR_NONE && answer->count == 1 && !answer->views[0].leaving;
    if (is_there && may_use(request, &answer->views[0], &err))
        return request;
    if (answer->error.kind == ERROR_NOT_FOUND || (answer->error.kind == ERROR_NONE && !is_there))
        (void)refuse_unknown(request, http_request_parameter(request, "id"));
    else
        http_reply_error(request, answer->error.kind != ERROR_NONE ? &answer->error : &err);
    return NULL;
}

/* ---- shown ---- */

static void reply_state(struct http_request *request, bool is_running, uint64_t offset)
{
    http_reply_json(request, 200,
                    json_pack("{s:s,s:b,s:I}", "session_id", http_request_parameter(request, "id"), "running",
                              is_running, "output_offset", (json_int_t)offset));
}

static void answer_state(void *cookie, const struct verb_answer *answer)
{
    struct http_request *request = find_looking(cookie, answer);
    if (request)
        reply_state(request, !answer->views[0].ended, answer->views[0].length[OUTPUT_STDOUT]);
}

static void handle_show(struct http_request *request)
{
    const char *id = http_request_parameter(request, "id");
    if (!check_id(request, id))
        return;
    if (terminal_holders_is_fresh(terminals_of(request), sandbox_of(request), id))
        reply_state(request, false, 0);
    else
        look(request, answer_state);
}

/* ---- ended ---- */

static void answer_end(void *cookie, const struct verb_answer *answer)
{
    struct http_request *request = http_request_find(loop_current(), (uint64_t)(uintptr_t)cookie);
    if (request && answer->error.kind == ERROR_NONE)
        http_reply_empty(request, 200);
    else if (request)
        http_reply_error(request, &answer->error);
}

static void end_known(void *cookie, const struct verb_answer *answer)
{
    struct error err = {0};
    struct http_request *request = find_looking(cookie, answer);
    if (!request)
        return;
    const struct process_call call = {.sandbox_id = sandbox_of(request),
                                      .process_id = http_request_parameter(request, "id"),
                                      .done = answer_end,
                                      .cookie = cookie};
    if (plane_audit(request, &err, "kill", "id=%s", call.process_id))
        process_remove(plane_of(request)->sandboxes, &call);
    else
        http_reply_error(request, &err);
}

static void handle_end(struct http_request *request)
{
    const char *id = http_request_parameter(request, "id");
    if (!check_id(request, id))
        return;
    if (terminal_holders_drop(terminals_of(request), sandbox_of(request), id))
        http_reply_empty(request, 200);
    else
        look(request, end_known);
}

/* ---- opened ---- */

static bool read_wish(const struct http_request *request, struct execd_pty_wish *wish, struct error *err)
{
    const char *since = http_request_query(request, "since");
    *wish = (struct execd_pty_wish){.id = http_request_parameter(request, "id"),
                                    .pipes = text_equal(http_request_query(request, "pty"), "0"),
                                    .takes_over = text_equal(http_request_query(request, "takeover"), "1")};
    return !since || !*since || text_parse_u64(since, strlen(since), INT64_MAX, &wish->since) ||
           error_set(err, ERROR_INVALID, "since: a number of bytes");
}

static void open_known(void *cookie, const struct verb_answer *answer)
{
    struct error err = {0};
    struct execd_pty_wish wish;
    struct http_request *request = find_looking(cookie, answer);
    if (!request)
        return;
    if (answer->views[0].output_gone)
        (void)refuse_unknown(request, answer->views[0].id);
    else if (read_wish(request, &wish, &err))
        execd_pty_socket_open(request, &wish, &answer->views[0]);
    else
        http_reply_error(request, &err);
}

static void handle_open(struct http_request *request)
{
    struct error err = {0};
    struct execd_pty_wish wish;
    const char *id = http_request_parameter(request, "id");
    if (!check_id(request, id))
        return;
    bool is_fresh = terminal_holders_is_fresh(terminals_of(request), sandbox_of(request), id);
    if (!http_websocket_check(request, &err) || !read_wish(request, &wish, &err))
        http_reply_error(request, &err);
    else if (is_fresh)
        execd_pty_socket_open(request, &wish, NULL);
    else
        look(request, open_known);
}

const struct http_route *execd_pty_routes(size_t *count)
{
    static const struct http_route ROUTES[] = {
        {"POST", EXECD_PREFIX "/pty", EXECD_CARRIERS, "shell", BODY_BYTES, handle_make},
        {"GET", EXECD_PREFIX "/pty/{id}", EXECD_CARRIERS, "shell", 0, handle_show},
        {"DELETE", EXECD_PREFIX "/pty/{id}", EXECD_CARRIERS, "shell", 0, handle_end},
        {"GET", EXECD_PREFIX "/pty/{id}/ws", EXECD_CARRIERS | HTTP_QUERY | HTTP_PROTOCOL, "shell", 0, handle_open},
    };
    *count = sizeof ROUTES / sizeof *ROUTES;
    return ROUTES;
}
