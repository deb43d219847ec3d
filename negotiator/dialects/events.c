/* events.c - GET /events: what happens, as server-sent events (protocol.md, 2), from the audit chain. A stream is told
 * that the chain grew, and reads on from its own place in bounded steps on the ledger thread: nothing waits in memory
 * for a slow reader, who is only further behind. */
#include "negotiator/dialects/plane.h"
#include "negotiator/leasing/events/event.h"
#include "negotiator/leasing/events/hub.h"
#include "shared/base/clock.h"
#include "shared/base/memory.h"
#include "shared/base/text.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

static const uint64_t TICK_NS = 10ULL * 1000000000;        /* a keepalive, and a look whether the key is still good */
static const uint64_t OTHERS_NS = 15ULL * 60 * 1000000000; /* of who cannot be looked up again */

/* One reading on its way over the ledger thread. */
struct trip {
    struct event_reading reading;
    struct loop *loop;
    uint64_t request;
    atomic_bool abandoned;
    struct error err;
};

/* A client that follows; the request's identity from the start on. */
struct following {
    struct principal principal; /* first: others read the identity as one */
    struct plane *plane;
    struct loop *loop;
    struct http_request *request;
    uint64_t number; /* the request's: all that the ledger thread knows of it */
    struct events_listener listener;
    atomic_bool poked;
    struct event_filter filter;
    uint64_t after;
    bool from_now, ready_told;
    bool until_head; /* follow=0: ends where nothing is left */
    bool all;        /* everybody's: the role is looked at again */
    bool is_known;   /* the key table knows the credential */
    bool behind;     /* there may be something after `after` */
    bool full;       /* the client has to read first */
    bool over;
    struct trip *trip; /* NULL: none is under way */
    struct loop_timer *timer;
    uint64_t ends_ns; /* clock_boot_ns */
};

static void read_on(struct following *f);

/* --- its end --- */

static void end(struct following *f)
{
    if (f->over)
        return;
    f->over = true;
    loop_timer_cancel(TAKE(f->timer));
    events_unlisten(f->plane->hub, &f->listener);
    if (f->trip)
        atomic_store(&f->trip->abandoned, true);
}

static void following_free(void *identity)
{
    end(identity);
    free(identity);
}

static void on_gone(void *cookie)
{
    end(cookie);
}

static struct following *find(uint64_t number)
{
    struct http_request *request = http_request_find(loop_current(), number);
    return request ? http_request_identity(request) : NULL;
}

static void add_error(struct text *text, const struct http_request *request, const struct error *err)
{
    json_t *error = http_error_json(request, err);
    AUTO_FREE char *line = error ? json_dumps(error, JSON_COMPACT) : NULL;
    json_decref(error);
    text_append_format(text, "event: error\ndata: %s\n\n", line ? line : "{}");
}

static void fail(struct following *f, const struct error *err)
{
    AUTO_TEXT text = {0};
    uint64_t number = f->number;
    add_error(&text, f->request, err);
    end(f);
    http_stream_send(f->request, text.data, text.length);
    if (find(number))
        http_stream_end(f->request);
}

static void on_cut(struct http_request *request, void *cookie, const struct error *err)
{
    AUTO_TEXT text = {0};
    add_error(&text, request, err);
    http_stream_send(request, text.data, text.length);
    end(cookie);
}

/* --- what it is sent --- */

/* Whether who asked may still see it. */
static bool is_allowed(const struct following *f, struct error *err)
{
    struct principal now;
    if (!f->is_known)
        return clock_boot_ns() < f->ends_ns ||
               error_set(err, ERROR_TOKEN_EXPIRED, "connect again, with Last-Event-ID, and show who you are");
    const char *credential = http_request_credential(f->request);
    if (!principal_table_find(f->plane->principals, credential ? credential : "", &now, err))
        return false;
    return (strcmp(now.name, f->principal.name) == 0 && (now.role == ROLE_ADMIN || !f->all)) ||
           error_set(err, ERROR_FORBIDDEN, "the key has another role now");
}

/* The stream may be gone after it: false. */
static bool send_text(struct following *f, const struct text *text)
{
    uint64_t number = f->number;
    if (text->length == 0)
        return true;
    f->full = http_stream_send(f->request, text->data, text->length) >= HTTP_STREAM_FULL_BYTES;
    return find(number) != NULL;
}

