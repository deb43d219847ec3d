/* freezer.c - a change of cgroup.events is told by EPOLLPRI (cgroups(7)); a loop watches for what can be read, so an
 * epoll of its own stands between. */
#include "sandboxd/sandbox/freezer.h"

#include "sandboxd/sandbox/usage.h"
#include "shared/base/clock.h"
#include "shared/base/log.h"
#include "shared/base/memory.h"

#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

struct freezer {
    struct loop *loop;
    int freeze, events;
    /* While it is being stopped: */
    struct loop_watch *watch; /* the epoll */
    struct loop_timer *look, *bound;
    void (*stopped)(void *cookie, const struct error *err);
    void *cookie;
};

struct freezer *freezer_new(struct loop *loop, int freeze, int events)
{
    struct freezer *freezer = memory_new(sizeof *freezer);
    *freezer = (struct freezer){.loop = loop, .freeze = freeze, .events = events};
    return freezer;
}

static void stop_awaiting(struct freezer *freezer)
{
    loop_watch_free(TAKE(freezer->watch));
    loop_timer_cancel(TAKE(freezer->look));
    loop_timer_cancel(TAKE(freezer->bound));
    freezer->stopped = NULL;
}

void freezer_free(struct freezer *freezer)
{
    if (!freezer)
        return;
    stop_awaiting(freezer);
    free(freezer);
}

bool freezer_is_set(const struct freezer *freezer)
{
    char text[4] = "";
    return freezer->freeze >= 0 && pread(freezer->freeze, text, sizeof text - 1, 0) > 0 && text[0] == '1';
}

static bool set(const struct freezer *freezer, bool is_frozen, struct error *err)
{
    return pwrite(freezer->freeze, is_frozen ? "1" : "0", 1, 0) == 1 ||
           error_set_errno(err, ERROR_INTERNAL, "write cgroup.freeze");
}

bool freezer_go_on(struct freezer *freezer, struct error *err)
{
    stop_awaiting(freezer);
    return set(freezer, false, err);
}

static void finish(struct freezer *freezer, const struct error *err)
{
    void (*stopped)(void *cookie, const struct error *err) = freezer->stopped;
    struct error ignored = {0};
    stop_awaiting(freezer);
    if (err && !set(freezer, false, &ignored))
        log_error("sandbox", "what was being frozen cannot go on: %s", ignored.message);
    stopped(freezer->cookie, err);
}

/* Reading the file is what makes the next change an event again. */
static void on_change(void *cookie)
{
    struct freezer *freezer = cookie;
    if (usage_is_frozen(freezer->events))
        finish(freezer, NULL);
}

static void on_look(void *cookie)
{
    struct freezer *freezer = cookie;
    freezer->look = NULL;
    on_change(freezer);
}

static void on_bound(void *cookie)
{
    struct freezer *freezer = cookie;
    struct error err = {0};
    freezer->bound = NULL;
    error_set(&err, ERROR_TIMEOUT,
              "the sandbox's processes could not be stopped within %d s, as one waits inside the kernel; all goes on",
              FREEZER_BOUND_MS / 1000);
    finish(freezer, &err);
}

static bool await(struct freezer *freezer, struct error *err)
{
    AUTO_FD int epoll = epoll_create1(EPOLL_CLOEXEC);
    struct epoll_event event = {.events = EPOLLPRI};
    if (epoll < 0 || epoll_ctl(epoll, EPOLL_CTL_ADD, freezer->events, &event) != 0)
        return error_set_errno(err, ERROR_INTERNAL, "watch cgroup.events");
    freezer->watch = loop_watch_new(freezer->loop, TAKE_FD(epoll));
    loop_watch_readable(freezer->watch, on_change, freezer);
    return true;
}

static void on_failed(void *cookie)
{
    struct freezer *freezer = cookie;
    struct error err = {0};
    freezer->look = NULL;
    error_set(&err, ERROR_INTERNAL, "this sandbox cannot be frozen: its cgroup does not take it");
    finish(freezer, &err);
}

void freezer_stop(struct freezer *freezer, void (*stopped)(void *cookie, const struct error *err), void *cookie)
{
    struct error err = {0};
    uint64_t now = clock_boot_ns();
    freezer->stopped = stopped;
    freezer->cookie = cookie;
    bool is_under_way = set(freezer, true, &err) && await(freezer, &err);
    if (!is_under_way)
        log_error("sandbox", "freeze: %s", err.message);
    freezer->look = loop_timer_start(freezer->loop, now, is_under_way ? on_look : on_failed, freezer);
    freezer->bound = loop_timer_start(freezer->loop, now + FREEZER_BOUND_MS * UINT64_C(1000000), on_bound, freezer);
}
