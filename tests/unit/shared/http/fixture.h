/** fixture.h - the server of these tests: a table of small handlers, and counters of what they saw. */
#pragma once

#include "client.h"
#include "shared/base/clock.h"
#include "shared/base/memory.h"
#include "shared/http/server.h"
#include "tests/unit/check.h"
#include "tls_fixture.h"

#include <pthread.h>
#include <stdatomic.h>

static atomic_uint authorized, handled, gone, drained, freed_identities;
static atomic_size_t most_waiting;
static struct http_server *fixture;

UNUSED_HELPER static bool wait_for(atomic_uint *counter, unsigned value, unsigned ms)
{
    double until = seconds_now() + ms / 1e3;
    while (atomic_load(counter) < value && seconds_now() < until)
        sleep_ms(2);
    return atomic_load(counter) >= value;
}

static void free_identity(void *identity)
{
    free(identity);
    atomic_fetch_add(&freed_identities, 1);
}

static bool fixture_authorize(struct http_request *request, const struct http_route *route, struct error *err)
{
    atomic_fetch_add(&authorized, 1);
    const char *credential = http_request_credential(request);
    if (credential == NULL || strcmp(credential, "bad") == 0)
        return error_set(err, ERROR_UNAUTHENTICATED, "no valid credential");
    http_request_set_identity(request, memory_string(credential), free_identity, "tok_label");
    if (strcmp(route->needs, "never") == 0)
        return error_set(err, ERROR_CAPABILITY_DENIED, "this needs never");
    return true;
}

static void answer_hello(struct http_request *request)
{
    atomic_fetch_add(&handled, 1);
    http_reply_json(request, 200, json_pack("{s:s}", "hello", "world"));
}

static void answer_echo(struct http_request *request)
{
    atomic_fetch_add(&handled, 1);
    size_t size;
    const char *body = http_request_body(request, &size);
    http_reply_bytes(request, 200, "application/octet-stream", body, size);
}

static void answer_size(struct http_request *request)
{
    atomic_fetch_add(&handled, 1);
    size_t size;
    const char *body = http_request_body(request, &size);
    unsigned sum = 0;
    for (size_t i = 0; i < size; i++)
        sum = sum * 31 + (unsigned char)body[i];
    http_reply_json(request, 200, json_pack("{s:I, s:I}", "size", (json_int_t)size, "sum", (json_int_t)sum));
}

static void answer_json(struct http_request *request)
{
    struct error err;
    json_t *object = http_request_json(request, &err);
    if (object == NULL)
        http_reply_error(request, &err);
    else
        http_reply_json(request, 200, object);
}

/* Says what the request looks like from inside. */
static void answer_mirror(struct http_request *request)
{
    const char *names[] = {"sandbox", "path", "x"};
    json_t *object = json_pack("{s:s?, s:s, s:s?, s:s}", "credential", http_request_credential(request), "id",
                               http_request_id(request), "q", http_request_query(request, "q"), "remote",
                               http_request_remote(request));
    for (size_t i = 0; i < 3; i++) {
        const char *value = http_request_parameter(request, names[i]);
        json_object_set_new(object, names[i], value != NULL ? json_string(value) : json_null());
    }
    http_reply_header(request, "X-Own", "1");
    http_reply_header(request, "X-Evil", "a\r\nInjected: 1");
    http_reply_json(request, 200, object);
}

struct later {
    struct loop *loop;
    uint64_t number;
};

static void answer_now(void *cookie)
{
    struct later *later = cookie;
    struct http_request *request = http_request_find(later->loop, later->number);
    if (request != NULL)
        http_reply_json(request, 200, json_pack("{s:b}", "late", true));
    free(later);
}

static struct later *make_later(const struct http_request *request)
{
    struct later *later = memory_new(sizeof *later);
    *later = (struct later){http_request_loop(request), http_request_number(request)};
    return later;
}

