#include "sandboxd/dialects/guest/guest_gate.h"

#include "sandboxd/dialects/execd/execd.h"
#include "sandboxd/dialects/guest/guest_relay.h"
#include "sandboxd/dialects/native/files/files_request.h"
#include "sandboxd/dialects/native/previews/previews.h"
#include "sandboxd/dialects/plane.h"
#include "sandboxd/dialects/port_relay.h"
#include "shared/base/memory.h"
#include "shared/base/text.h"

#include <string.h>

#define S             "/s/{sandbox}"
#define EXECD_FILES   EXECD_PREFIX "/files"
#define EXECD_FOLDERS EXECD_PREFIX "/directories"

enum { ARGUMENTS_SHOWN = 64, PATHS_SHOWN = 16 };

static const char OF_FILE[] = "?op="; /* the query says */

/* What is the node's own to say of a sandbox. */
static const char *const OWN[] = {S "/info",
                                  S "/metrics",
                                  S "/metrics/watch",
                                  EXECD_PREFIX "/ping",
                                  PORT_RELAY_EXECD_UNKNOWN,
                                  PORT_RELAY_EGRESS_UNKNOWN,
                                  EXECD_PREFIX "/metrics",
                                  EXECD_PREFIX "/metrics/watch"};

/* Which requests are deeds, and what the audit calls them; as the handlers do. NULL: none. */
static const struct deed {
    const char *method, *path, *action;
} DEEDS[] = {{"POST", S "/exec", "exec"},
             {"POST", S "/execute", "code.execute"},
             {"DELETE", S "/processes/{id}", "kill"},
             {"POST", S "/processes/{id}/stdin", "stdin"},
             {"POST", S "/processes/{id}/resize", NULL},
             {"POST", S "/processes/{id}/signal", "signal"},
             {"POST", S "/kernels", "code.start"},
             {"DELETE", S "/kernels/{id}", "code.remove"},
             {"POST", S "/kernels/{id}/run", "code.run"},
             {"POST", S "/kernels/{id}/interrupt", "code.interrupt"},
             {"POST", S "/kernels/{id}/restart", "code.restart"},
             {"PUT", S "/files/{path...}", "write"},
             {"POST", S "/files/{path...}", OF_FILE},
             {"DELETE", S "/files/{path...}", "delete"},
             {"POST", S "/batch", "batch"},
             {"PUT", S "/archive/{path...}", "archive.put"},
             {"POST", S "/upload/{path...}", "write"},
             {"DELETE", EXECD_PREFIX "/files", "delete"},
             {"POST", EXECD_PREFIX "/files/permissions", "chmod"},
             {"POST", EXECD_PREFIX "/files/mv", "move"},
             {"POST", EXECD_PREFIX "/files/replace", "edit"},
             {"POST", EXECD_PREFIX "/files/upload", "write"},
             {"POST", EXECD_PREFIX "/directories", "mkdir"},
             {"DELETE", EXECD_PREFIX "/directories", "delete"},
             {"GET", S "/ws", "socket"},
             {"POST", EXECD_PREFIX "/command", "exec"},
             {"DELETE", EXECD_PREFIX "/command", "kill"},
             {"POST", EXECD_PREFIX "/pty", "terminal"},
             {"DELETE", EXECD_PREFIX "/pty/{id}", "kill"},
             {"GET", EXECD_PREFIX "/pty/{id}/ws", "socket"},
             {"POST", EXECD_PREFIX "/session", "code.start"},
             {"POST", EXECD_PREFIX "/session/{id}/run", "code.run"},
             {"DELETE", EXECD_PREFIX "/session/{id}", "code.remove"},
             {"POST", EXECD_PREFIX "/code/context", "code.start"},
             {"DELETE", EXECD_PREFIX "/code/contexts", "code.remove"},
             {"DELETE", EXECD_PREFIX "/code/contexts/{id}", "code.remove"},
             {"POST", EXECD_PREFIX "/code", "code.run"},
             {"DELETE", EXECD_PREFIX "/code", "code.interrupt"}};

static const char *const FILE_DEEDS[] = {"move", "copy", "mkdir", "chmod", "edit"};

static bool is_own(const struct http_route *route)
{
    for (size_t i = 0; i < sizeof OWN / sizeof OWN[0]; i++) {
        if (strcmp(route->path, OWN[i]) == 0)
            return true;
    }
    return route == previews_route(); /* port_relay refuses it: a page needs an address that the guest does not know */
}

/* ---- the deed ---- */

/* POST on a file says by ?op= which. */
static const char *file_action(const struct http_request *request)
{
    const char *op = http_request_query(request, "op");
    for (size_t i = 0; op && i < sizeof FILE_DEEDS / sizeof FILE_DEEDS[0]; i++) {
        if (strcmp(op, FILE_DEEDS[i]) == 0)
            return FILE_DEEDS[i];
    }
    return GUEST_GATE_UNKNOWN;
}

const char *guest_gate_action(const struct http_route *route)
{
    for (size_t i = 0; i < sizeof DEEDS / sizeof DEEDS[0]; i++) {
        if (strcmp(route->path, DEEDS[i].path) == 0 && strcmp(route->method, DEEDS[i].method) == 0)
            return DEEDS[i].action;
    }
    bool is_read = strcmp(route->method, "GET") == 0 || is_own(route) || route->carriers & HTTP_PROXIES;
    return is_read ? NULL : GUEST_GATE_UNKNOWN;
}

static const char *action_of(const struct http_request *request)
{
    const char *action = guest_gate_action(http_request_route(request));
    return action && strcmp(action, OF_FILE) == 0 ? file_action(request) : action;
}

