/* files_pool.c - at most FILES_IDLE_MAX helpers wait, each watched, so that one that ends is not lent. */
#include "sandboxd/sandbox/files_pool.h"

#include "sandboxd/front_files/front_files.h"
#include "sandboxd/sandbox/files.h"
#include "shared/base/clock.h"
#include "shared/base/fd.h"
#include "shared/base/memory.h"
#include "shared/base/text.h"

#include <fcntl.h>
#include <sys/socket.h>

static const uint64_t IDLE_NS = UINT64_C(60) * 1000000000;

struct idle {
    struct idle *next;
    struct sandbox *sandbox;
    struct loop_watch *watch;
    struct loop_timer *timer;
};

/* Invariant: the sandbox has counted idle_count + running * FILES_CALL_DESCRIPTORS + left descriptors for it. */
struct files_pool {
    struct idle *idle;
    unsigned idle_count, running, left; /* left: files that are open after their calls */
};

static struct files_pool *pool_of(struct sandbox *sandbox)
{
    if (!sandbox->files)
        sandbox->files = memory_new(sizeof *sandbox->files);
    return sandbox->files;
}

void files_loan_release(struct files_loan *loan)
{
    if (atomic_fetch_sub(&loan->holders, 1) != 1)
        return;
    if (loan->socket >= 0) {
        fd_empty(loan->socket);
        close(loan->socket);
    }
    free(loan);
}

/* ---- idle ones ---- */

/* What it said unasked is not left to close(2). A helper that is taken has its socket twice, and goes on. */
static void idle_free(struct idle *idle, bool is_taken)
{
    struct files_pool *pool = idle->sandbox->files;
    struct idle **at = &pool->idle;
    while (*at != idle)
        at = &(*at)->next;
    *at = idle->next;
    pool->idle_count--;
    sandbox_count_descriptors(idle->sandbox, -1);
    loop_timer_cancel(idle->timer);
    if (!is_taken)
        fd_empty(loop_watch_fd(idle->watch));
    loop_watch_free(idle->watch);
    free(idle);
}

static void on_idle_too_long(void *cookie)
{
    struct idle *idle = cookie;
    idle->timer = NULL;
    idle_free(idle, false);
}

/* It has ended, or speaks unasked. */
static void on_idle_readable(void *cookie)
{
    idle_free(cookie, false);
}

static void keep(struct sandbox *sandbox, int socket)
{
    struct files_pool *pool = pool_of(sandbox);
    struct idle *idle = memory_new(sizeof *idle);
    idle->sandbox = sandbox;
    idle->watch = loop_watch_new(sandbox->loop, socket);
    idle->timer = loop_timer_start(sandbox->loop, clock_boot_ns() + IDLE_NS, on_idle_too_long, idle);
    loop_watch_readable(idle->watch, on_idle_readable, idle);
    idle->next = pool->idle;
    pool->idle = idle;
    pool->idle_count++;
    sandbox_count_descriptors(sandbox, 1);
}

/* -1 when there is none. */
static int take_idle(struct files_pool *pool)
{
    if (!pool->idle)
        return -1;
    int socket = fcntl(loop_watch_fd(pool->idle->watch), F_DUPFD_CLOEXEC, 0);
    idle_free(pool->idle, socket >= 0);
    return socket;
}

void files_pool_free(struct sandbox *sandbox)
{
    if (!sandbox->files)
        return;
    while (sandbox->files->idle)
        idle_free(sandbox->files->idle, false);
    /* What is lent comes back to nobody, and is counted then. */
    free(TAKE(sandbox->files));
}

/* ---- lending ---- */

static bool has_room(const struct sandbox *sandbox, const struct files_pool *pool, struct error *err)
{
    if (pool->running >= FILES_CALLS_MAX)
        return error_set(err, ERROR_NO_CAPACITY, "at most %d file operations run at once in a sandbox; try again",
                         FILES_CALLS_MAX);
    int64_t max = sandbox->all->descriptors_max;
    sandboxes_shed(sandbox->all);
    if (sandbox->descriptors + FILES_CALL_DESCRIPTORS > max / 4 ||
        sandbox->all->descriptors + FILES_CALL_DESCRIPTORS > max)
        return error_set(err, ERROR_NO_CAPACITY,
                         "too much runs at once for this host's descriptors (ulimit -n); try again");
    return true;
}