static void answer_slow(struct http_request *request)
{
    atomic_fetch_add(&handled, 1);
    const char *ms = http_request_query(request, "ms");
    uint64_t at_ns = clock_boot_ns() + strtoul(ms != NULL ? ms : "100", NULL, 10) * 1000000;
    loop_timer_start(http_request_loop(request), at_ns, answer_now, make_later(request));
}

static void *other_thread(void *cookie)
{
    struct later *later = cookie;
    loop_post(later->loop, answer_now, later);
    return NULL;
}

static void answer_thread(struct http_request *request)
{
    pthread_t thread;
    if (pthread_create(&thread, NULL, other_thread, make_later(request)) == 0)
        pthread_detach(thread);
}

static void count_gone(void *cookie)
{
    const struct later *later = cookie;
    if (http_request_find(later->loop, later->number) == NULL)
        atomic_fetch_add(&gone, 1);
    free(cookie);
}

static void answer_never(struct http_request *request)
{
    atomic_fetch_add(&handled, 1);
    http_request_when_gone(request, count_gone, make_later(request));
}

static void ignore_drained(struct http_request *request UNUSED, void *cookie UNUSED)
{
    atomic_fetch_add(&drained, 1);
}

static const struct http_stream_events IDLE_EVENTS = {.drained = ignore_drained, .gone = count_gone};

static void answer_idle_stream(struct http_request *request)
{
    atomic_fetch_add(&handled, 1);
    http_stream_start(request, 200, "text/event-stream", &IDLE_EVENTS, make_later(request));
    if (http_request_query(request, "first") != NULL)
        http_stream_send_json(request, HTTP_SSE, "first", json_pack("{s:i}", "n", 1));
}

/* Says why it was cut. */
static void say_last(struct http_request *request, void *cookie, const struct error *err)
{
    http_stream_send_json(request, HTTP_NDJSON, NULL, json_pack("{s:s}", "last", error_code(err->kind)));
    count_gone(cookie);
}

static const struct http_stream_events WORDY_EVENTS = {.drained = ignore_drained, .gone = count_gone, .cut = say_last};

static void answer_wordy_stream(struct http_request *request)
{
    atomic_fetch_add(&handled, 1);
    http_stream_start(request, 200, "application/x-ndjson", &WORDY_EVENTS, make_later(request));
    http_stream_send_json(request, HTTP_NDJSON, NULL, json_pack("{s:i}", "n", 1));
}

struct flood {
    size_t left; /* bytes */
};

static void flood_more(struct http_request *request, void *cookie)
{
    struct flood *flood = cookie;
    static const char LINE[4096] = {[0] = 'x', [4095] = '\n'};
    size_t waiting = 0;
    while (flood->left > 0 && waiting < HTTP_STREAM_FULL_BYTES) {
        waiting = http_stream_send(request, LINE, sizeof LINE);
        flood->left -= sizeof LINE;
        if (waiting > atomic_load(&most_waiting))
            atomic_store(&most_waiting, waiting);
    }
    if (flood->left > 0)
        return;
    free(flood);
    http_stream_end(request);
}

static void flood_gone(void *cookie)
{
    free(cookie);
    atomic_fetch_add(&gone, 1);
}

static const struct http_stream_events FLOOD_EVENTS = {.drained = flood_more, .gone = flood_gone};

static void answer_flood(struct http_request *request)
{
    struct flood *flood = memory_new(sizeof *flood);
    flood->left = 32u << 20;
    const char *kib = http_request_query(request, "kib");
    if (kib != NULL)
        flood->left = strtoul(kib, NULL, 10) * 1024;
    http_stream_start(request, 200, "application/x-ndjson", &FLOOD_EVENTS, flood);
    flood_more(request, flood);
}

static void answer_lines(struct http_request *request)
{
    static const struct http_stream_events NO_EVENTS = {0};
    http_stream_start(request, 201, "application/x-ndjson", &NO_EVENTS, NULL);
    for (int i = 0; i < 3; i++)
        http_stream_send_json(request, HTTP_NDJSON, NULL, json_pack("{s:i}", "n", i));
    http_stream_end(request);
}

