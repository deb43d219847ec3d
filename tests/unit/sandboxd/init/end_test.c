/* end_test.c - how a sandbox ends: asked to, forced to, at its hard deadline; and what init refuses to start with. */
#include "tests/unit/sandboxd/init/init_rig.h"

/* Starts a script and waits for its first word, so that its traps are set. */
static void start_and_wait(struct rig *rig, const char *id, const char *script)
{
    struct front_init_message message;
    int fds[FI_FDS_MAX];
    CHECK(rig_start_shell(rig, id, NULL, script));
    CHECK(rig_expect(rig, FI_STARTED, id, &message, fds));
    char *output = rig_read(fds[FI_FD_STDOUT_PIPE], 3);
    CHECK_TEXT(output, "up\n");
    free(output);
    for (int i = 0; i < FI_FD_STDIN_PIPE; i++)
        close(fds[i]);
}

static void test_graceful(void)
{
    struct rig rig;
    struct front_init_message message;
    rig_open_connected(&rig, NULL);
    start_and_wait(&rig, "polite", "trap 'exit 3' TERM; echo up; while :; do sleep 0.02; done");
    start_and_wait(&rig, "stopped", "echo up; sleep 100");
    CHECK(rig_signal(&rig, "stopped", SIGSTOP));
    uint64_t begin = clock_monotonic_ns();
    CHECK(rig_terminate(&rig, 15000));
    CHECK(rig_expect(&rig, FI_EXITED, "polite", &message, NULL));
    CHECK(WIFEXITED(message.as.exited.wait_status) && WEXITSTATUS(message.as.exited.wait_status) == 3);
    CHECK(message.as.exited.killed);
    CHECK(rig_wait(&rig) == 0);
    CHECK(clock_monotonic_ns() - begin < 10000000000);
    CHECK(rig_close(&rig));
}

static void test_empty(void)
{
    struct rig rig;
    struct front_init_message message;
    rig_open_connected(&rig, NULL);
    struct rig_result result = rig_run(&rig, "before", NULL, "true");
    rig_result_done(&result);
    CHECK(rig_terminate(&rig, UINT64_MAX));
    CHECK(rig_wait(&rig) == 0);
    CHECK(!rig_expect(&rig, FI_CURRENT, "", &message, NULL));
    CHECK(rig_close(&rig));
}

static void test_forced(void)
{
    struct rig rig;
    struct front_init_message message = {0};
    rig_open_connected(&rig, NULL);
    start_and_wait(&rig, "stubborn",
                   "trap '' TERM; (trap '' TERM; setsid sh -c 'trap \"\" TERM; sleep 1000') & echo up; sleep 1000; "
                   "while :; do sleep 1; done");
    uint64_t begin = clock_monotonic_ns();
    CHECK(rig_terminate(&rig, 60000));
    /* While it is ending, nothing new starts; and the grace may be made shorter. */
    CHECK(rig_start_shell(&rig, "late", NULL, "true"));
    CHECK(rig_expect(&rig, 0, "late", &message, NULL));
    CHECK(message.type == FI_REFUSED && message.as.refused.error.kind == ERROR_GONE);
    CHECK(rig_terminate(&rig, 200));
    CHECK(rig_expect(&rig, FI_EXITED, "stubborn", &message, NULL));
    CHECK(WIFSIGNALED(message.as.exited.wait_status) && WTERMSIG(message.as.exited.wait_status) == SIGKILL);
    CHECK(message.as.exited.killed && !message.as.exited.timed_out);
    CHECK(rig_wait(&rig) == 0);
    uint64_t took = clock_monotonic_ns() - begin;
    CHECK(took > 200000000 && took < 10000000000);
    CHECK(rig_close(&rig));
}

/* Until no process is left in any of its groups; false when some live on. */
static bool is_empty(const struct rig *rig)
{
    char path[600], text[64] = "";
    snprintf(path, sizeof path, "%s/cgroup.events", rig->cgroup);
    for (int i = 0; i < 3000 && !strstr(text, "populated 0"); i++) {
        if (i > 0)
            usleep(10000);
        int fd = open(path, O_RDONLY | O_CLOEXEC);
        ssize_t size = read(fd, text, sizeof text - 1);
        text[size > 0 ? size : 0] = 0;
        close(fd);
    }
    return strstr(text, "populated 0") != NULL;
}

static void test_fork_bomb(void)
{
    struct rig rig;
    rig_open_connected(&rig, NULL);
    if (rig.v1[0]) {
        char path[600];
        snprintf(path, sizeof path, "%s/pids.max", rig.v1);
        rig_write_file(path, "150");
        start_and_wait(&rig, "bomb",
                       "trap '' TERM; echo up; f() { (sleep 0.01; f) & (sleep 0.01; f) & }; f; wait; sleep 9");
        CHECK(rig_terminate(&rig, 300));
        CHECK(rig_wait(&rig) == 0);
        CHECK(is_empty(&rig));
    }
    /* On a busy machine so many are not gone in the time init gives them: then it leaves first, and their groups'
     * directories are the launcher's to remove. */
    (void)rig_close(&rig);
}

