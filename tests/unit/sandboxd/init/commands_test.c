/* commands_test.c - one command in a real parley-init: how it starts, what it gets, how it ends. */
#include "tests/unit/sandboxd/init/init_rig.h"

static void check_output(struct rig *rig, const char *script, const char *wanted)
{
    struct rig_result result = rig_run(rig, "out", NULL, script);
    CHECK(result.refused.kind == ERROR_NONE);
    CHECK_TEXT(result.output, wanted);
    CHECK_TEXT(result.errors, "");
    CHECK(result.exited.wait_status == 0);
    rig_result_done(&result);
}

static void test_output_and_exit(struct rig *rig)
{
    check_output(rig, "echo hello", "hello\n");
    struct rig_result result = rig_run(rig, "exit", NULL, "echo to stderr >&2; sleep 0.05; exit 42");
    CHECK_TEXT(result.errors, "to stderr\n");
    CHECK(WIFEXITED(result.exited.wait_status) && WEXITSTATUS(result.exited.wait_status) == 42);
    CHECK(result.exited.wall_ms >= 50 && result.exited.wall_ms < 10000);
    CHECK(result.exited.max_rss_bytes > 100000);
    CHECK(!result.exited.timed_out && !result.exited.killed);
    CHECK(llabs(result.exited.end_wall_ms - clock_wall_ms()) < 10000);
    rig_result_done(&result);
}

static void test_usage(struct rig *rig)
{
    /* The work is done by an orphan that the command did not wait for: only the cgroup knows of it. */
    struct rig_result result =
        rig_run(rig, "usage", NULL,
                "(setsid sh -c 'i=0; while [ $i -lt 200000 ]; do i=$((i+1)); done; echo x' &) | cat >/dev/null");
    CHECK(result.exited.cpu_ms >= 20);
    rig_result_done(&result);
}

static void test_confinement(struct rig *rig)
{
    check_output(rig, "id -u; id -g; id -G; umask; pwd", "1000\n1000\n1000\n0022\n/\n");
    check_output(rig,
                 "grep -E '^(Cap|NoNewPrivs|Seccomp:|SigBlk|SigIgn|NSpgid|NSsid)' /proc/self/status | "
                 "grep -v NS | tr -d '\\t'",
                 "SigBlk:0000000000000000\nSigIgn:0000000000000000\n"
                 "CapInh:0000000000000000\nCapPrm:0000000000000000\nCapEff:0000000000000000\n"
                 "CapBnd:0000000000000000\nCapAmb:0000000000000000\nNoNewPrivs:1\nSeccomp:2\n");
    struct rig_result result = rig_run(rig, "node", NULL, "mknod /tmp/parley-test-node p; ls /proc/1/fd /proc/1/cwd");
    CHECK(strstr(result.errors, "Block device required") != NULL);
    CHECK(strstr(result.errors, "/proc/1/fd") != NULL && strstr(result.errors, "Permission denied") != NULL);
    CHECK_TEXT(result.output, "");
    rig_result_done(&result);
    /* Signals from inside do not reach init, and stdin is the null device. */
    check_output(rig, "kill -TERM 1 2>/dev/null || echo refused; cat", "refused\n");
    check_output(rig, "[ $(ps -o sid= -p $$) = $$ ] && echo leads", "leads\n");
}

