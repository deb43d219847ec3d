/* deadline.c - see deadline.h. Looking through 1,024 commands when the timer fires costs less than keeping a heap. */
#include "sandboxd/init/deadline.h"

#include "sandboxd/init/command.h"
#include "sandboxd/init/orders.h"
#include "sandboxd/init/terminate.h"
#include "sandboxd/init/zygotes.h"
#include "shared/base/clock.h"

#include <sys/epoll.h>
#include <sys/timerfd.h>
#include <time.h>

enum { DEADLINE_EXIT_CODE = 10 };

static void arm(struct init *init, uint64_t boot_ns)
{
    struct itimerspec when = {
        .it_value = {.tv_sec = (time_t)(boot_ns / 1000000000), .tv_nsec = (long)(boot_ns % 1000000000)}};
    timerfd_settime(init->timer.fd, TFD_TIMER_ABSTIME, &when, NULL); /* 0 disarms; a time that is over fires now */
    init->armed_boot_ns = boot_ns;
}

void deadline_consider(struct init *init, uint64_t due_boot_ns)
{
    if (due_boot_ns != 0 && (init->armed_boot_ns == 0 || due_boot_ns < init->armed_boot_ns))
        arm(init, due_boot_ns);
}

static bool is_due(uint64_t due_boot_ns, uint64_t now)
{
    return due_boot_ns != 0 && due_boot_ns <= now;
}

static void on_timer(struct init *init, struct watch *watch, uint32_t events)
{
    uint64_t expirations;
    (void)events;
    if (read(watch->fd, &expirations, sizeof expirations) < 0)
        return; /* it was moved since */
    uint64_t now = clock_boot_ns();
    arm(init, 0);
    orders_time_out(init, now);
    zygotes_time_out(init, now);
    for (size_t i = init->count; i > 0; i--) { /* from the last: one that has not begun leaves the table */
        uint64_t due = init->commands[i - 1]->due_boot_ns;
        if (is_due(due, now))
            command_time_out(init->commands[i - 1], init);
        else
            deadline_consider(init, due);
    }
    if (is_due(init->end_boot_ns, now))
        terminate_go_on(init);
    else if (init->end_boot_ns == 0 && is_due(init->deadline_boot_ns, now))
        terminate_begin(init, TERMINATE_GRACE_MS, DEADLINE_EXIT_CODE);
    deadline_consider(init, init->end_boot_ns != 0 ? init->end_boot_ns : init->deadline_boot_ns);
}

void deadline_set_hard(struct init *init, uint64_t boot_ns)
{
    init->deadline_boot_ns = boot_ns;
    if (init->end_boot_ns == 0)
        deadline_consider(init, boot_ns);
}

bool deadline_open(struct init *init, struct error *err)
{
    init->timer = (struct watch){.ready = on_timer, .fd = -1};
    int fd = timerfd_create(CLOCK_BOOTTIME, TFD_CLOEXEC | TFD_NONBLOCK);
    if (fd < 0)
        return error_set_errno(err, ERROR_INTERNAL, "timerfd_create");
    return watch_add(init, &init->timer, fd, EPOLLIN, err);
}