/* What names the thing, as no part of it can pass for another key=value. */
static void describe_named(const struct http_request *request, struct text *text)
{
    const char *id = http_request_parameter(request, "id");
    if (!id && text_starts_with(http_request_route(request)->path, EXECD_PREFIX "/"))
        id = http_request_query(request, "id");
    if (id) {
        text_append_string(text, " id=");
        files_request_append_shown(text, id);
    }
    if (http_request_parameter(request, "path")) {
        AUTO_FREE char *path = files_request_path(request);
        text_append_string(text, " path=");
        files_request_append_shown(text, path);
    }
}

static void describe_path(struct text *text, const char *key, const char *path)
{
    if (!path)
        return;
    text_append_format(text, " %s=", key);
    files_request_append_shown(text, path);
}

/* Of OpenSandbox's files, the moves are an array, the rest is an object by path. */
static void describe_moves(const json_t *moves, struct text *text)
{
    for (size_t i = 0; i < json_array_size(moves) && i < PATHS_SHOWN; i++) {
        const json_t *move = json_array_get(moves, i);
        describe_path(text, "path", json_string_value(json_object_get(move, "src")));
        describe_path(text, "to", json_string_value(json_object_get(move, "dest")));
    }
}

static void describe_keys(json_t *body, struct text *text)
{
    const char *path;
    json_t *value;
    size_t shown = 0;
    json_object_foreach (body, path, value)
        if (shown++ < PATHS_SHOWN)
            describe_path(text, "path", path);
}

/* The first of several paths, as the client wrote them. A body that is none is the guest's to refuse. */
static void describe_several(const struct http_request *request, struct text *text)
{
    const struct http_route *route = http_request_route(request);
    struct error ignored = {0};
    for (size_t i = 0; i < PATHS_SHOWN && (route->carriers & HTTP_REPEATS); i++)
        describe_path(text, "path", http_request_query_nth(request, "path", i));
    bool is_by_path = strncmp(route->path, EXECD_FILES, sizeof EXECD_FILES - 1) == 0 ||
                      strncmp(route->path, EXECD_FOLDERS, sizeof EXECD_FOLDERS - 1) == 0;
    if (!is_by_path || route->body_max_bytes == 0 || route->carriers & HTTP_POURS)
        return;
    bool is_moves = strcmp(route->path, EXECD_FILES "/mv") == 0;
    json_t *body = is_moves ? http_request_json_array(request, &ignored) : http_request_json(request, &ignored);
    if (is_moves)
        describe_moves(body, text);
    else
        describe_keys(body, text);
    json_decref(body);
}

/* Of a JSON body its command line; the rest may hold secrets. A body that is none is the guest's to refuse. */
static void describe_command(const struct http_request *request, struct text *text)
{
    struct error ignored = {0};
    json_t *body = http_request_json(request, &ignored), *argument;
    const char *line = json_string_value(json_object_get(body, "cmd"));
    line = line ? line : json_string_value(json_object_get(body, "command"));
    const char *id = json_string_value(json_object_get(body, "id"));
    size_t i;
    if (id) {
        text_append_string(text, " id=");
        files_request_append_shown(text, id);
    }
    text_append_string(text, " command=");
    if (line)
        text_append_format(text, "%.*s", SPOOL_COMMAND_MAX, line);
    json_array_foreach (json_object_get(body, "argv"), i, argument) {
        if (i < ARGUMENTS_SHOWN && json_is_string(argument))
            text_append_format(text, "%s%.*s", i > 0 ? " " : "", SPOOL_COMMAND_MAX / ARGUMENTS_SHOWN,
                               json_string_value(argument));
    }
    json_decref(body);
}

static bool record(struct http_request *request, struct error *err)
{
    const char *action = action_of(request);
    AUTO_TEXT text = {0};
    if (http_request_route(request)->carriers & HTTP_PROXIES)
        plane_record_read(request); /* as its handler does, whatever the method */
    if (!action)
        return true;
    text_append_format(&text, "guest=1 route=%s %s", http_request_method(request), http_request_route(request)->path);
    describe_named(request, &text);
    describe_several(request, &text);
    bool has_line = strcmp(action, "exec") == 0 || strcmp(action, "terminal") == 0;
    if (has_line && !plane_of(request)->omit_argv)
        describe_command(request, &text);
    return plane_audit(request, err, action, "%s", text.data);
}

/* ---- the gate ---- */

/* A route that takes its token later, in a frame, is the guest's alone to judge: nobody here could cut it. */
static bool refuse_unjudged(struct http_request *request)
{
    AUTO_REGISTRY_VIEW view = {0};
    const char *id = http_request_parameter(request, "sandbox");
    const struct http_route *route = http_request_route(request);
    struct error err = {0};
    if (!(route->carriers & HTTP_LATER) || !id ||
        !registry_find(sandboxes_registry(plane_of(request)->sandboxes), id, &view) || !view.is_guest)
        return false;
    error_set(
        &err, ERROR_UNAUTHENTICATED,
        "a sandbox of isolation %s takes the token of a socket with its head: Authorization, the path, ?token= or "
        "a subprotocol",
        view.isolation);
    http_reply_error(request, &err);
    return true;
}

bool guest_gate(struct http_request *request)
{
    const struct http_route *route = http_request_route(request);
    const struct caller *caller = route->needs ? caller_of(request) : NULL;
    struct error err = {0};
    if (route->needs && !caller)
        return refuse_unjudged(request);
    if (!caller || !caller->is_guest || is_own(route))
        return false;
    if (!record(request, &err) || !guest_relay(request, &err))
        http_reply_error(request, &err);
    return true;
}