static void test_descriptors(struct rig *rig)
{
    struct rig_start with_stdin = {.with_stdin = 1};
    check_output(rig, "ls /proc/$$/fd", "0\n1\n2\n");
    struct rig_result result = rig_run(rig, "fds", &(struct rig_start){0}, "ulimit -n; readlink /proc/$$/fd/0");
    CHECK_TEXT(result.output, "512\n/dev/null\n"); /* init's own limit is higher */
    rig_result_done(&result);
    /* The user's programs open their streams anew. */
    result = rig_run(rig, "anew", NULL, "echo one > /proc/self/fd/1; echo two > /proc/self/fd/2");
    CHECK_TEXT(result.output, "one\n");
    CHECK_TEXT(result.errors, "two\n");
    rig_result_done(&result);

    struct front_init_message message;
    int fds[FI_FDS_MAX];
    CHECK(rig_start_shell(rig, "stdin", &with_stdin, "ls /proc/$$/fd; wc -c"));
    CHECK(rig_expect(rig, FI_STARTED, "stdin", &message, fds));
    CHECK(message.as.started.has_stdin == 1 && message.as.started.pid > 1);
    CHECK_TEXT(message.as.started.title, "/bin/sh -c ls /proc/$$/fd; wc -c");
    for (int i = 0; i < FI_FDS; i++)
        CHECK(((fcntl(fds[i], F_GETFL) & O_NONBLOCK) != 0) ==
              (i != FI_FD_STDOUT_MEMORY && i != FI_FD_STDERR_MEMORY && i != FI_FD_STDIN_MEMORY));
    CHECK(fcntl(fds[FI_FD_STDOUT_MEMORY], F_GET_SEALS) == (F_SEAL_SHRINK | F_SEAL_SEAL));
    CHECK(fcntl(fds[FI_FD_STDIN_MEMORY], F_GET_SEALS) == F_SEAL_SHRINK); /* its end is a seal that the front adds */
    CHECK(write(fds[FI_FD_STDIN_PIPE], "12345", 5) == 5);
    close(fds[FI_FD_STDIN_PIPE]); /* not the end: init keeps one */
    char *before = rig_read(fds[FI_FD_STDOUT_PIPE], 6);
    CHECK_TEXT(before, "0\n1\n2\n");
    CHECK(rig_name(rig, FI_EOF, "stdin"));
    char *after = rig_read(fds[FI_FD_STDOUT_PIPE], SIZE_MAX);
    CHECK_TEXT(after, "5\n");
    CHECK(rig_expect(rig, FI_EXITED, "stdin", &message, NULL));
    CHECK(rig_name(rig, FI_EOF, "stdin")); /* again: nothing */
    CHECK(rig_name(rig, FI_FORGET, "stdin"));
    for (int i = 0; i < FI_FDS; i++) {
        if (i != FI_FD_STDIN_PIPE)
            close(fds[i]);
    }
    free(before);
    free(after);
}

static void test_variables_and_cwd(struct rig *rig)
{
    char one[] = "A=1 2", path[] = "PATH=/nowhere::/usr/bin:/bin", *variables[] = {one, path, NULL};
    struct rig_start how = {.cwd = "/usr/bin", .variables = variables};
    struct rig_result result = rig_run(rig, "env", &how, "env | sort | grep -v ^_=; pwd");
    CHECK_TEXT(result.output, "A=1 2\nPATH=/nowhere::/usr/bin:/bin\nPWD=/usr/bin\n/usr/bin\n");
    rig_result_done(&result);
    result = rig_run(rig, "cwd1", &(struct rig_start){.cwd = "/no/such"}, "pwd");
    CHECK(result.refused.kind == ERROR_INVALID);
    CHECK_TEXT(result.refused.message, "cwd /no/such: No such file or directory");
    rig_result_done(&result);
    /* As uid 1000, not as init: a folder of root's, mode 0700. */
    result = rig_run(rig, "cwd2", &(struct rig_start){.cwd = "/root"}, "pwd");
    CHECK(result.refused.kind == ERROR_INVALID);
    CHECK_TEXT(result.refused.message, "cwd /root: Permission denied");
    rig_result_done(&result);
}

static void check_refused(struct rig *rig, const char *name, enum error_kind kind, const char *wanted)
{
    char *copy = strdup(name), *arguments[] = {copy, NULL};
    struct front_init_message message = {0};
    CHECK(rig_start(rig, "refused", NULL, arguments));
    CHECK(rig_expect(rig, 0, "refused", &message, NULL));
    CHECK(message.type == FI_REFUSED && message.as.refused.error.kind == kind);
    CHECK_TEXT(message.as.refused.error.message, wanted);
    free(copy);
}

