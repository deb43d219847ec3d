/* zygotes_test.c - commands that are forked from a zygote, by one that keeps the rules and by all that break them. */
#include "tests/unit/sandboxd/init/fake_zygote.h"
#include "tests/unit/sandboxd/init/init_rig.h"

#include <linux/close_range.h>

static int own_program = -1;

/* This program, as the front gives it: an open file of its own. */
static int open_program(void)
{
    char path[64];
    snprintf(path, sizeof path, "/proc/self/fd/%d", own_program);
    return open(path, O_RDONLY | O_CLOEXEC);
}

static int seal(const char *cwd, char *const *arguments)
{
    static char path[] = "PATH=/usr/bin:/bin", asan[] = "ASAN_OPTIONS=detect_leaks=0";
    static char *const variables[] = {path, asan, NULL};
    struct error err = {0};
    const struct front_init_command command = {.cwd = cwd, .arguments = arguments, .variables = variables};
    int fd = front_init_command_seal(&command, &err);
    CHECK(fd >= 0);
    return fd;
}

struct forked {
    const char *mode; /* of the zygote */
    const char *cwd;  /* NULL: / */
    int with_stdin;
    uint64_t timeout_ms;
    uint32_t open_files;
    int program; /* 0: ours */
};

/* sh -c SCRIPT, forked from zygote 2. */
static bool start_forked(struct rig *rig, const char *id, const struct forked *how, const char *script)
{
    char shell[] = "/bin/sh", flag[] = "-c", self[] = "/proc/self/fd/3", be[] = "--be-zygote";
    char *text = strdup(script), *mode = strdup(how->mode);
    struct front_init_message message = {.type = FI_START};
    struct error err = {0};
    snprintf(message.as.start.id, sizeof message.as.start.id, "%s", id);
    message.as.start.with_program = 1;
    message.as.start.zygote = 2;
    message.as.start.with_stdin = (uint8_t)how->with_stdin;
    message.as.start.timeout_ms = how->timeout_ms;
    message.as.start.open_files = how->open_files;
    const int fds[FI_START_FDS] = {seal(how->cwd ? how->cwd : "/", (char *[]){shell, flag, text, NULL}),
                                   how->program > 0 ? dup(how->program) : open_program(),
                                   seal("/", (char *[]){self, be, mode, NULL})};
    bool is_sent = front_init_send(rig->connection, &message, fds, FI_START_FDS, &err);
    for (int i = 0; i < FI_START_FDS; i++)
        close(fds[i]);
    free(text);
    free(mode);
    return is_sent;
}

static struct rig_result run_forked(struct rig *rig, const struct forked *how, const char *script)
{
    struct rig_result result = {0};
    struct front_init_message message = {0};
    int fds[FI_FDS_MAX] = {-1, -1, -1, -1, -1, -1, -1};
    CHECK(start_forked(rig, "forked", how, script));
    CHECK(rig_expect(rig, 0, "forked", &message, fds));
    if (message.type == FI_REFUSED) {
        result.refused = message.as.refused.error;
        return result;
    }
    result.output = rig_read(fds[FI_FD_STDOUT_PIPE], SIZE_MAX);
    result.errors = rig_read(fds[FI_FD_STDERR_PIPE], SIZE_MAX);
    CHECK(rig_expect(rig, FI_EXITED, "forked", &message, NULL));
    result.exited = message.as.exited;
    CHECK(rig_name(rig, FI_FORGET, "forked"));
    for (int i = 0; i < FI_FDS_MAX; i++) {
        if (fds[i] >= 0)
            close(fds[i]);
    }
    return result;
}

static void check_output(struct rig *rig, const struct forked *how, const char *script, const char *want)
{
    struct rig_result result = run_forked(rig, how, script);
    CHECK_TEXT(result.refused.message, "");
    CHECK_TEXT(result.output, want);
    CHECK_TEXT(result.errors, "");
    CHECK(result.exited.wait_status == 0);
    rig_result_done(&result);
}