static void answer_abort(struct http_request *request)
{
    http_stream_start(request, 200, "application/x-ndjson", &IDLE_EVENTS, NULL);
    http_stream_send(request, "half", 4);
    http_stream_abort(request);
}

static void answer_big(struct http_request *request)
{
    size_t size = 8u << 20;
    AUTO_FREE char *data = memory_new(size);
    memset(data, 'b', size);
    http_reply_bytes(request, 200, "application/octet-stream", data, size);
}

/* Unlimited, until it is asked for what is dear. */
static void answer_dear(struct http_request *request)
{
    struct error err = {0};
    if (http_request_query(request, "q") != NULL && !http_request_admit(request, &err))
        http_reply_error(request, &err);
    else
        answer_mirror(request);
}

static void answer_limited(struct http_request *request)
{
    struct error err;
    error_set(&err, ERROR_RATE_LIMITED, "slow down");
    http_reply_error(request, &err);
}

#define ANY_CARRIER (HTTP_BEARER | HTTP_PATH)

static const struct http_route ROUTES[] = {
    {"GET", "/hello", 0, NULL, 0, answer_hello},
    {"POST", "/echo", 0, NULL, 1 << 20, answer_echo},
    {"POST", "/json", 0, NULL, 1 << 20, answer_json},
    {"PUT", "/large", 0, NULL, 64 << 20, answer_size},
    {"GET", "/slow", 0, NULL, 0, answer_slow},
    {"GET", "/thread", 0, NULL, 0, answer_thread},
    {"GET", "/never", 0, NULL, 0, answer_never},
    {"GET", "/idle", 0, NULL, 0, answer_idle_stream},
    {"GET", "/wordy", 0, NULL, 0, answer_wordy_stream},
    {"GET", "/flood", 0, NULL, 0, answer_flood},
    {"GET", "/lines", 0, NULL, 0, answer_lines},
    {"GET", "/abort", 0, NULL, 0, answer_abort},
    {"GET", "/big", 0, NULL, 0, answer_big},
    {"GET", "/limited", 0, NULL, 0, answer_limited},
    {"GET", "/mirror/{x}", 0, NULL, 0, answer_mirror},
    {"GET", "/keys", HTTP_BEARER | HTTP_API_KEY, "user", 0, answer_mirror},
    {"GET", "/dear", HTTP_BEARER | HTTP_UNLIMITED, "user", 0, answer_dear},
    {"GET", "/preview", HTTP_BEARER | HTTP_QUERY, "port", 0, answer_mirror},
    {"GET", "/s/{sandbox}/info", ANY_CARRIER, "", 0, answer_mirror},
    {"POST", "/s/{sandbox}/exec", ANY_CARRIER, "process", 1 << 20, answer_echo},
    {"POST", "/s/{sandbox}/never", ANY_CARRIER, "never", 1 << 20, answer_echo},
    {"GET", "/s/{sandbox}/files/{path...}", ANY_CARRIER, "fs:ro", 0, answer_mirror},
    {"PUT", "/s/{sandbox}/files/{path...}", ANY_CARRIER, "fs:rw", 64 << 20, answer_size},
};

/* Starts the fixture with what `options` says besides the table; the port goes to client.h. */
UNUSED_HELPER static void fixture_start(struct http_server_options options)
{
    options.host = "127.0.0.1";
    options.name = "fixture";
    options.routes = ROUTES;
    options.route_count = sizeof ROUTES / sizeof ROUTES[0];
    options.authorize = fixture_authorize;
    if (options.loops == 0)
        options.loops = 2;
    struct error err = {0};
    options.tls = tls_fixture();
    fixture = http_server_start(&options, &err);
    if (fixture == NULL) {
        fprintf(stderr, "no server: %s\n", err.message);
        exit(1);
    }
    client_port = http_server_port(fixture);
}

UNUSED_HELPER static void fixture_stop(unsigned grace_ms)
{
    http_server_stop(fixture, grace_ms);
    http_server_free(fixture);
    fixture = NULL;
}