static void test_refusals(struct rig *rig)
{
    check_refused(rig, "no-such-command", ERROR_NOT_FOUND, "command not found: no-such-command");
    check_refused(rig, "/no/such", ERROR_NOT_FOUND, "command not found: /no/such");
    check_refused(rig, "/etc/passwd", ERROR_FORBIDDEN, "cannot execute /etc/passwd: Permission denied");
    check_refused(rig, "/etc", ERROR_FORBIDDEN, "cannot execute /etc: Permission denied");
    check_refused(rig, "", ERROR_NOT_FOUND, "command not found: its name is empty");
    check_output(rig, "echo the id is free again", "the id is free again\n");
    char *argument = malloc(131000), echo[] = "echo", *arguments[21] = {echo};
    memset(argument, 'x', 130999);
    argument[130999] = 0;
    for (int i = 1; i < 20; i++)
        arguments[i] = argument;
    struct front_init_message message = {0};
    CHECK(rig_start(rig, "big", NULL, arguments) == false); /* over 2 MiB: sealing refuses it */
    arguments[16] = NULL;
    CHECK(rig_start(rig, "big", NULL, arguments)); /* just below */
    CHECK(rig_expect(rig, FI_STARTED, "big", &message, NULL));
    CHECK(strlen(message.as.started.title) == sizeof message.as.started.title - 1);
    CHECK(rig_name(rig, FI_KILL, "big"));
    CHECK(rig_expect(rig, FI_EXITED, "big", &message, NULL));
    CHECK(rig_name(rig, FI_FORGET, "big"));
    free(argument);
}

static void test_signals(struct rig *rig)
{
    static const int numbers[] = {SIGTERM, SIGINT, SIGKILL, SIGUSR1};
    char sleep[] = "sleep", time[] = "100", *arguments[] = {sleep, time, NULL};
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        struct front_init_message message;
        /* dash handles SIGINT, and a child of it that got it before execve forgets it. */
        if (numbers[i] == SIGINT)
            CHECK(rig_start(rig, "signal", NULL, arguments));
        else
            CHECK(rig_start_shell(rig, "signal", NULL, "sleep 100; echo not reached"));
        CHECK(rig_expect(rig, FI_STARTED, "signal", &message, NULL));
        CHECK(rig_signal(rig, "signal", numbers[i]));
        CHECK(rig_expect(rig, FI_EXITED, "signal", &message, NULL));
        CHECK(WIFSIGNALED(message.as.exited.wait_status) && WTERMSIG(message.as.exited.wait_status) == numbers[i]);
        CHECK(!message.as.exited.timed_out && !message.as.exited.killed);
        CHECK(rig_signal(rig, "signal", SIGTERM)); /* ended: nothing */
        CHECK(rig_name(rig, FI_FORGET, "signal"));
    }
    CHECK(rig_signal(rig, "unknown", SIGTERM));
    CHECK(rig_wait_cgroups(rig, 0)); /* the sleeps were in the process group */
}

static void test_timeout(struct rig *rig)
{
    struct rig_start how = {.timeout_ms = 300};
    /* A tree that left session and group behind, and forks on and on. */
    struct rig_result result = rig_run(
        rig, "tree", &how,
        "bomb() { for i in 1 2 3 4; do (setsid sh -c 'trap \"\" TERM HUP; (sleep 1000 &) ; sleep 1000' &); done; }; "
        "bomb; setsid sh -c 'while :; do (sleep 0.01 &); done' & echo up; sleep 1000");
    CHECK_TEXT(result.output, "up\n");
    CHECK(result.exited.timed_out && !result.exited.killed);
    CHECK(WIFSIGNALED(result.exited.wait_status) && WTERMSIG(result.exited.wait_status) == SIGKILL);
    CHECK(result.exited.wall_ms >= 300 && result.exited.wall_ms < 5000);
    rig_result_done(&result);
    CHECK(rig_wait_cgroups(rig, 0)); /* nobody escaped */
    result = rig_run(rig, "intime", &how, "exit 3");
    CHECK(!result.exited.timed_out && WEXITSTATUS(result.exited.wait_status) == 3);
    rig_result_done(&result);
}