static void check_refused(struct rig *rig, const struct forked *how, enum error_kind kind, const char *want)
{
    struct rig_result result = run_forked(rig, how, "echo it ran");
    CHECK(result.refused.kind == kind);
    CHECK_TEXT(result.refused.message, want);
    rig_result_done(&result);
}

/* What the zygote put into the environment: which one it was. */
static int zygote_of(struct rig *rig, const struct forked *how)
{
    struct rig_result result = run_forked(rig, how, "echo $ZYGOTE");
    int pid = result.output ? atoi(result.output) : 0;
    CHECK(pid > 1);
    rig_result_done(&result);
    return pid;
}

static const struct forked GOOD = {.mode = "good"};

static void test_good(struct rig *rig)
{
    check_output(rig, &GOOD, "echo hello; pwd; cat", "hello\n/\n");
    check_output(rig, &GOOD, "id -u; [ $(ps -o sid= -p $$) = $$ ] && [ $PPID = 1 ] && echo leads", "1000\nleads\n");
    check_output(rig, &GOOD, "ls /proc/$$/fd; ulimit -n", "0\n1\n2\n512\n");
    check_output(rig, &(struct forked){.mode = "good", .cwd = "/usr/bin"}, "pwd", "/usr/bin\n");
    check_output(rig, &GOOD,
                 "grep -c e1 /proc/self/cgroup >/dev/null; grep -E '^(NoNewPrivs|Seccomp:|CapBnd)' "
                 "/proc/self/status | tr -d '\\t'",
                 "CapBnd:0000000000000000\nNoNewPrivs:1\nSeccomp:2\n");
    struct rig_result result = run_forked(rig, &GOOD, "echo bad >&2; exit 42");
    CHECK_TEXT(result.errors, "bad\n");
    CHECK(WEXITSTATUS(result.exited.wait_status) == 42);
    rig_result_done(&result);
    result = run_forked(rig, &(struct forked){.mode = "good", .cwd = "/no/such"}, "pwd");
    CHECK(result.refused.kind == ERROR_INVALID);
    CHECK_TEXT(result.refused.message, "cwd /no/such: No such file or directory");
    rig_result_done(&result);
}

static void test_one_zygote(struct rig *rig)
{
    int first = zygote_of(rig, &GOOD);
    CHECK(zygote_of(rig, &GOOD) == first);
    int limited = zygote_of(rig, &(struct forked){.mode = "good", .open_files = 100});
    CHECK(limited != first);
    check_output(rig, &(struct forked){.mode = "good", .open_files = 100}, "ulimit -n", "100\n");
    int second = zygote_of(rig, &GOOD);
    CHECK(second != first && second != limited);

    size_t size = 0;
    struct error err;
    AUTO_FREE char *bytes = fd_read_file("/proc/self/exe", 256 * 1024 * 1024, &size, &err);
    AUTO_FD int other = fd_sealed_memfd("other", bytes, size, &err);
    int third = zygote_of(rig, &(struct forked){.mode = "good", .program = other});
    CHECK(third != second);
    CHECK(zygote_of(rig, &(struct forked){.mode = "ready-with-fds", .program = other}) != third);
    CHECK(rig_wait_cgroups(rig, 1)); /* those that were replaced are gone */
}

