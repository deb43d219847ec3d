/* streams.c - one post to each loop, which looks through its own requests; then one more, behind what these had asked
 * of sandboxes on other loops. */
#include "sandboxd/front/streams.h"

#include "sandboxd/dialects/plane.h"
#include "sandboxd/front/authorize.h"
#include "shared/base/clock.h"
#include "shared/base/memory.h"

#include <pthread.h>
#include <stdatomic.h>

static const uint64_t SWEEP_NS = UINT64_C(15) * 1000000000;

struct streams {
    struct sandboxes *sandboxes;
    pthread_mutex_t mutex; /* guards loops: a loop that has ended gets no post */
    struct loop *loops[SANDBOXES_LOOPS_MAX];
    struct loop_timer *sweeps[SANDBOXES_LOOPS_MAX]; /* each its loop's */
};

struct streams *streams_new(struct sandboxes *sandboxes)
{
    struct streams *streams = memory_new(sizeof *streams);
    streams->sandboxes = sandboxes;
    pthread_mutex_init(&streams->mutex, NULL);
    return streams;
}

void streams_free(struct streams *streams)
{
    if (!streams)
        return;
    pthread_mutex_destroy(&streams->mutex);
    free(streams);
}

/* NULL when it is none of a client with a token. */
static const struct caller *find_caller(const struct http_request *request)
{
    const struct http_route *route = http_request_route(request);
    return route && route->needs ? caller_of(request) : NULL;
}

static void end(struct http_request *request, const struct caller *caller, const char *reason, const struct error *err)
{
    struct plane_refusal refusal = {.action = "stream.cut", .reason = reason};
    plane_record_refusal(request, &caller->claims, &refusal, err);
    http_request_revoke(request, err);
}

/* ---- marks ---- */

/* One batch on its way over the loops, twice: requests first, then what they had asked for. */
struct cut {
    struct streams *streams;
    struct marks_batch *batch;
    bool revokes;     /* not only what was spent */
    bool is_second;   /* all are through for the first time */
    atomic_uint left; /* loops that are not through, and one for who posts */
};

static void cut_through(struct cut *cut);

static void cut_post(struct cut *cut, void (*run)(void *cookie))
{
    struct streams *streams = cut->streams;
    cut->left = 1;
    pthread_mutex_lock(&streams->mutex);
    for (unsigned i = 0; i < SANDBOXES_LOOPS_MAX; i++)
        if (streams->loops[i]) {
            cut->left++;
            loop_post(streams->loops[i], run, cut);
        }
    pthread_mutex_unlock(&streams->mutex);
    cut_through(cut);
}

/* What a request asked of a sandbox of this loop before it was cut stood before this post. What still waits for its
 * sandbox to be reached was judged before the marks, and must not begin after they are acknowledged. */
static void refuse_waiting(void *cookie)
{
    struct cut *cut = cookie;
    if (cut->revokes)
        sandboxes_refuse_waiting(cut->streams->sandboxes);
    cut_through(cut);
}

static void cut_through(struct cut *cut)
{
    if (atomic_fetch_sub(&cut->left, 1) != 1)
        return;
    if (!cut->is_second) {
        cut->is_second = true;
        cut_post(cut, refuse_waiting);
        return;
    }
    marks_cut_done(cut->batch);
    free(cut);
}

/* As of when it was judged, as in the second look: being spent by a refresh (a mark in force only from a moment after)
 * cuts nothing that began before, also when that mark comes late, or once more from a negotiator that began anew. */
static void cut_one(void *cookie, struct http_request *request)
{
    const struct cut *cut = cookie;
    const struct caller *caller = find_caller(request);
    if (!caller || !marks_batch_refuses(cut->batch, &caller->claims, caller->judged_ms))
        return;
    struct error err = {0};
    authorize_set_revoked(&err);
    end(request, caller, "revoked", &err);
}

static void cut_loop(void *cookie)
{
    http_requests_each(loop_current(), cut_one, cookie);
    cut_through(cookie);
}

