/* mark_test.c - processes told apart by a supplementary group: children, orphans and sessions of their own are found
 * and killed, others are not; what forks all the time is ended as well. Needs root. */
#include "sandboxd/init/mark.h"

#include "tests/unit/check.h"

#include <errno.h>
#include <grp.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

enum { USER = 4711, PROCESSES_MAX = 60 };

static void become(gid_t mark)
{
    const struct rlimit few = {.rlim_cur = PROCESSES_MAX, .rlim_max = PROCESSES_MAX};
    if (setrlimit(RLIMIT_NPROC, &few) != 0)
        _exit(1);
    if (setgroups(1, &mark) != 0 || setresgid(USER, USER, USER) != 0 || setresuid(USER, USER, USER) != 0)
        _exit(1);
}

/* A marked child that has become what `run` makes of it, and then told so by a byte. */
static pid_t start(gid_t mark, void (*run)(int told))
{
    int ends[2];
    char byte;
    CHECK(pipe(ends) == 0);
    pid_t pid = fork();
    if (pid == 0) {
        close(ends[0]);
        become(mark);
        run(ends[1]);
        _exit(0);
    }
    close(ends[1]);
    CHECK(read(ends[0], &byte, 1) == 1);
    close(ends[0]);
    return pid;
}

static void wait_for_ever(int told)
{
    CHECK(write(told, "r", 1) == 1);
    for (;;)
        pause();
}

/* Its child has another session, and this one goes. */
static void leave_an_orphan(int told)
{
    if (fork() == 0) {
        CHECK(setsid() > 0);
        wait_for_ever(told);
    }
    _exit(0);
}

static void fork_all_the_time(int told)
{
    CHECK(write(told, "r", 1) == 1);
    for (;;) {
        if (fork() > 0)
            _exit(0); /* always another process than a moment ago */
        (void)poll(NULL, 0, 2);
    }
}

static void reap_all(void)
{
    while (waitpid(-1, NULL, 0) > 0 || errno == EINTR) {
    }
}

static void test_each_is_found_by_its_own(gid_t first)
{
    (void)start(first + 1, wait_for_ever);
    (void)start(first + 2, leave_an_orphan);
    for (int i = 0; i < 3000 && mark_signal(first + 2, 1, 0) > 1; i++)
        (void)poll(NULL, 0, 10); /* until the orphan's parent has left */
    CHECK(mark_signal(first + 1, 1, 0) == 1);
    CHECK(mark_signal(first + 2, 1, 0) == 1);
    CHECK(mark_signal(first + 3, 1, 0) == 0);
    CHECK(mark_signal(first, MARKS, 0) == 2);
    CHECK(mark_kill(first + 2, 1, USER));
    CHECK(mark_signal(first + 2, 1, 0) == 0);
    CHECK(mark_signal(first + 1, 1, 0) == 1);
    CHECK(mark_signal(first, MARKS, SIGTERM) == 1);
    reap_all();
    CHECK(mark_signal(first, MARKS, 0) == 0);
}

static void test_what_forks_all_the_time_is_ended(gid_t first)
{
    for (int i = 0; i < 4; i++)
        (void)start(first + 5, fork_all_the_time);
    pid_t other = start(first + 6, wait_for_ever);
    CHECK(mark_kill(first + 5, 1, USER));
    CHECK(mark_signal(first + 6, 1, 0) == 1); /* it goes on */
    CHECK(kill(other, SIGTERM) == 0);
    CHECK(mark_signal(first + 5, 1, 0) == 0);
    reap_all();
}

int main(void)
{
    gid_t first = 0;
    struct error err = {0};
    if (geteuid() != 0)
        check_skip("needs root");
    CHECK(prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) == 0);
    CHECK(mark_choose(&first, &err));
    CHECK(first >= 60100 && getgroups(0, NULL) == 0);
    test_each_is_found_by_its_own(first);
    test_what_forks_all_the_time_is_ended(first);
    return check_done();
}
