/** websocket_fixture.h - the server of the WebSocket tests: it echoes, and obeys words that begin with !. */
#pragma once

#include "shared/base/clock.h"
#include "shared/base/memory.h"
#include "shared/base/text.h"
#include "shared/http/websocket.h"
#include "tests/unit/check.h"
#include "tls_fixture.h"
#include "websocket_client.h"

#include <pthread.h>
#include <stdatomic.h>

enum { PING_MS = 300, PONG_MS = 600, IDLE_SOCKETS = 1000, IDLE_BYTES_MAX = 20 * 1024 };

static struct http_server *server;
static atomic_uint accepted, closed, cuts, freed, authorized;
static atomic_size_t most_waiting;
static atomic_uint rested; /* closed sockets that were paused for ever */
static size_t spool_max_bytes;
static struct frame frame;
static char reply[1 << 16];

struct talk {
    struct http_websocket *socket;
    struct loop_timer *timer;
    size_t flood_left;
    bool is_closed; /* by us */
};

UNUSED_HELPER static bool wait_for(atomic_uint *counter, unsigned value, unsigned ms)
{
    double until = seconds_now() + ms / 1e3;
    while (atomic_load(counter) < value && seconds_now() < until)
        sleep_ms(2);
    return atomic_load(counter) >= value;
}

UNUSED_HELPER static void reset(void)
{
    atomic_store(&accepted, 0);
    atomic_store(&closed, 0);
    atomic_store(&cuts, 0);
    atomic_store(&freed, 0);
    atomic_store(&authorized, 0);
    atomic_store(&most_waiting, 0);
}

/* ---- the server's side ---- */

static void free_identity(void *identity)
{
    free(identity);
    atomic_fetch_add(&freed, 1);
}

static bool authorize(struct http_request *request, const struct http_route *route UNUSED, struct error *err)
{
    atomic_fetch_add(&authorized, 1);
    const char *credential = http_request_credential(request);
    if (credential == NULL || strcmp(credential, "good") != 0)
        return error_set(err, ERROR_UNAUTHENTICATED, "no valid credential");
    http_request_set_identity(request, memory_string(credential), free_identity, "tok_label");
    return true;
}

static void talk_free(struct talk *talk)
{
    loop_timer_cancel(talk->timer);
    free(talk);
}

static void on_closed(void *cookie)
{
    struct talk *talk = cookie;
    CHECK(!talk->is_closed);
    talk_free(talk);
    atomic_fetch_add(&closed, 1);
}

static void on_cut(struct http_websocket *socket, void *cookie, const struct error *err)
{
    AUTO_FREE char *word = memory_printf("last word: %s", error_code(err->kind));
    http_websocket_send(socket, true, word, strlen(word));
    talk_free(cookie);
    atomic_fetch_add(&cuts, 1);
}

static void note_waiting(size_t waiting)
{
    if (waiting > atomic_load(&most_waiting))
        atomic_store(&most_waiting, waiting);
}

static void flood(struct http_websocket *socket, struct talk *talk)
{
    static const char BLOCK[4096];
    size_t waiting = 0;
    while (talk->flood_left > 0 && waiting < HTTP_WEBSOCKET_FULL_BYTES) {
        waiting = http_websocket_send(socket, false, BLOCK, sizeof BLOCK);
        talk->flood_left--;
        note_waiting(waiting);
    }
}

static void on_drained(struct http_websocket *socket, void *cookie)
{
    flood(socket, cookie);
}

static void go_on(void *cookie)
{
    struct talk *talk = cookie;
    talk->timer = NULL;
    http_websocket_pause(talk->socket, false);
}

static void obey(struct http_websocket *socket, struct talk *talk, const char *command)
{
    struct loop *loop = http_request_loop(http_websocket_request(socket));
    if (strcmp(command, "!close") == 0) {
        talk->is_closed = true;
        http_websocket_send(socket, true, "before", 6);
        http_websocket_close(socket, 4400, "as you wish");
        CHECK(http_websocket_send(socket, true, "after", 5) == 0);
        talk_free(talk);
    } else if (strcmp(command, "!pause") == 0) {
        http_websocket_pause(socket, true);
        talk->timer = loop_timer_start(loop, clock_boot_ns() + 300000000, go_on, talk);
    } else if (strcmp(command, "!flood") == 0) {
        talk->flood_left = 4096; /* 16 MiB */
        flood(socket, talk);
    } else if (strcmp(command, "!overdo") == 0) {
        size_t waiting = 0;
        for (int i = 0; i < 10000; i++)
            waiting = http_websocket_send(socket, true, reply, 4096);
        atomic_store(&most_waiting, waiting);
    } else if (strcmp(command, "!small") == 0) {
        http_websocket_set_message_max(socket, 10);
    } else if (strcmp(command, "!identity") == 0) {
        struct http_request *request = http_websocket_request(socket);
        http_request_set_identity(request, memory_string("new"), free_identity, "tok_new");
        const char *who = http_request_identity(request);
        http_websocket_send(socket, true, who, strlen(who));
    }
}