static bool note_revoking(void *cookie, const struct mark *mark)
{
    bool *revokes = cookie;
    *revokes = mark->from_ms == 0;
    return !*revokes;
}

void streams_cut(void *context, struct marks_batch *batch)
{
    struct cut *cut = memory_new(sizeof *cut);
    cut->streams = context;
    cut->batch = batch;
    marks_batch_each(batch, note_revoking, &cut->revokes);
    cut_post(cut, cut_loop);
}

/* ---- sandboxes that ended ---- */

/* A socket may have nothing under way in its sandbox that would tell it. */
static void end_orphan(void *cookie, struct http_request *request)
{
    struct registry *registry = cookie;
    const struct caller *caller = find_caller(request);
    AUTO_REGISTRY_VIEW view = {0};
    if (!caller || !(http_request_route(request)->carriers & (HTTP_LATER | HTTP_PROXIES)) ||
        !registry_find(registry, caller->claims.sandbox_id, &view) || view.state != REGISTRY_ENDED)
        return;
    struct error err = {0};
    error_set(&err, ERROR_GONE, "the sandbox has ended: %s", view.reason);
    http_request_revoke(request, &err);
}

static void end_orphans(void *cookie)
{
    struct streams *streams = cookie;
    http_requests_each(loop_current(), end_orphan, sandboxes_registry(streams->sandboxes));
}

void streams_sandbox_ended(struct streams *streams)
{
    pthread_mutex_lock(&streams->mutex);
    for (unsigned i = 0; i < SANDBOXES_LOOPS_MAX; i++)
        if (streams->loops[i])
            loop_post(streams->loops[i], end_orphans, streams);
    pthread_mutex_unlock(&streams->mutex);
}

/* ---- time ---- */

/* How long after the token's end: a socket gets fresh tokens itself, and what a port serves has no end, so none. Both
 * know that themselves, but a guest's (dialects/guest/guest_gate.h). */
static int64_t allowance_s(const struct http_request *request)
{
    bool is_endless = http_request_route(request)->carriers & (HTTP_LATER | HTTP_PROXIES | HTTP_PROTOCOL);
    return CAPABILITY_LEEWAY_S + (is_endless ? 0 : PLANE_AFTER_EXPIRY_S);
}

static void sweep_one(void *cookie, struct http_request *request)
{
    const int64_t *now_ms = cookie;
    const struct caller *caller = find_caller(request);
    struct error err = {0};
    if (!caller)
        return;
    if (*now_ms / 1000 > caller->claims.expires_at + allowance_s(request)) {
        error_set(&err, ERROR_TOKEN_EXPIRED, "the token has expired");
        end(request, caller, "expired", &err);
    } else if (!authorize_has_contact(plane_of(request), &caller->claims, *now_ms, &err)) {
        end(request, caller, "no_contact", &err);
    }
}

static void start_sweep(struct streams *streams, struct loop *loop);

static void sweep(void *cookie)
{
    struct loop *loop = loop_current();
    int64_t now_ms = clock_wall_ms();
    http_requests_each(loop, sweep_one, &now_ms);
    start_sweep(cookie, loop);
}

static void start_sweep(struct streams *streams, struct loop *loop)
{
    streams->sweeps[loop_index(loop)] = loop_timer_start(loop, clock_boot_ns() + SWEEP_NS, sweep, streams);
}

/* ---- loops ---- */

static void set_loop(struct streams *streams, const struct loop *at, struct loop *loop)
{
    pthread_mutex_lock(&streams->mutex);
    streams->loops[loop_index(at)] = loop;
    pthread_mutex_unlock(&streams->mutex);
}

void streams_loop_started(struct streams *streams, struct loop *loop)
{
    set_loop(streams, loop, loop);
    start_sweep(streams, loop);
}

void streams_loop_ending(struct streams *streams, struct loop *loop)
{
    set_loop(streams, loop, NULL);
    loop_timer_cancel(TAKE(streams->sweeps[loop_index(loop)]));
}
