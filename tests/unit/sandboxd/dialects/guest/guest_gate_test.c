/* What the audit calls requests that go to a guest: each route that changes something has a name of its own there, so
 * that a route which comes later is not forgotten. */
#include "sandboxd/dialects/guest/guest_gate.h"

#include "sandboxd/dialects/execd/execd.h"
#include "sandboxd/dialects/execute/execute.h"
#include "sandboxd/dialects/native/files/files.h"
#include "sandboxd/dialects/native/kernels/kernels_routes.h"
#include "sandboxd/dialects/native/metrics.h"
#include "sandboxd/dialects/native/native.h"
#include "sandboxd/dialects/native/ports/ports_routes.h"
#include "sandboxd/dialects/native/socket/socket.h"
#include "sandboxd/dialects/port_relay.h"
#include "tests/unit/check.h"

#include <stdio.h>
#include <string.h>

static const struct http_route *(*const DIALECTS[])(size_t *count) = {
    native_routes, metrics_routes, kernels_routes, files_routes, socket_routes, ports_routes, execute_routes};

static void test_names(const struct http_route *routes, size_t count)
{
    CHECK(count > 0);
    for (size_t at = 0; at < count; at++) {
        const char *action = guest_gate_action(&routes[at]);
        bool is_known = !action || strcmp(action, GUEST_GATE_UNKNOWN) != 0;
        if (!is_known)
            (void)fprintf(stderr, "%s %s has no row in guest_gate.c\n", routes[at].method, routes[at].path);
        CHECK(is_known);
    }
}

static void test_every_route_has_a_name(void)
{
    size_t count = 0;
    for (size_t i = 0; i < sizeof DIALECTS / sizeof *DIALECTS; i++) {
        const struct http_route *routes = DIALECTS[i](&count);
        test_names(routes, count);
    }
    AUTO_FREE struct http_route *execd = execd_routes(&count);
    test_names(execd, count);
}

static const char *action_of(const char *method, const char *path, unsigned carriers)
{
    const struct http_route route = {.method = method, .path = path, .carriers = carriers};
    const char *action = guest_gate_action(&route);
    return action ? action : "none";
}

int main(void)
{
    test_every_route_has_a_name();
    CHECK(strcmp(action_of("POST", "/s/{sandbox}/exec", 0), "exec") == 0);
    CHECK(strcmp(action_of("POST", "/s/{sandbox}/upload/{path...}", 0), "write") == 0);
    CHECK(strcmp(action_of("GET", "/s/{sandbox}/files/{path...}", 0), "none") == 0);
    CHECK(strcmp(action_of("*", "/s/{sandbox}/ports/{port}/{rest...}", HTTP_PROXIES), "none") == 0);
    CHECK(strcmp(action_of("*", "/s/{sandbox}/port/{port}/{rest...}", HTTP_PROXIES), "none") == 0);
    CHECK(strcmp(action_of("*", PORT_RELAY_EXECD_UNKNOWN, 0), "none") == 0);
    CHECK(strcmp(action_of("POST", "/s/{sandbox}/of-tomorrow", 0), GUEST_GATE_UNKNOWN) == 0);
    return check_done();
}
