#include "sandboxd/dialects/guest_gate.h"

#include "sandboxd/dialects/native/previews/previews.h"
#include "sandboxd/dialects/port_relay.h"
#include "sandboxd/sandbox/ports/ports.h"
#include "shared/base/memory.h"

#include <string.h>

#define S "/s/{sandbox}"

enum { ARGUMENTS_SHOWN = 64 };

/* What is the node's own to say of a sandbox. */
static const char *const OWN[] = {S "/info", S "/metrics", S "/metrics/watch"};

/* Which requests are deeds, and what the audit calls them; as the native dialect does. All others are reads. */
static const struct deed {
    const char *method, *path, *action;
} DEEDS[] = {{"POST", S "/exec", "exec"},
             {"POST", S "/execute", "exec"},
             {"DELETE", S "/processes/{id}", "kill"},
             {"POST", S "/processes/{id}/stdin", "stdin"},
             {"POST", S "/processes/{id}/signal", "signal"},
             {"POST", S "/kernels", "code.start"},
             {"DELETE", S "/kernels/{id}", "code.remove"},
             {"POST", S "/kernels/{id}/run", "code.run"},
             {"POST", S "/kernels/{id}/interrupt", "code.interrupt"},
             {"POST", S "/kernels/{id}/restart", "code.restart"},
             {"PUT", S "/files/{path...}", "write"},
             {"DELETE", S "/files/{path...}", "delete"},
             {"PUT", S "/archive/{path...}", "archive.put"},
             {"GET", S "/ws", "socket"}};

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
    return "write";
}

/* NULL: it changes nothing. One that no row knows is a deed all the same. */
static const char *action_of(const struct http_request *request)
{
    const struct http_route *route = http_request_route(request);
    const char *method = http_request_method(request);
    if (strcmp(method, "POST") == 0 && strcmp(route->path, S "/files/{path...}") == 0)
        return file_action(request);
    for (size_t i = 0; i < sizeof DEEDS / sizeof DEEDS[0]; i++) {
        if (strcmp(route->path, DEEDS[i].path) == 0 && strcmp(method, DEEDS[i].method) == 0)
            return DEEDS[i].action;
    }
    bool is_read = strcmp(method, "GET") == 0 || strcmp(method, "HEAD") == 0 || route->carriers & HTTP_PROXIES;
    return is_read ? NULL : "guest";
}

/* Of a JSON body its command line; the rest may hold secrets. A body that is none is the guest's to refuse. */
static void describe_command(const struct http_request *request, struct text *text)
{
    struct error ignored = {0};
    json_t *body = http_request_json(request, &ignored), *argument;
    const char *line = json_string_value(json_object_get(body, "cmd"));
    const char *id = json_string_value(json_object_get(body, "id"));
    size_t i;
    if (id)
        text_append_format(text, " id=%.64s", id);
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
    static const char *const NAMED[] = {"id", "path"};
    const char *action = action_of(request);
    AUTO_TEXT text = {0};
    if (!action)
        return true;
    text_append_format(&text, "guest=1 route=%s %s", http_request_method(request), http_request_route(request)->path);
    for (size_t i = 0; i < sizeof NAMED / sizeof NAMED[0]; i++) {
        const char *value = http_request_parameter(request, NAMED[i]);
        if (value)
            text_append_format(&text, " %s=%.1024s", NAMED[i], value);
    }
    if (strcmp(action, "exec") == 0 && !plane_of(request)->omit_argv)
        describe_command(request, &text);
    return plane_audit(request, err, action, "%s", text.data);
}

/* ---- the relay ---- */

/* The guest finds the token where it was when that was the path, and in the header else: query and subprotocols lose
 * theirs on the way. */
static void relay(struct http_request *request)
{
    bool is_by_path = http_request_parameter(request, "sandbox") == NULL;
    AUTO_FREE char *bearer = memory_printf("Bearer %s", http_request_credential(request));
    const struct http_pair headers[] = {{"Authorization", bearer}};
    AUTO_TEXT target = {0};
    http_proxy_target(request, NULL, &target);
    const struct http_proxy_order order = {.target = target.data,
                                           .headers = headers,
                                           .header_count = is_by_path ? 0 : 1,
                                           .upgrades = true};
    port_relay(request, PORTS_GUEST, &order);
}

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
    error_set(&err, ERROR_UNAUTHENTICATED,
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
    if (record(request, &err))
        relay(request);
    else
        http_reply_error(request, &err);
    return true;
}