static void test_life(struct rig *rig)
{
    struct front_init_message message;
    int fds[FI_FDS_MAX];
    CHECK(start_forked(rig, "life", &(struct forked){.mode = "good", .with_stdin = 1}, "sleep 1000 & echo on; cat"));
    CHECK(rig_expect(rig, FI_STARTED, "life", &message, fds));
    CHECK(message.as.started.has_stdin == 1 && message.as.started.pid > 1);
    CHECK_TEXT(message.as.started.title, "/bin/sh -c sleep 1000 & echo on; cat");
    char *on = rig_read(fds[FI_FD_STDOUT_PIPE], 3);
    CHECK_TEXT(on, "on\n");
    free(on);
    rig_connect(rig); /* a front that comes anew is told of it as of any other */
    CHECK(rig_expect(rig, FI_STARTED, "life", &message, NULL));
    CHECK(rig_expect(rig, FI_CURRENT, "", &message, NULL));
    int zygote = zygote_of(rig, &GOOD);
    CHECK(rig_name(rig, FI_KILL, "life")); /* all it started, but not what it was forked from */
    CHECK(rig_expect(rig, FI_EXITED, "life", &message, NULL));
    CHECK(message.as.exited.killed == 1);
    CHECK(zygote_of(rig, &GOOD) == zygote);
    CHECK(rig_name(rig, FI_FORGET, "life"));
    CHECK(rig_wait_cgroups(rig, 1));
    for (int i = 0; i < FI_FDS; i++)
        close(fds[i]);

    CHECK(start_forked(rig, "late", &(struct forked){.mode = "good", .timeout_ms = 100}, "sleep 1000"));
    CHECK(rig_expect(rig, FI_EXITED, "late", &message, NULL) && message.as.exited.timed_out);
    CHECK(rig_name(rig, FI_FORGET, "late"));
    CHECK(start_forked(rig, "hit", &GOOD, "sleep 1000"));
    CHECK(rig_expect(rig, FI_STARTED, "hit", &message, NULL) && rig_signal(rig, "hit", SIGTERM));
    CHECK(rig_expect(rig, FI_EXITED, "hit", &message, NULL) && WTERMSIG(message.as.exited.wait_status) == SIGTERM);
    CHECK(rig_name(rig, FI_FORGET, "hit"));
}

/* The user's code kills it between two commands: the next one gets another. */
static void test_killed(struct rig *rig)
{
    int zygote = zygote_of(rig, &GOOD);
    char script[64];
    snprintf(script, sizeof script, "kill -9 %d; echo done", zygote);
    check_output(rig, &GOOD, script, "done\n");
    CHECK(zygote_of(rig, &GOOD) != zygote);
}

static void test_second_attempt(struct rig *rig)
{
    check_output(rig, &(struct forked){.mode = "dies-once"}, "echo once", "once\n");
}

static void test_liars(struct rig *rig)
{
    static const char broke[] = "the process to be forked broke the rules";
    static const char ended[] = "the command's process ended before it began";
    static const char *const breakers[] = {"says-itself", "word-of-8",   "word-below-0",
                                           "keeps-child", "ready-twice", "floods"};
    for (size_t i = 0; i < sizeof breakers / sizeof *breakers; i++)
        check_refused(rig, &(struct forked){.mode = breakers[i]}, ERROR_INTERNAL, broke);
    check_refused(rig, &(struct forked){.mode = "child-dies"}, ERROR_INTERNAL, ended);
    check_refused(rig, &(struct forked){.mode = "error"}, ERROR_NOT_FOUND, "no such interpreter here");
    check_refused(rig, &(struct forked){.mode = "bad-error"}, ERROR_INTERNAL, broke);
    check_refused(rig, &(struct forked){.mode = "cannot-fork"}, ERROR_NO_CAPACITY,
                  "fork: Resource temporarily unavailable");
    check_output(rig, &(struct forked){.mode = "word-with-fds"}, "echo ran", "ran\n");
    struct rig_result result = run_forked(rig, &(struct forked){.mode = "dies"}, "echo");
    CHECK(result.refused.kind == ERROR_INTERNAL);
    rig_result_done(&result);
    /* It says the word and is gone before or after init has looked: refused, or a command that exited. */
    result = run_forked(rig, &(struct forked){.mode = "dies-after-word"}, "echo");
    CHECK(result.refused.kind == ERROR_INTERNAL || result.exited.wait_status == 82 << 8 ||
          WTERMSIG(result.exited.wait_status) == SIGKILL);
    rig_result_done(&result);
    CHECK(rig_wait_cgroups(rig, 1));
    check_output(rig, &GOOD, "echo good again", "good again\n");
}

/* init's own child, of the right user, but another command's: it would be moved out of that one's cgroup, where neither
 * its kill nor its timeout reach it. */