static void add_event(struct text *text, const json_t *event)
{
    AUTO_FREE char *line = json_dumps(event, JSON_COMPACT);
    if (line)
        text_append_format(text, "id: %" JSON_INTEGER_FORMAT "\nevent: %s\ndata: %s\n\n",
                           json_integer_value(json_object_get(event, "id")),
                           json_string_value(json_object_get(event, "type")), line);
}

static void add_all(struct text *text, struct following *f, const struct event_reading *reading, uint64_t began)
{
    size_t index;
    const json_t *event;
    if (!f->ready_told)
        text_append_format(text, "retry: 1000\nid: %" PRIu64 "\nevent: ready\ndata: {\"after\":%" PRIu64 "}\n\n", began,
                           began);
    f->ready_told = true;
    json_array_foreach (reading->events, index, event) {
        add_event(text, event);
    }
}

/* --- reading --- */

static void trip_free(struct trip *trip)
{
    event_reading_done(&trip->reading);
    free(trip);
}

static void deliver(void *cookie)
{
    struct trip *trip = cookie;
    struct event_reading *reading = &trip->reading;
    struct following *f = find(trip->request);
    struct error err = trip->err;
    AUTO_TEXT text = {0};
    if (f == NULL || f->over) {
        trip_free(trip);
        return;
    }
    f->trip = NULL;
    bool good = err.kind == ERROR_NONE && is_allowed(f, &err);
    if (good) {
        add_all(&text, f, reading, f->from_now ? reading->after : f->after);
        f->after = reading->after;
        f->from_now = false;
        f->behind = f->behind || !reading->at_head;
    }
    bool is_end = f->until_head && reading->at_head;
    trip_free(trip);
    if (!good) {
        fail(f, &err);
    } else if (send_text(f, &text)) {
        if (is_end) {
            end(f);
            http_stream_end(f->request);
        } else {
            read_on(f);
        }
    }
}

static enum kv_outcome read_rule(struct kv *kv, void *argument, struct error *err)
{
    struct trip *trip = argument;
    return event_read_step(kv, &trip->reading, err) ? KV_APPLIED : KV_FAILED;
}

static bool is_over(const void *argument)
{
    const struct trip *trip = argument;
    return trip->reading.done || atomic_load(&trip->abandoned);
}

static void was_read(void *argument, const struct error *err)
{
    struct trip *trip = argument;
    trip->err = *err;
    loop_post(trip->loop, deliver, trip);
}

static void read_on(struct following *f)
{
    if (f->over || f->trip || f->full || !f->behind)
        return;
    struct trip *trip = memory_new(sizeof *trip);
    trip->loop = f->loop;
    trip->request = f->number;
    trip->reading.filter = f->filter;
    trip->reading.after = f->after;
    trip->reading.from_now = f->from_now;
    f->behind = false;
    f->trip = trip;
    ledger_submit_long(f->plane->ledger, read_rule, is_over, was_read, trip);
}

/* --- what wakes it --- */

static void on_poke(void *cookie)
{
    struct following *f = find((uint64_t)(uintptr_t)cookie);
    if (f == NULL || f->over)
        return;
    atomic_store(&f->poked, false);
    f->behind = true;
    read_on(f);
}

/* Ledger thread; one post at a time is on its way. */
static void grew(void *cookie, uint64_t head UNUSED)
{
    struct following *f = cookie;
    if (!atomic_exchange(&f->poked, true))
        loop_post(f->loop, on_poke, (void *)(uintptr_t)f->number);
}

static void on_drained(struct http_request *request UNUSED, void *cookie)
{
    struct following *f = cookie;
    f->full = false;
    read_on(f);
}

static void on_tick(void *cookie)
{
    struct following *f = cookie;
    struct error err = {0};
    AUTO_TEXT text = {0};
    f->timer = NULL;
    if (!is_allowed(f, &err)) {
        fail(f, &err);
        return;
    }
    /* An id without data moves what the client resumes from, and shows nothing. */
    if (f->ready_told && !f->full)
        text_append_format(&text, ": keepalive\nid: %" PRIu64 "\n\n", f->after);
    if (send_text(f, &text))
        f->timer = loop_timer_start(f->loop, clock_boot_ns() + TICK_NS, on_tick, f);
}

/* --- the question --- */

static bool read_number(const char *name, const char *text, uint64_t *number, struct error *err)
{
    return text_parse_u64(text, strlen(text), INT64_MAX, number) ||
           error_set(err, ERROR_INVALID, "%s must be the id of an event, a number", name);
}