static int make_helper(struct sandbox *sandbox, struct error *err)
{
    int ends[2];
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends) != 0) {
        error_set_errno(err, ERROR_NO_CAPACITY, "make a socket for a file helper");
        return -1;
    }
    AUTO_FD int ours = ends[0];
    struct front_init_message message = {.type = FI_HELPER};
    message.as.helper.kind = FRONT_FILES_HELPER_KIND;
    return sandbox_send(sandbox, &message, ends[1], err) ? TAKE_FD(ours) : -1;
}

void files_pool_lend(struct sandbox *sandbox, struct verb *verb)
{
    struct files_loan *loan = verb->cookie;
    struct files_pool *pool = pool_of(sandbox);
    struct error err = {0};
    if (!has_room(sandbox, pool, &err)) {
        verb_finish(verb, &err);
        return;
    }
    if (!sandbox_wake(sandbox, verb))
        return;
    int socket = loan->wants_new ? -1 : take_idle(pool);
    loan->is_new = socket < 0;
    if (socket < 0)
        socket = make_helper(sandbox, &err);
    if (socket < 0) {
        verb_finish(verb, &err);
        return;
    }
    loan->socket = socket;
    pool->running++;
    sandbox_count_descriptors(sandbox, FILES_CALL_DESCRIPTORS);
    sandbox_touch(sandbox);
    verb_finish(verb, NULL);
}

/* ---- what comes back ---- */

struct returning {
    struct sandboxes *all;
    char sandbox_id[FRONT_LAUNCHER_ID_BYTES];
    int socket; /* of a helper that may serve again; or -1 */
    bool leaves_file;
};

static struct returning *returning_new(struct sandboxes *all, const char *sandbox_id)
{
    struct returning *returning = memory_new(sizeof *returning);
    returning->all = all;
    returning->socket = -1;
    if (!text_copy(returning->sandbox_id, sizeof returning->sandbox_id, sandbox_id))
        returning->sandbox_id[0] = 0;
    return returning;
}

static void take_back(void *cookie)
{
    struct returning *returning = cookie;
    AUTO_FD int socket = returning->socket;
    struct sandbox *sandbox = sandbox_find(returning->all, returning->sandbox_id);
    int closed = returning->leaves_file ? FILES_CALL_DESCRIPTORS - 1 : FILES_CALL_DESCRIPTORS;
    if (!sandbox || !sandbox->files || sandbox->files->running == 0) {
        atomic_fetch_sub_explicit(&returning->all->descriptors, closed, memory_order_relaxed);
    } else {
        sandbox->files->running--;
        sandbox->files->left += returning->leaves_file;
        sandbox_count_descriptors(sandbox, -closed);
        sandbox_touch(sandbox);
        if (socket >= 0 && !sandbox->ending && sandbox->files->idle_count < FILES_IDLE_MAX)
            keep(sandbox, TAKE_FD(socket));
    }
    if (socket >= 0)
        fd_empty(socket);
    free(returning);
}

void files_pool_return(struct sandboxes *all, const char *sandbox_id, int socket, bool leaves_file)
{
    AUTO_FD int held = socket;
    if (all->stopping) /* nothing is counted any more */
        return;
    struct returning *returning = returning_new(all, sandbox_id);
    returning->socket = TAKE_FD(held);
    returning->leaves_file = leaves_file;
    sandboxes_post(all, registry_owner(all->registry, sandbox_id), take_back, returning);
}

/* Its call has come back before: what one loop posts comes in order. */
static void forget_file(void *cookie)
{
    struct returning *returning = cookie;
    struct sandbox *sandbox = sandbox_find(returning->all, returning->sandbox_id);
    if (!sandbox || !sandbox->files || sandbox->files->left == 0) {
        atomic_fetch_sub_explicit(&returning->all->descriptors, 1, memory_order_relaxed);
    } else {
        sandbox->files->left--;
        sandbox_count_descriptors(sandbox, -1);
    }
    free(returning);
}

void files_file_closed(struct sandboxes *all, const char *sandbox_id)
{
    if (!all->stopping)
        sandboxes_post(all, registry_owner(all->registry, sandbox_id), forget_file, returning_new(all, sandbox_id));
}
