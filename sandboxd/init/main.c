/* main.c - parley-init, PID 1 of a sandbox: takes over what it inherits (inherit.h), waits for what it is to become,
 * then turns the loop until the sandbox ends. Exit code 0: told to terminate; 10: its hard deadline came; 1: it never
 * was ready.
 */
#include "sandboxd/init/become.h"
#include "sandboxd/init/connection.h"
#include "sandboxd/init/deadline.h"
#include "sandboxd/init/inherit.h"
#include "sandboxd/init/init.h"
#include "sandboxd/init/mark.h"
#include "sandboxd/init/reap.h"
#include "sandboxd/init/rights.h"
#include "sandboxd/init/spare.h"
#include "sandboxd/init/terminate.h"
#include "sandboxd/init/zygotes.h"
#include "shared/base/fd.h"
#include "shared/base/memory.h"
#include "shared/base/text.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/close_range.h>
#include <signal.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>

static bool parse_number(const char *text, uint64_t max, const char *what, uint64_t *value, struct error *err)
{
    if (!text_parse_u64(text, strlen(text), max, value))
        return error_set(err, ERROR_INVALID, "init: %s must be 0..%llu", what, (unsigned long long)max);
    return true;
}

/* Signals: PID 1 is spared all it has no handler for (pid_namespaces(7)); commands inherit the default. */
static void reset_signals(void)
{
    struct sigaction standard = {.sa_handler = SIG_DFL};
    for (int number = 1; number <= SIGRTMAX; number++)
        sigaction(number, &standard, NULL);
}

/* Nothing inherited reaches a command; 0, 1 and 2 are taken, so that no pipe ever gets these numbers. */
static bool set_up_descriptors(struct error *err)
{
    if (syscall(SYS_close_range, 3U, (unsigned)INT_MAX, CLOSE_RANGE_CLOEXEC) < 0)
        return error_set_errno(err, ERROR_INTERNAL, "close_range");
    for (int fd = 0; fd < 3; fd++) {
        if (fcntl(fd, F_GETFD) < 0 && open("/dev/null", O_RDWR) != fd)
            return error_set_errno(err, ERROR_INTERNAL, "open /dev/null");
    }
    return fd_set_nonblocking(INHERIT_FD_LISTEN, err);
}

/* A command has up to seven descriptors here, so init needs more than its commands do. */
static bool raise_file_limit(struct init *init, struct error *err)
{
    struct rlimit own;
    if (getrlimit(RLIMIT_NOFILE, &own) < 0)
        return error_set_errno(err, ERROR_INTERNAL, "getrlimit");
    own.rlim_cur = own.rlim_max;
    if (setrlimit(RLIMIT_NOFILE, &own) < 0)
        return error_set_errno(err, ERROR_INTERNAL, "setrlimit");
    init->files_most = own.rlim_max;
    init->files_limit = own.rlim_cur > INT_MAX ? INT_MAX : (int)own.rlim_cur;
    return true;
}

static bool read_filter(struct init *init, struct error *err)
{
    struct stat status;
    if (fstat(INHERIT_FD_SECCOMP, &status) < 0)
        return error_set_errno(err, ERROR_INTERNAL, "fstat of the seccomp program");
    size_t size = (size_t)status.st_size, count = size / sizeof(struct sock_filter);
    if (count == 0 || count > BPF_MAXINSNS || size % sizeof(struct sock_filter) != 0)
        return error_set(err, ERROR_INVALID, "init: a seccomp program of %zu bytes", size);
    AUTO_FREE struct sock_filter *program = memory_array(count, sizeof *program);
    if (lseek(INHERIT_FD_SECCOMP, 0, SEEK_SET) < 0)
        return error_set_errno(err, ERROR_INTERNAL, "lseek of the seccomp program");
    if (!fd_read_exact(INHERIT_FD_SECCOMP, program, size, err))
        return error_prefix(err, "the seccomp program");
    close(INHERIT_FD_SECCOMP);
    init->filter = (struct sock_fprog){.len = (unsigned short)count, .filter = TAKE(program)};
    return true;
}

static bool inherit_cgroups(struct init *init, uint64_t join_count, struct error *err)
{
    static int join[INHERIT_JOIN_MAX];
    struct stat status;
    init->run = INHERIT_FD_RUN;
    if (init->is_guest) {
        init->run = -1;
        return mark_choose(&init->first_mark, err);
    }
    if (fstat(init->run, &status) < 0 || !S_ISDIR(status.st_mode))
        return error_set(err, ERROR_INVALID, "init: descriptor %d is not the cgroup `run`", init->run);
    for (size_t i = 0; i < join_count; i++) {
        join[i] = INHERIT_FD_JOIN + (int)i;
        if (fcntl(join[i], F_GETFD) < 0)
            return error_set_errno(err, ERROR_INVALID, "init: cgroup.procs at descriptor %d", join[i]);
    }
    init->join = join;
    init->join_count = (size_t)join_count;
    return true;
}

/* All that can be done before it is known for whom. */
static bool set_up(struct init *init, int argc, char *const argv[], struct error *err)
{
    uint64_t join_count;
    if (prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) < 0)
        return error_set_errno(err, ERROR_INTERNAL, "PR_SET_DUMPABLE");
    init->is_guest = argc == 3 && strcmp(argv[2], INHERIT_GUEST) == 0;
    if (getpid() != 1 && !init->is_guest)
        return error_set(err, ERROR_INVALID, "init: must be process 1 of a pid namespace");
    if (argc != 2 && !init->is_guest)
        return error_set(err, ERROR_INVALID, "init: usage: init JOIN_COUNT [" INHERIT_GUEST "]");
    if (getpid() != 1 && prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) < 0)
        return error_set_errno(err, ERROR_INTERNAL, "PR_SET_CHILD_SUBREAPER");
    if (!parse_number(argv[1], INHERIT_JOIN_MAX, "the count of cgroups", &join_count, err))
        return false;
    reset_signals();
    TAILQ_INIT(&init->untold);
    zygotes_open(init);
    become_open(init);
    init->gift.fd = -1;
    init->childless = true;
    init->epoll = epoll_create1(EPOLL_CLOEXEC);
    if (init->epoll < 0)
        return error_set_errno(err, ERROR_INTERNAL, "epoll_create1");
    return rights_bound(err) && set_up_descriptors(err) && raise_file_limit(init, err) && read_filter(init, err) &&
           inherit_cgroups(init, join_count, err) && reap_open(init, err) && deadline_open(init, err);
}

static void turn(struct init *init)
{
    struct epoll_event event;
    /* One event a turn: what it frees is then in no other event at hand, and epoll(7) serves all in rotation. */
    int count = epoll_wait(init->epoll, &event, 1, init->reap_again || init->spare_due ? 0 : -1);
    if (count == 1) {
        struct watch *watch = event.data.ptr;
        watch->ready(init, watch, event.events);
    } else if (count == 0 && init->spare_due) {
        init->spare_due = false;
        spare_make(init);
    }
    if (init->reap_again)
        reap_children(init);
    if (terminate_is_done(init))
        init->leaving = true;
}

int main(int argc, char *argv[])
{
    static struct init init;
    struct error err = {0};
    if (!set_up(&init, argc, argv, &err) || !become(&init, &err) || !connection_listen(&init, INHERIT_FD_LISTEN, &err))
        return become_tell(&init, &err) ? 1 : 2;
    init.spare_due = true;
    if (!become_tell(&init, NULL))
        return 1;
    while (!init.leaving)
        turn(&init);
    connection_close(&init);
    terminate_clean_up(&init);
    return init.exit_code;
}
