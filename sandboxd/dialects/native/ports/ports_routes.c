/* ports_routes.c - the rows. */
#include "sandboxd/dialects/native/ports/ports_routes.h"

#include "sandboxd/dialects/fields.h"
#include "sandboxd/dialects/native/ports/ports_events.h"
#include "sandboxd/dialects/native/ports/ports_pass.h"
#include "sandboxd/dialects/native/ports/tunnel.h"
#include "sandboxd/dialects/policy_relay.h"
#include "sandboxd/dialects/port_relay.h"
#include "sandboxd/sandbox/ports/ports.h"
#include "shared/base/text.h"

/* ---- GET /ports ---- */

static void handle_list(struct http_request *request)
{
    static const char *const NAMES[] = {"watch", NULL};
    struct error err = {0};
    bool watch = false;
    if (!http_request_query_only(request, NAMES, &err) || !fields_query_switch(request, "watch", &watch, &err))
        http_reply_error(request, &err);
    else if (watch)
        ports_events_watch(request);
    else
        ports_events_once(request);
}

/* ---- GET ... /port/{port}/...: the form of OpenSandbox's clients ---- */

/* Newer clients ask the daemon for sandboxes within a sandbox: they are told, rather than that a path is wrong. */
static void handle_reserved(struct http_request *request)
{
    static const char ISOLATED[] = "there are no isolated sessions here: create another sandbox, or a session";
    const char *rest = http_request_parameter(request, "rest");
    struct error err = {0};
    error_set(&err, ERROR_NOT_FOUND, "%s", rest && text_starts_with(rest, "v1/isolated/") ? ISOLATED : "no such path");
    http_reply_error(request, &err);
}

/* What stands for one of our own services is never an app's, however it is written. */
static void handle_routed(struct http_request *request)
{
    struct error err = {0};
    uint16_t port;
    if (!ports_parse(http_request_parameter(request, "port"), &port, &err))
        http_reply_error(request, &err);
    else if (port_relay_is_reserved(port))
        handle_reserved(request);
    else
        ports_pass(request);
}

#define CAPABILITY (HTTP_BEARER | HTTP_PATH)
#define ROUTED     (CAPABILITY | HTTP_EXECD | HTTP_POURS | HTTP_PROXIES)
#define RESERVED   (CAPABILITY | HTTP_EXECD | HTTP_POURS)

static const struct http_route ROUTES[] = {
    {"GET", "/s/{sandbox}/ports", CAPABILITY, "port", 0, handle_list},
    {"*", "/s/{sandbox}/ports/{port}/{rest...}", CAPABILITY | HTTP_POURS | HTTP_PROXIES, "port", PORT_RELAY_BODY_BYTES,
     ports_pass},
    {"GET", "/s/{sandbox}/tunnels/{port}", CAPABILITY | HTTP_QUERY | HTTP_PROTOCOL, "port", 0, tunnel_start},
    {"*", "/s/{sandbox}/port/{port}", ROUTED, "port", PORT_RELAY_BODY_BYTES, handle_routed},
    {"*", "/s/{sandbox}/port/{port}/{rest...}", ROUTED, "port", PORT_RELAY_BODY_BYTES, handle_routed},
    {"*", "/s/{sandbox}/port/44772/proxy/{port}/{rest...}", ROUTED, "port", PORT_RELAY_BODY_BYTES, handle_routed},
    {"*", PORT_RELAY_EXECD_UNKNOWN, RESERVED, "", PORT_RELAY_BODY_BYTES, handle_reserved},
    {"*", PORT_RELAY_EGRESS_UNKNOWN, CAPABILITY | HTTP_EXECD | HTTP_EGRESS_AUTH, "", POLICY_RELAY_BODY_BYTES,
     policy_relay_handle},
};

const struct http_route *ports_routes(size_t *count)
{
    *count = sizeof ROUTES / sizeof *ROUTES;
    return ROUTES;
}