static bool read_place(const struct http_request *request, struct following *f, struct error *err)
{
    const char *header = http_request_header(request, "last-event-id"), *after = http_request_query(request, "after");
    const char *since = http_request_query(request, "since"), *follow = http_request_query(request, "follow");
    int64_t when;
    if (follow && !text_equal(follow, "0") && !text_equal(follow, "1"))
        return error_set(err, ERROR_INVALID, "follow must be 0 or 1");
    if (since && !clock_parse(since, &when))
        return error_set(err, ERROR_INVALID, "since must be a time like 2026-11-22T01:02:03.004Z");
    if (since)
        clock_format(f->filter.since, when);
    f->until_head = text_equal(follow, "0");
    f->from_now = header == NULL && after == NULL && since == NULL;
    if (header) /* a browser that connects again says both */
        return read_number("Last-Event-ID", header, &f->after, err);
    return after == NULL || read_number("after", after, &f->after, err);
}

static bool read_owner(const struct http_request *request, struct following *f, struct error *err)
{
    struct caller caller = {.remote = ""};
    if (!plane_whose(request, &caller, f->filter.principal, err))
        return false;
    f->principal = caller.principal;
    f->all = http_request_query(request, "all") || !text_equal(f->filter.principal, caller.principal.name);
    return true;
}

static bool read_filter(const struct http_request *request, struct event_filter *filter, struct error *err)
{
    const char *types = http_request_query(request, "types"), *thread = http_request_query(request, "thread");
    const char *sandbox = http_request_query(request, "sandbox");
    if (types && (!event_check_types(types, err) || !text_copy(filter->types, sizeof filter->types, types)))
        return false;
    if (thread && (!lease_is_thread_id(thread) || !text_copy(filter->thread_id, sizeof filter->thread_id, thread)))
        return error_set(err, ERROR_INVALID, "thread must be the id of one");
    if (sandbox &&
        (!random_is_id(sandbox, "sbx") || !text_copy(filter->sandbox_id, sizeof filter->sandbox_id, sandbox)))
        return error_set(err, ERROR_INVALID, "sandbox must be an id: sbx_ and 20 of a-z0-9");
    return true;
}

static bool read_question(const struct http_request *request, struct following *f, struct error *err)
{
    static const char *const NAMES[] = {"all",   "principal", "types",  "thread", "sandbox",
                                        "since", "after",     "follow", NULL};
    return http_request_query_only(request, NAMES, err) && read_owner(request, f, err) &&
           read_filter(request, &f->filter, err) && read_place(request, f, err);
}

static const struct http_stream_events STREAM_EVENTS = {
    .drained = on_drained, .gone = on_gone, .cut = on_cut, .cut_stalled = true};

static void start(struct http_request *request, struct following *f)
{
    struct principal known;
    const char *credential = http_request_credential(request);
    uint64_t number = f->number;
    f->is_known = principal_table_find(f->plane->principals, credential ? credential : "", &known, NULL);
    f->ends_ns = clock_boot_ns() + OTHERS_NS;
    f->behind = true;
    http_request_set_identity(request, f, following_free, f->principal.name);
    http_reply_header(request, "Cache-Control", "no-store");
    http_reply_header(request, "X-Accel-Buffering", "no");
    http_stream_start(request, 200, "text/event-stream", &STREAM_EVENTS, f);
    if (find(number) == NULL)
        return;
    if (strcmp(http_request_method(request), "HEAD") == 0) {
        end(f);
        http_stream_end(request);
        return;
    }
    f->timer = loop_timer_start(f->loop, clock_boot_ns() + TICK_NS, on_tick, f);
    read_on(f);
}

static void handle(struct http_request *request)
{
    struct error err = {0};
    struct following *f = memory_new(sizeof *f);
    f->plane = plane_of(request);
    f->request = request;
    f->number = http_request_number(request);
    f->loop = http_request_loop(request);
    f->listener = (struct events_listener){.grew = grew, .cookie = f};
    bool listens = false;
    if (read_question(request, f, &err)) {
        memcpy(f->listener.principal, f->principal.name, sizeof f->principal.name);
        listens = events_listen(f->plane->hub, &f->listener, &err);
    }
    if (listens) {
        start(request, f);
        return;
    }
    free(f);
    if (err.kind == ERROR_FORBIDDEN)
        plane_refuse(request, &err);
    else
        http_reply_error(request, &err);
}

struct plane_rows events_rows(void)
{
    static const struct http_route ROWS[] = {
        {"GET", "/events", HTTP_BEARER | HTTP_API_KEY, "viewer", 0, handle},
    };
    return (struct plane_rows){ROWS, sizeof ROWS / sizeof *ROWS};
}