static void test_kill(struct rig *rig)
{
    struct front_init_message message;
    CHECK(rig_start_shell(rig, "kill", NULL, "setsid sleep 1000 & sleep 1000"));
    CHECK(rig_expect(rig, FI_STARTED, "kill", &message, NULL));
    CHECK(rig_name(rig, FI_FORGET, "kill")); /* running: ignored */
    CHECK(rig_name(rig, FI_KILL, "kill"));
    CHECK(rig_expect(rig, FI_EXITED, "kill", &message, NULL));
    CHECK(message.as.exited.killed && !message.as.exited.timed_out);
    CHECK(WIFSIGNALED(message.as.exited.wait_status) && WTERMSIG(message.as.exited.wait_status) == SIGKILL);
    CHECK(rig_name(rig, FI_FORGET, "kill"));
    CHECK(rig_wait_cgroups(rig, 0));
}

static void test_left_behind(struct rig *rig)
{
    /* What a command leaves running lives on, and KILL of the ended command still finds it. */
    struct rig_result result = rig_run(rig, "daemon", NULL, "setsid sleep 0.5 >/dev/null 2>&1 & echo started");
    CHECK_TEXT(result.output, "started\n");
    CHECK(result.exited.wall_ms < 450);
    CHECK(rig_wait_cgroups(rig, 1)); /* forgotten, yet alive */
    rig_result_done(&result);
    CHECK(rig_wait_cgroups(rig, 0));

    struct front_init_message message;
    CHECK(rig_start_shell(rig, "daemon", NULL, "setsid sleep 1000 & echo $!"));
    CHECK(rig_expect(rig, FI_EXITED, "daemon", &message, NULL));
    CHECK(rig_wait_cgroups(rig, 1));
    CHECK(rig_name(rig, FI_KILL, "daemon"));
    CHECK(rig_wait_cgroups(rig, 0));
    CHECK(rig_name(rig, FI_FORGET, "daemon"));
}

static void test_idempotent_start(struct rig *rig)
{
    struct front_init_message first, second;
    CHECK(rig_start_shell(rig, "same", NULL, "sleep 0.2; exit 7"));
    CHECK(rig_expect(rig, FI_STARTED, "same", &first, NULL));
    CHECK(rig_start_shell(rig, "same", NULL, "exit 8"));
    CHECK(rig_expect(rig, FI_STARTED, "same", &second, NULL));
    CHECK(first.as.started.pid == second.as.started.pid);
    CHECK(rig_expect(rig, FI_EXITED, "same", &first, NULL));
    CHECK(WEXITSTATUS(first.as.exited.wait_status) == 7);
    CHECK(rig_start_shell(rig, "same", NULL, "exit 8"));
    CHECK(rig_expect(rig, FI_STARTED, "same", &second, NULL));
    CHECK(rig_expect(rig, FI_EXITED, "same", &second, NULL));
    CHECK(WEXITSTATUS(second.as.exited.wait_status) == 7);
    CHECK(rig_name(rig, FI_FORGET, "same"));
    struct rig_result result = rig_run(rig, "same", NULL, "exit 8");
    CHECK(WEXITSTATUS(result.exited.wait_status) == 8);
    rig_result_done(&result);
}

static void test_cgroups(struct rig *rig)
{
    struct rig_result result = rig_run(rig, "v2", NULL, "grep ^0: /proc/self/cgroup");
    CHECK(strstr(result.output, strrchr(rig->cgroup, '/')) != NULL && strstr(result.output, "/run/e") != NULL);
    rig_result_done(&result);
    if (rig->v1[0] == 0)
        return;
    result = rig_run(rig, "v1", NULL, "grep :pids: /proc/self/cgroup");
    CHECK(strstr(result.output, strrchr(rig->v1, '/')) != NULL);
    rig_result_done(&result);
}