/* v1 lets anybody move in, however many there are: commands are refused all the same. */
static void test_no_more_processes(void)
{
    enum { MAX = 6, ASKED = 12 };
    struct rig rig;
    rig_open_connected(&rig, NULL);
    if (rig.v1[0]) {
        char path[600], id[16];
        snprintf(path, sizeof path, "%s/pids.max", rig.v1);
        rig_write_file(path, "6");
        int started = 0, refused = 0;
        for (int i = 0; i < ASKED; i++) {
            struct front_init_message message;
            snprintf(id, sizeof id, "sleep%d", i);
            CHECK(rig_start_shell(&rig, id, NULL, "exec sleep 60"));
            CHECK(rig_expect(&rig, 0, id, &message, NULL));
            started += message.type == FI_STARTED;
            refused += message.type == FI_REFUSED && message.as.refused.error.kind == ERROR_NO_CAPACITY;
        }
        CHECK(started >= 2 && started <= MAX && refused == ASKED - started);
        CHECK(rig_terminate(&rig, 300));
        CHECK(rig_wait(&rig) == 0);
    }
    CHECK(rig_close(&rig));
}

static void test_deadline(void)
{
    struct rig rig;
    struct front_init_message message;
    rig_open_connected(&rig, &(struct rig_options){.deadline_boot_ns = clock_boot_ns() + 3600000000000});
    start_and_wait(&rig, "polite", "trap 'exit 3' TERM; echo up; while :; do sleep 0.02; done");
    message = (struct front_init_message){.type = FI_DEADLINE, .as.deadline.boot_ns = 0};
    CHECK(rig_send(&rig, &message, -1));
    message.as.deadline.boot_ns = clock_boot_ns() + 300000000;
    CHECK(rig_send(&rig, &message, -1));
    /* Nobody needs to be there. */
    close(rig.connection);
    rig.connection = -1;
    uint64_t begin = clock_monotonic_ns();
    CHECK(rig_wait(&rig) == 10);
    uint64_t took = clock_monotonic_ns() - begin;
    CHECK(took > 200000000 && took < 8000000000);
    CHECK(rig_close(&rig));

    rig_open_connected(&rig, &(struct rig_options){.deadline_boot_ns = clock_boot_ns() + 200000000});
    CHECK(rig_wait(&rig) == 10);
    CHECK(rig_close(&rig));
}

static void test_deadline_in_welcome(void)
{
    struct rig rig;
    struct front_init_message message;
    uint64_t deadline = clock_boot_ns() + 3600000000000;
    rig_open_connected(&rig, &(struct rig_options){.deadline_boot_ns = deadline});
    rig_connect(&rig);
    CHECK(rig_expect(&rig, FI_WELCOME, "", &message, NULL) && message.as.welcome.deadline_boot_ns == deadline);
    CHECK(rig_close(&rig));
}

static void test_no_delegation(void)
{
    struct rig rig;
    rig_open_connected(&rig, &(struct rig_options){.without_cgroup_delegation = 1});
    struct rig_result result = rig_run(&rig, "nowhere", NULL, "true");
    CHECK(result.refused.kind == ERROR_INTERNAL);
    CHECK_TEXT(result.refused.message, "mkdir run/e1: Permission denied");
    rig_result_done(&result);
    CHECK(rig_close(&rig));
}

/* Outside of a pid namespace it says so and does nothing. */
static void test_not_pid_one(void)
{
    int control[2];
    struct error err = {0};
    CHECK(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, control) == 0);
    int program = rig_open_program();
    pid_t pid = fork();
    if (pid == 0) {
        char name[] = "init", *arguments[] = {name, NULL}, *none[] = {NULL};
        int far = fcntl(program, F_DUPFD_CLOEXEC, 100), end = fcntl(control[1], F_DUPFD_CLOEXEC, 100);
        dup2(end, INHERIT_FD_CONTROL);
        syscall(SYS_execveat, far, "", arguments, none, 0x1000 /* AT_EMPTY_PATH */);
        _exit(92);
    }
    close(control[1]);
    close(program);
    CHECK(!rig_hear(control[0], LI_BARRIER, &err));
    CHECK_TEXT(err.message, "init: must be process 1 of a pid namespace");
    close(control[0]);
    int status;
    CHECK(waitpid(pid, &status, 0) == pid && WIFEXITED(status) && WEXITSTATUS(status) == 1);
}

int main(void)
{
    test_graceful();
    test_empty();
    test_forced();
    test_fork_bomb();
    test_no_more_processes();
    test_deadline();
    test_deadline_in_welcome();
    test_no_delegation();
    test_not_pid_one();
    return check_done();
}
