/** loop.h - one event loop a thread (libh2o's evloop): messages between loops, timers, watched descriptors.
 *  Everything that a request reaches belongs to one loop; only loop_post may be called from another thread. */
#pragma once

#include "shared/base/cleanup.h"
#include "shared/base/error.h"

#include <stdbool.h>
#include <stdint.h>

struct loop;

/** The calling thread's loop; NULL when it has none. */
struct loop *loop_current(void) MUST_USE;

/** Runs run(cookie) on `loop`, later, in the order one sender posted. Any thread. What `cookie` points to belongs to
 *  the receiver from now on. Posts to a stopped loop still run, at the latest when it is freed. */
void loop_post(struct loop *loop, void (*run)(void *cookie), void *cookie);

/** 0.. in the order the server made its loops. */
unsigned loop_index(const struct loop *loop) MUST_USE;

struct loop_timer;

/** Calls fire(cookie) once on this loop when CLOCK_BOOTTIME reaches `boot_ns`; the timer is gone then. Loop thread. */
struct loop_timer *loop_timer_start(struct loop *loop, uint64_t boot_ns, void (*fire)(void *cookie), void *cookie);

/** Forgets a timer that has not fired; NULL is allowed. Loop thread. */
void loop_timer_cancel(struct loop_timer *timer);

struct loop_watch;

/** Watches `fd` (a pipe, socket, pidfd, eventfd; non-blocking; never a regular file, which epoll refuses), which now
 *  belongs to the watch. Nothing is called until one of the two below asks for it. Loop thread. */
struct loop_watch *loop_watch_new(struct loop *loop, int fd);

/** Calls ready(cookie) whenever the descriptor is readable or hung up (level-triggered); NULL stops. */
void loop_watch_readable(struct loop_watch *watch, void (*ready)(void *cookie), void *cookie);

/** Calls ready(cookie) once when the descriptor is writable or broken. NULL cannot cancel it: free the watch. */
void loop_watch_writable(struct loop_watch *watch, void (*ready)(void *cookie), void *cookie);

int loop_watch_fd(const struct loop_watch *watch) MUST_USE;

/** Stops watching and closes the descriptor; NULL is allowed. Allowed inside its own callback. Loop thread, before the
 *  loop ends (loop_ending at the latest). */
void loop_watch_free(struct loop_watch *watch);
DEFINE_AUTO(loop_watch)

/* ---- a loop of one's own: the server makes those of its threads itself ---- */

/** Makes a loop that nothing runs yet: posts are accepted and wait. ERROR_INTERNAL. */
struct loop *loop_new(unsigned index, struct error *err) MUST_USE;

/** Runs the posts that still wait, forgets the timers, frees. After loop_close, or before loop_open. NULL is allowed.
 */
void loop_free(struct loop *loop);
DEFINE_AUTO(loop)

/** Makes the event loop, on the thread that will run it: libh2o keeps buffers by thread. */
void loop_open(struct loop *loop);

/** Runs until loop_end. libh2o's sockets may be written and closed only inside of it: it frees a closed one at the
 * start of a turn, also when a callback of it is still pending, and only what ran inside leaves none pending. */
void loop_run(struct loop *loop);

/** Lets loop_run return after this turn. Loop thread. */
void loop_end(struct loop *loop);

/** Runs the waiting posts and destroys the event loop; every other socket on it is closed by then. Loop thread. */
void loop_close(struct loop *loop);