static void read_line(char *to, size_t size, pid_t pid, const char *file, const char *key)
{
    char path[64], line[256];
    snprintf(path, sizeof path, "/proc/%d/%s", pid, file);
    FILE *from = fopen(path, "re");
    to[0] = 0;
    while (from && fgets(line, sizeof line, from))
        if (strncmp(line, key, strlen(key)) == 0)
            snprintf(to, size, "%.*s", (int)strcspn(line, "\n"), line);
    if (from)
        fclose(from);
}

static int count_descriptors(pid_t pid)
{
    struct rig other = {.pid = pid};
    return rig_count_fds(&other);
}

static void test_spare(struct rig *rig)
{
    char line[256];
    struct front_init_message message;
    pid_t spare = rig_wait_spare(rig);
    CHECK(spare > 0 && count_descriptors(spare) == 4); /* the standard three and what it waits on */
    static const char *const rights[][2] = {{"Uid:", "Uid:\t201000\t201000\t201000\t201000"},
                                            {"CapPrm:", "CapPrm:\t0000000000000000"},
                                            {"CapBnd:", "CapBnd:\t0000000000000000"},
                                            {"NoNewPrivs:", "NoNewPrivs:\t1"},
                                            {"Seccomp:", "Seccomp:\t2"}};
    for (size_t i = 0; i < sizeof rights / sizeof *rights; i++) {
        read_line(line, sizeof line, spare, "status", rights[i][0]);
        CHECK_TEXT(line, rights[i][1]);
    }
    check_output(rig, "for p in /proc/[0-9]*; do [ $(cat $p/comm) = init-spare ] && ls $p/fd; done 2>/dev/null; true",
                 "");
    spare = rig_wait_spare(rig);
    CHECK(rig_start_shell(rig, "spare", NULL, "exec sleep 1000")); /* it is what the next command becomes */
    CHECK(rig_expect(rig, FI_STARTED, "spare", &message, NULL));
    CHECK(rig_name(rig, FI_KILL, "spare"));
    CHECK(rig_expect(rig, FI_EXITED, "spare", &message, NULL));
    CHECK(message.as.exited.killed && kill(spare, 0) < 0 && errno == ESRCH);
    CHECK(rig_name(rig, FI_FORGET, "spare"));
    /* Commands may end it; the next one does without. (This one becomes it, so that none is just dying after it.) */
    CHECK(rig_wait_spare(rig) > 0);
    struct rig_result result = rig_run(rig, "all", NULL, "sleep 0.1; kill -9 -1");
    rig_result_done(&result);
    check_output(rig, "echo still here", "still here\n");
    spare = rig_wait_spare(rig);
    CHECK(spare > 0 && kill(spare, SIGKILL) == 0);
    while (kill(spare, 0) == 0) /* before it is dead, its order would be lost on it, as on any command just started */
        usleep(1000);
    check_output(rig, "echo and here", "and here\n");
    CHECK(rig_wait_spare(rig) > 0);
    CHECK(rig_wait_cgroups(rig, 0));
}

int main(void)
{
    struct rig rig;
    struct rlimit files;
    getrlimit(RLIMIT_NOFILE, &files);
    files.rlim_cur = 512;
    setrlimit(RLIMIT_NOFILE, &files);
    rig_open_connected(&rig, NULL);
    CHECK(rig_wait_spare(&rig) > 0);
    int open_at_first = rig_count_fds(&rig);
    test_output_and_exit(&rig);
    test_usage(&rig);
    test_confinement(&rig);
    test_descriptors(&rig);
    test_variables_and_cwd(&rig);
    test_refusals(&rig);
    test_signals(&rig);
    test_timeout(&rig);
    test_kill(&rig);
    test_left_behind(&rig);
    test_idempotent_start(&rig);
    test_cgroups(&rig);
    test_spare(&rig);
    CHECK(rig_wait_cgroups(&rig, 0));
    CHECK(open_at_first > 8 && rig_wait_fds(&rig, open_at_first)); /* all is closed again */
    CHECK(rig_close(&rig));
    return check_done();
}
