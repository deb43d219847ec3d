/* loop_test.c - posts keep their order from each thread, timers fire in order and once, watches tell and can be freed
 * in their own callbacks. The loops are those of a server without routes. */
#include "fixture.h"

#include <fcntl.h>
#include <sys/eventfd.h>

enum { SENDERS = 4, POSTS = 2000 };

static struct loop *loop;
static atomic_uint done;

/* Runs `step` on the loop and waits until it has counted `done` up to `count`. */
static void on_loop(void (*step)(void *cookie), unsigned count)
{
    atomic_store(&done, 0);
    loop_post(loop, step, NULL);
    CHECK(wait_for(&done, count, 5000));
}

/* ---- posts ---- */

struct numbered {
    unsigned sender, number;
};

static unsigned next_number[SENDERS];
static bool in_order = true;

static void receive(void *cookie)
{
    struct numbered *numbered = cookie;
    in_order = in_order && next_number[numbered->sender] == numbered->number && loop_current() == loop;
    next_number[numbered->sender]++;
    free(numbered);
    atomic_fetch_add(&done, 1);
}

static void *send_many(void *cookie)
{
    unsigned sender = *(unsigned *)cookie;
    for (unsigned i = 0; i < POSTS; i++) {
        struct numbered *numbered = memory_new(sizeof *numbered);
        *numbered = (struct numbered){sender, i};
        loop_post(loop, receive, numbered);
    }
    return NULL;
}

static void test_posts(void)
{
    pthread_t threads[SENDERS];
    unsigned senders[SENDERS];
    atomic_store(&done, 0);
    for (unsigned i = 0; i < SENDERS; i++) {
        senders[i] = i;
        CHECK(pthread_create(&threads[i], NULL, send_many, &senders[i]) == 0);
    }
    for (unsigned i = 0; i < SENDERS; i++)
        pthread_join(threads[i], NULL);
    CHECK(wait_for(&done, SENDERS * POSTS, 5000));
    CHECK(in_order);
}

static void post_again(void *cookie)
{
    (void)cookie;
    if (atomic_fetch_add(&done, 1) < 9)
        loop_post(loop, post_again, NULL);
}

/* ---- timers ---- */

enum { TIMERS = 200 };

static struct loop_timer *timers[TIMERS];
static uint64_t due_ns[TIMERS], last_due_ns;
static unsigned fired, fired_cancelled;
static bool too_early, out_of_order;

static void fire(void *cookie)
{
    size_t index = (size_t)((struct loop_timer **)cookie - timers);
    uint64_t due = due_ns[index];
    too_early = too_early || clock_boot_ns() < due;
    out_of_order = out_of_order || due < last_due_ns;
    last_due_ns = due;
    fired_cancelled += timers[index] == NULL;
    fired++;
    /* In the middle: one cancels another, which is still to come. */
    if (fired == 10) {
        for (size_t i = 0; i < TIMERS; i++) {
            if (due_ns[i] > due && i % 3 == 0 && timers[i] != NULL) {
                loop_timer_cancel(timers[i]);
                timers[i] = NULL;
                fired++;
            }
        }
    }
    timers[index] = NULL;
    if (fired == TIMERS)
        atomic_fetch_add(&done, 1);
}

static void start_timers(void *cookie)
{
    (void)cookie;
    uint64_t now_ns = clock_boot_ns();
    for (size_t i = 0; i < TIMERS; i++) {
        due_ns[i] = i == 7 ? 0 : now_ns + (i * 7919 % TIMERS) * 500000;
        timers[i] = loop_timer_start(loop, due_ns[i], fire, &timers[i]);
    }
    loop_timer_cancel(loop_timer_start(loop, UINT64_MAX, fire, NULL));
    loop_timer_cancel(loop_timer_start(loop, 1, fire, NULL));
    loop_timer_cancel(NULL);
    (void)loop_timer_start(loop, UINT64_MAX, fire, NULL); /* never: freed with the loop */
}

static void again(void *cookie)
{
    (void)cookie;
    if (atomic_fetch_add(&done, 1) < 9)
        loop_timer_start(loop, 0, again, NULL); /* in the past: in the next turn, and the loop goes on */
}

/* ---- watches ---- */

static int pipe_fds[2];
static struct loop_watch *reader, *writer;
static size_t read_bytes;

static void on_readable(void *cookie)
{
    CHECK(cookie == &read_bytes);
    char data[4096];
    ssize_t got = read(loop_watch_fd(reader), data, sizeof data);
    if (got > 0) {
        read_bytes += (size_t)got;
        return;
    }
    CHECK(got == 0); /* hung up */
    loop_watch_free(reader);
    reader = NULL;
    atomic_fetch_add(&done, 1);
}

static void on_writable(void *cookie)
{
    unsigned *left = cookie;
    static const char DATA[4096];
    while (*left > 0) {
        ssize_t put = write(loop_watch_fd(writer), DATA, sizeof DATA);
        if (put <= 0) {
            loop_watch_writable(writer, on_writable, left);
            return;
        }
        --*left;
    }
    loop_watch_free(writer);
    writer = NULL;
}

static void start_pipe(void *cookie)
{
    static unsigned left = 100;
    (void)cookie;
    CHECK(pipe2(pipe_fds, O_CLOEXEC | O_NONBLOCK) == 0);
    reader = loop_watch_new(loop, pipe_fds[0]);
    writer = loop_watch_new(loop, pipe_fds[1]);
    loop_watch_readable(reader, on_readable, &read_bytes);
    loop_watch_writable(writer, on_writable, &left);
    loop_watch_free(NULL);
}

static unsigned wakes;

static void on_event(void *cookie)
{
    (void)cookie;
    /* Level-triggered: it comes back without another write, until it is stopped. */
    if (++wakes == 3) {
        loop_watch_readable(reader, NULL, NULL);
        atomic_fetch_add(&done, 1);
    }
}

static void start_event(void *cookie)
{
    (void)cookie;
    reader = loop_watch_new(loop, eventfd(1, EFD_CLOEXEC | EFD_NONBLOCK));
    loop_watch_readable(reader, on_event, NULL);
}

static void end_event(void *cookie)
{
    (void)cookie;
    CHECK(wakes == 3);
    loop_watch_free(reader);
    atomic_fetch_add(&done, 1);
}

int main(void)
{
    fixture_start((struct http_server_options){.loops = 1});
    loop = http_server_loop(fixture, 0);
    CHECK(loop_current() == NULL && http_server_loop(fixture, 1) == NULL);
    test_posts();
    on_loop(post_again, 10);
    on_loop(start_timers, 1);
    CHECK(!too_early && !out_of_order && fired_cancelled == 0);
    on_loop(again, 10);
    on_loop(start_pipe, 1);
    CHECK(read_bytes == 100 * 4096 && writer == NULL);
    on_loop(start_event, 1);
    sleep_ms(20);
    on_loop(end_event, 1);
    fixture_stop(1000);
    return check_done();
}