static void on_message(struct http_websocket *socket, void *cookie, bool is_text, const char *data, size_t size)
{
    if (is_text && size > 0 && data[0] == '!')
        obey(socket, cookie, data);
    else
        note_waiting(http_websocket_send(socket, is_text, data, size));
}

static const struct http_websocket_events EVENTS = {on_message, on_drained, on_cut, on_closed};
static void on_rested(void *cookie)
{
    talk_free(cookie);
    atomic_fetch_add(&rested, 1);
}

static const struct http_websocket_events RESTING = {on_message, on_drained, NULL, on_rested};
static const struct http_websocket_events SILENT = {on_message, NULL, NULL, on_closed};

static void start(struct http_request *request, const struct http_websocket_events *events)
{
    struct error err = {0};
    if (!http_websocket_check(request, &err)) {
        http_reply_error(request, &err);
        return;
    }
    struct talk *talk = memory_new(sizeof *talk);
    talk->socket = http_websocket_accept(request, "parley.v1", HTTP_WEBSOCKET_MESSAGE_MAX, events, talk);
    CHECK(talk->socket != NULL && http_websocket_request(talk->socket) == request);
    CHECK(http_request_find(http_request_loop(request), http_request_number(request)) == request);
    atomic_fetch_add(&accepted, 1);
    http_reply_empty(request, 204); /* has no effect any more */
}

static void answer_ws(struct http_request *request)
{
    start(request, &EVENTS);
}

static void answer_silent(struct http_request *request)
{
    start(request, &SILENT);
}

static void answer_rest(struct http_request *request)
{
    struct talk *talk = memory_new(sizeof *talk);
    http_websocket_pause(http_websocket_accept(request, NULL, 100, &RESTING, talk), true);
}

/* Says hello before the handshake is through, and closes. */
static void answer_brief(struct http_request *request)
{
    struct talk *talk = memory_new(sizeof *talk);
    talk->is_closed = true;
    struct http_websocket *socket = http_websocket_accept(request, NULL, 1, &EVENTS, talk);
    http_websocket_send(socket, true, "hello", 5);
    http_websocket_close(socket, 1000, "");
    talk_free(talk);
}

static const struct http_route ROUTES[] = {
    {"GET", "/open", 0, NULL, 0, answer_ws},
    {"GET", "/silent", 0, NULL, 0, answer_silent},
    {"GET", "/brief", 0, NULL, 0, answer_brief},
    {"GET", "/rest", 0, NULL, 0, answer_rest},
    {"GET", "/s/{sandbox}/ws", HTTP_BEARER | HTTP_PATH | HTTP_QUERY | HTTP_PROTOCOL | HTTP_LATER, "", 0, answer_ws},
    {"GET", "/s/{sandbox}/strict", HTTP_BEARER | HTTP_PROTOCOL, "", 0, answer_ws},
};

UNUSED_HELPER static void server_start(unsigned ping_ms, unsigned pong_ms)
{
    struct http_server_options options = {.host = "127.0.0.1",
                                          .tls = tls_fixture(),
                                          .loops = 2,
                                          .name = "ws",
                                          .routes = ROUTES,
                                          .route_count = sizeof ROUTES / sizeof ROUTES[0],
                                          .authorize = authorize,
                                          .spool_max_bytes = spool_max_bytes,
                                          .ping_ms = ping_ms,
                                          .pong_ms = pong_ms};
    struct error err = {0};
    server = http_server_start(&options, &err);
    if (server == NULL) {
        fprintf(stderr, "no server: %s\n", err.message);
        exit(1);
    }
    client_port = http_server_port(server);
}

UNUSED_HELPER static void server_stop(unsigned grace_ms)
{
    http_server_stop(server, grace_ms);
    http_server_free(server);
}