static void test_puppet(struct rig *rig)
{
    char self[] = "/proc/self/fd/3", be[] = "--be-puppet", *arguments[] = {self, be, NULL};
    struct front_init_message message = {.type = FI_START, .as.start = {.with_stdin = 1, .with_program = 1}};
    struct error err;
    int fds[FI_FDS_MAX], given[] = {seal("/", arguments), open_program()};
    strcpy(message.as.start.id, "puppet");
    CHECK(front_init_send(rig->connection, &message, given, 2, &err));
    close(given[0]), close(given[1]);
    CHECK(rig_expect(rig, FI_STARTED, "puppet", &message, fds));
    char *ready = rig_read(fds[FI_FD_STDOUT_PIPE], 6);
    CHECK_TEXT(ready, "ready\n");
    free(ready);
    check_refused(rig, &(struct forked){.mode = "puppet"}, ERROR_INTERNAL, "the process to be forked broke the rules");
    CHECK(rig_name(rig, FI_KILL, "puppet"));
    CHECK(rig_expect(rig, FI_EXITED, "puppet", &message, NULL));
    CHECK(rig_name(rig, FI_FORGET, "puppet"));
    CHECK(rig_wait_cgroups(rig, 0)); /* the zygote went for it, the puppet with its command */
    for (int i = 0; i < FI_FDS; i++)
        close(fds[i]);
}

/* Told to end before there is a process; its zygote is of no use to others meanwhile, but harms none. */
static void test_not_begun(struct rig *rig)
{
    static const struct forked slow = {.mode = "slow"};
    struct front_init_message message;
    CHECK(start_forked(rig, "killed", &slow, "echo"));
    CHECK(start_forked(rig, "signalled", &slow, "echo"));
    CHECK(start_forked(rig, "waits", &slow, "kill -9 $$"));
    CHECK(start_forked(rig, "hit", &slow, "sleep 1000"));
    check_output(rig, &(struct forked){.mode = "good"}, "echo another", "another\n");
    CHECK(rig_name(rig, FI_KILL, "killed") && rig_signal(rig, "signalled", SIGKILL) && rig_signal(rig, "hit", SIGHUP));
    CHECK(rig_expect(rig, FI_REFUSED, "killed", &message, NULL) && message.as.refused.error.kind == ERROR_GONE);
    CHECK(rig_expect(rig, FI_REFUSED, "signalled", &message, NULL) && message.as.refused.error.kind == ERROR_GONE);
    CHECK(start_forked(rig, "late", &(struct forked){.mode = "slow", .timeout_ms = 50}, "echo"));
    CHECK(rig_expect(rig, FI_REFUSED, "late", &message, NULL) && message.as.refused.error.kind == ERROR_TIMEOUT);
}

static void test_hangs_once(struct rig *rig)
{
    check_output(rig, &(struct forked){.mode = "hangs-once"}, "echo after all", "after all\n");
}

/* The sandbox ends while one waits for its zygote. */
static void test_end(struct rig *rig)
{
    struct front_init_message message;
    CHECK(start_forked(rig, "waits", &(struct forked){.mode = "hangs"}, "echo"));
    CHECK(start_forked(rig, "runs", &(struct forked){.mode = "hangs"}, "echo"));
    CHECK(rig_terminate(rig, 5000));
    CHECK(rig_expect(rig, FI_REFUSED, "waits", &message, NULL) || true);
    CHECK(rig_wait(rig) == 0);
}

int main(int argc, char *argv[])
{
    struct rig rig;
    struct error err;
    size_t size = 0;
    fake_zygote(argc, argv);
    AUTO_FREE char *bytes = fd_read_file("/proc/self/exe", 256 * 1024 * 1024, &size, &err);
    own_program = fd_sealed_memfd("program", bytes, size, &err);
    rig_open_connected(&rig, NULL);
    CHECK(rig_wait_spare(&rig) > 0);
    test_good(&rig);
    int open_then = rig_count_fds(&rig); /* with a zygote */
    test_one_zygote(&rig);
    test_life(&rig);
    test_killed(&rig);
    test_second_attempt(&rig);
    test_liars(&rig);
    CHECK(rig_wait_fds(&rig, open_then));
    test_puppet(&rig);
    test_hangs_once(&rig);
    test_not_begun(&rig);
    test_end(&rig);
    close(own_program);
    CHECK(rig_close(&rig));
    return check_done();
}
