/* interrupt.c - see interrupt.h. */
#include "sandboxd/sandbox/interrupt.h"

#include "shared/base/clock.h"

#include <pthread.h>
#include <signal.h>
#include <time.h>
#include <unistd.h>

static _Thread_local timer_t timer;
static _Thread_local enum { TIMER_UNTRIED, TIMER_MADE, TIMER_NONE } state;
static _Thread_local uint64_t armed_ns;

static void on_signal(int number)
{
    (void)number; /* it ends the system call; the clock tells that it did */
}

static int signal_number(void)
{
    return SIGRTMAX - 1;
}

static void set_handler(void)
{
    struct sigaction action = {.sa_handler = on_signal}; /* without SA_RESTART: that is the point */
    sigaction(signal_number(), &action, NULL);
}

static void make_timer(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    sigset_t one;
    struct sigevent event = {.sigev_notify = SIGEV_THREAD_ID, .sigev_signo = signal_number()};
    event._sigev_un._tid = gettid(); /* sigev_notify_thread_id, which this libc does not name (timer_create(2)) */
    pthread_once(&once, set_handler);
    sigemptyset(&one);
    sigaddset(&one, signal_number());
    bool is_made = timer_create(CLOCK_MONOTONIC, &event, &timer) == 0;
    state = is_made && pthread_sigmask(SIG_UNBLOCK, &one, NULL) == 0 ? TIMER_MADE : TIMER_NONE;
}

/* Again and again: the first may come just before the call. */
static void set_timer(long nanoseconds)
{
    struct timespec interval = {.tv_nsec = nanoseconds};
    struct itimerspec times = {.it_value = interval, .it_interval = interval};
    if (state == TIMER_MADE)
        timer_settime(timer, 0, &times, NULL);
}

void interrupt_arm(void)
{
    if (state == TIMER_UNTRIED)
        make_timer();
    armed_ns = clock_monotonic_ns();
    set_timer(INTERRUPT_MS * 1000000L);
}

bool interrupt_disarm(void)
{
    set_timer(0);
    return clock_monotonic_ns() - armed_ns >= INTERRUPT_MS * UINT64_C(1000000);
}
