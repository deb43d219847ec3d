/* loop_timer.c - a loop's deadlines: a binary heap over one timerfd on CLOCK_BOOTTIME. */
#include "shared/base/clock.h"
#include "shared/base/memory.h"
#include "shared/http/loop_internal.h"

#include <errno.h>
#include <sys/timerfd.h>

struct loop_timer {
    struct loop *loop;
    uint64_t boot_ns, sequence; /* of two with one time, the one started first fires first */
    size_t place;               /* in the heap */
    void (*fire)(void *cookie);
    void *cookie;
};

static bool is_before(const struct loop_timer *a, const struct loop_timer *b)
{
    return a->boot_ns != b->boot_ns ? a->boot_ns < b->boot_ns : a->sequence < b->sequence;
}

static void put(struct loop *loop, size_t place, struct loop_timer *timer)
{
    loop->timers[place] = timer;
    timer->place = place;
}

static void sift_up(struct loop *loop, struct loop_timer *timer)
{
    size_t place = timer->place;
    while (place > 0 && is_before(timer, loop->timers[(place - 1) / 2])) {
        put(loop, place, loop->timers[(place - 1) / 2]);
        place = (place - 1) / 2;
    }
    put(loop, place, timer);
}

static void sift_down(struct loop *loop, struct loop_timer *timer)
{
    size_t place = timer->place;
    for (;;) {
        size_t child = 2 * place + 1;
        if (child >= loop->timer_count)
            break;
        if (child + 1 < loop->timer_count && is_before(loop->timers[child + 1], loop->timers[child]))
            child++;
        if (!is_before(loop->timers[child], timer))
            break;
        put(loop, place, loop->timers[child]);
        place = child;
    }
    put(loop, place, timer);
}

/* A timer_fd that goes off too early costs one turn, so it is only ever moved forward in time. */
static void arm(struct loop *loop)
{
    if (loop->timer_count == 0)
        return;
    uint64_t first_ns = loop->timers[0]->boot_ns;
    if (first_ns == 0)
        first_ns = 1; /* 0 would disarm it */
    if (loop->armed_ns != 0 && loop->armed_ns <= first_ns)
        return;
    /* UINT64_MAX ns still fits time_t as seconds. */
    struct itimerspec at = {
        .it_value = {.tv_sec = (time_t)(first_ns / 1000000000), .tv_nsec = (long)(first_ns % 1000000000)}};
    if (timerfd_settime(loop->timer_fd, TFD_TIMER_ABSTIME, &at, NULL) == 0)
        loop->armed_ns = first_ns;
}

struct loop_timer *loop_timer_start(struct loop *loop, uint64_t boot_ns, void (*fire)(void *cookie), void *cookie)
{
    if (loop->timer_count == loop->timer_capacity) {
        loop->timer_capacity = loop->timer_capacity == 0 ? 64 : loop->timer_capacity * 2;
        loop->timers = memory_resize(loop->timers, loop->timer_capacity * sizeof(struct loop_timer *));
    }
    struct loop_timer *timer = memory_new(sizeof *timer);
    *timer = (struct loop_timer){
        .loop = loop, .boot_ns = boot_ns, .sequence = loop->timer_sequence++, .fire = fire, .cookie = cookie};
    put(loop, loop->timer_count, timer);
    loop->timer_count++;
    sift_up(loop, timer);
    arm(loop);
    return timer;
}

static void take_out(struct loop *loop, struct loop_timer *timer)
{
    struct loop_timer *last = loop->timers[--loop->timer_count];
    if (last == timer)
        return;
    put(loop, timer->place, last);
    sift_up(loop, last);
    sift_down(loop, last);
}

void loop_timer_cancel(struct loop_timer *timer)
{
    if (timer == NULL)
        return;
    take_out(timer->loop, timer);
    free(timer);
}

void loop_timers_run(struct loop *loop)
{
    uint64_t expirations;
    if (read(loop->timer_fd, &expirations, sizeof expirations) < 0 && errno == EINTR)
        return;
    loop->armed_ns = 0;
    uint64_t now_ns = clock_boot_ns();
    uint64_t first_new = loop->timer_sequence; /* one that a callback starts waits for the next turn */
    while (loop->timer_count > 0 && loop->timers[0]->boot_ns <= now_ns && loop->timers[0]->sequence < first_new) {
        struct loop_timer *timer = loop->timers[0];
        void (*fire)(void *) = timer->fire;
        void *cookie = timer->cookie;
        loop_timer_cancel(timer);
        fire(cookie);
    }
    arm(loop);
}

void loop_timers_done(struct loop *loop)
{
    for (size_t i = 0; i < loop->timer_count; i++)
        free(loop->timers[i]);
    free(loop->timers);
    loop->timers = NULL;
    loop->timer_count = loop->timer_capacity = 0;
}
