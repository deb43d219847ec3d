/* bridge_test.c - the whole bridge between two pipes: with ipykernel, and with kernels that do what they should not. */
#include "sandboxd/helpers/jupyter/bridge.h"

#include "shared/base/fd.h"
#include "shared/base/memory.h"
#include "shared/base/text.h"
#include "tests/unit/check.h"

#include <errno.h>
#include <fcntl.h>
#include <glob.h>
#include <poll.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static char folder[] = "/tmp/parley-bridge-test-XXXXXX";
enum { PATIENCE_MS = 120000 };

struct rig {
    pid_t pid;
    int requests, frames; /* our ends */
    struct text read;     /* frames that were not looked at */
};

/* ---- rig ---- */

static void write_spec(const char *name, const char *text)
{
    AUTO_FREE char *path = memory_printf("%s/kernels/%s", folder, name);
    AUTO_FREE char *file = memory_printf("%s/kernel.json", path);
    CHECK(fd_make_folders(path, 0700, NULL) && fd_write_file(file, 0600, text, strlen(text), NULL));
}

static void write_odd_spec(const char *mode, const char *more)
{
    AUTO_FREE char *text =
        memory_printf("{\"argv\":[\"/usr/bin/python3\",\"%s/tests/unit/sandboxd/helpers/jupyter/odd_kernel.py\","
                      "\"{connection_file}\",\"%s\"]%s}",
                      PARLEY_SOURCE, mode, more);
    write_spec(mode, text);
}

static _Noreturn void be_bridge(const char *name, int requests, int frames)
{
    struct error err = {0};
    int status = 99;
    (void)setpgid(0, 0);
    {
        AUTO(kernelspec) *spec = kernelspec_find(name, &err);
        if (spec)
            status = bridge_run(spec, requests, frames);
        else
            (void)fprintf(stderr, "%s\n", err.message);
    }
    exit(status); /* with the leak check */
}

static struct rig start(const char *name)
{
    int in[2], out[2];
    struct rig rig = {.requests = -1};
    CHECK(pipe(in) == 0 && pipe(out) == 0);
    rig.pid = fork();
    if (rig.pid == 0) {
        close(in[1]);
        close(out[0]);
        be_bridge(name, in[0], out[1]);
    }
    close(in[0]);
    close(out[1]);
    rig.requests = in[1];
    rig.frames = out[0];
    return rig;
}

static int end(struct rig *rig)
{
    int status = 0;
    if (rig->requests >= 0)
        close(TAKE_FD(rig->requests));
    close(rig->frames);
    while (waitpid(rig->pid, &status, 0) < 0 && errno == EINTR) {
    }
    text_done(&rig->read);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

/* The next frame, NULL at the end. The caller frees. */
static char *next(struct rig *rig)
{
    for (;;) {
        char *newline = rig->read.length ? memchr(rig->read.data, '\n', rig->read.length) : NULL;
        char some[65536];
        if (newline) {
            char *line = memory_copy(rig->read.data, (size_t)(newline - rig->read.data));
            size_t taken = strlen(line) + 1;
            memmove(rig->read.data, rig->read.data + taken, rig->read.length - taken + 1);
            rig->read.length -= taken;
            return line;
        }
        struct pollfd item = {.fd = rig->frames, .events = POLLIN};
        CHECK(poll(&item, 1, PATIENCE_MS) == 1);
        ssize_t got = item.revents ? read(rig->frames, some, sizeof some) : 0;
        if (got <= 0)
            return NULL;
        text_append(&rig->read, some, (size_t)got);
    }
}

static void check_next(struct rig *rig, const char *want)
{
    AUTO_FREE char *got = next(rig);
    CHECK(got && strstr(got, want) != NULL);
    if (!got || !strstr(got, want))
        (void)fprintf(stderr, "got %.400s, want %s\n", got ? got : "the end", want);
}

static void ask(struct rig *rig, const char *code)
{
    json_t *request = json_pack("{s:{s:s, s:s}}", "run", "id", "r", "code", code);
    AUTO_FREE char *text = json_dumps(request, 0);
    AUTO_FREE char *line = memory_printf("%s\n", text);
    json_decref(request);
    CHECK(fd_write_all(rig->requests, line, strlen(line), NULL));
}

/* All frames of a run as one text. The caller frees. */
static char *run(struct rig *rig, const char *code)
{
    struct text all = {0};
    ask(rig, code);
    for (;;) {
        AUTO_FREE char *line = next(rig);
        text_append_format(&all, "%s\n", line ? line : "the end");
        if (!line || text_starts_with(line, "{\"done\""))
            return all.data;
    }
}

static void check_run(struct rig *rig, const char *code, const char *want, const char *unwanted)
{
    AUTO_FREE char *got = run(rig, code);
    bool fine = strstr(got, want) && (!unwanted || !strstr(got, unwanted));
    CHECK(fine);
    if (!fine)
        (void)fprintf(stderr, "%s: got %.2000s, want %s and not %s\n", code, got, want,
                      unwanted ? unwanted : "nothing");
}

/* Interrupts until the frame comes. */
static void interrupt(const struct rig *rig)
{
    CHECK(kill(-rig->pid, SIGINT) == 0);
}

/* ---- a kernel as they are ---- */

static void test_ipykernel(void)
{
    struct rig rig = start("python3");
    check_next(&rig, "{\"ready\":{\"language\":\"python\",\"version\":\"3.");
    check_run(&rig, "x = 20\nx + 1", "{\"result\":{\"run\":\"r\",\"data\":{\"text/plain\":\"21\"}", NULL);
    check_run(&rig, "print(x)", "{\"stdout\":{\"run\":\"r\",\"text\":\"20\\n\"}}", "\"result\"");
    check_run(&rig, "1/0", "\"name\":\"ZeroDivisionError\"", "\\u001b");
    check_run(&rig, "input()", "\"name\":\"StdinNotSupported\"", NULL);
    check_run(&rig, "import os; n = os.system('echo from a child')", "from a child", "\"result\"");
    ask(&rig, "print('begun', flush=True)\nimport time\ntime.sleep(1000)");
    check_next(&rig, "\"started\"");
    check_next(&rig, "begun");
    interrupt(&rig);
    check_next(&rig, "KeyboardInterrupt");
    check_next(&rig, "\"status\":\"interrupted\"");
    interrupt(&rig); /* between runs: nothing */
    check_run(&rig, "x", "\"text/plain\":\"20\"", NULL);
    check_run(&rig, "open('/proc/self/fd/0').read()", "\"text/plain\":\"''\"", NULL);
    CHECK(fd_write_all(rig.requests, "{\"exit\":{}}\n", 12, NULL));
    CHECK(next(&rig) == NULL);
    CHECK(end(&rig) == 0);
}

static void test_death(const char *code, const char *message, int status)
{
    struct rig rig = start("python3");
    check_next(&rig, "\"ready\"");
    ask(&rig, code);
    AUTO_FREE char *first = next(&rig); /* perhaps "started": a kernel that ends at once takes it along */
    if (first && strstr(first, "\"started\""))
        check_next(&rig, message);
    else
        CHECK(first && strstr(first, message));
    CHECK(next(&rig) == NULL);
    CHECK(end(&rig) == status);
}

/* Of a kernel that takes SIGINT as an end. */
static void test_death_by_interrupt(void)
{
    struct rig rig = start("fragile");
    check_next(&rig, "\"ready\"");
    ask(&rig, "wait");
    check_next(&rig, "\"started\"");
    interrupt(&rig);
    check_next(&rig, "ended with status 0, when it was interrupted");
    CHECK(next(&rig) == NULL);
    CHECK(end(&rig) == 0);
}

/* ---- kernels as they may be ---- */

static void test_odd(void)
{
    struct rig rig = start("odd");
    check_next(&rig, "{\"ready\":{\"language\":\"odd\",\"version\":\"0.1\",\"implementation\":\"jupyter:odd odd 1\"}}");
    check_run(&rig, "plain", "\"status\":\"ok\"", "stderr");
    check_run(&rig, "unsigned", "not signed with the connection's key", "forged");
    check_run(&rig, "deep", "left out", NULL);
    check_run(&rig, "surrogate", "\xef\xbf\xbd \xef\xbf\xbd", "stderr");
    check_run(&rig, "foreign", "\"status\":\"ok\"", "Foreign");
    check_run(&rig, "ask", "StdinNotSupported", "KeyboardInterrupt");
    check_run(&rig, "descriptors", "\xc3\xa4\\n", "\xef\xbf\xbd");
    check_run(&rig, "descriptors", "{\"stderr\":{\"run\":\"r\",\"text\":\"two\"}}", "\xef\xbf\xbd");
    check_run(&rig, "inherited", "0:/dev/null\"", "signals");
    check_run(&rig, "early idle", "\"status\":\"ok\"", NULL);
    AUTO_FREE char *flood = run(&rig, "flood");
    CHECK(strstr(flood, "\"0\\n\"") != NULL && strstr(flood, "\"499\\n\"") != NULL);
    ask(&rig, "wait");
    check_next(&rig, "\"started\"");
    interrupt(&rig);
    check_next(&rig, "InterruptException");
    check_next(&rig, "\"status\":\"interrupted\"");
    ask(&rig, "killed");
    check_next(&rig, "\"started\"");
    check_next(&rig, "last words");
    check_next(&rig, "was killed by signal 9");
    CHECK(next(&rig) == NULL);
    CHECK(end(&rig) == 128 + SIGKILL);
}

static void test_works(const char *mode)
{
    struct rig rig = start(mode);
    check_next(&rig, "\"ready\"");
    check_run(&rig, "plain", "\"status\":\"ok\"", NULL);
    ask(&rig, "wait");
    check_next(&rig, "\"started\"");
    interrupt(&rig);
    check_next(&rig, "InterruptException");
    check_next(&rig, "\"status\":\"interrupted\"");
    CHECK(end(&rig) == 0); /* the end of its requests */
}

static void test_does_not_start(void)
{
    struct rig rig = start("dies");
    check_next(&rig, "{\"failed\":{\"message\":\"the kernel dies ended with status 1: I am broken\"");
    CHECK(end(&rig) == 1);
    write_spec("missing", "{\"argv\":[\"/no/such/program\"]}");
    rig = start("missing");
    check_next(&rig, "start the kernel's program /no/such/program: No such file");
    CHECK(end(&rig) == 1);
}

static void test_ends_though_it_stays(void)
{
    struct rig rig = start("stays");
    check_next(&rig, "\"ready\"");
    CHECK(kill(rig.pid, SIGTERM) == 0);
    CHECK(next(&rig) == NULL);
    CHECK(end(&rig) == 128 + SIGTERM);
}

/* One that is never ready: it makes no sockets. */
static void test_ends_while_it_starts(void)
{
    write_spec("silent", "{\"argv\":[\"/bin/sh\",\"-c\",\"echo x > {connection_file}.seen; exec sleep 1000\"]}");
    struct rig rig = start("silent");
    AUTO_FREE char *pattern = memory_printf("%s/.parley-jupyter-*/*.seen", folder);
    glob_t found = {0};
    while (glob(pattern, 0, NULL, &found) != 0) /* until it runs */
        CHECK(usleep(10000) == 0);
    globfree(&found);
    CHECK(kill(rig.pid, SIGTERM) == 0);
    CHECK(next(&rig) == NULL);
    CHECK(end(&rig) == 128 + SIGTERM);
}

static void test_wrong_request(void)
{
    struct rig rig = start("odd");
    check_next(&rig, "\"ready\"");
    CHECK(fd_write_all(rig.requests, "nonsense\n", 9, NULL));
    check_next(&rig, "\"failed\"");
    CHECK(end(&rig) == 1);
}

/* Folders of bridges, as one text. */
static char *folders(void)
{
    AUTO_FREE char *pattern = memory_printf("%s/.parley-jupyter-*", folder);
    struct text names = {0};
    glob_t found;
    text_append(&names, "", 0);
    if (glob(pattern, 0, NULL, &found) == 0)
        for (size_t i = 0; i < found.gl_pathc; i++)
            text_append_format(&names, "%s ", found.gl_pathv[i]);
    globfree(&found);
    return names.data;
}

/* What a killed bridge leaves behind, the next one removes; not what belongs to one that lives. */
static void test_leaves_nothing(void)
{
    const struct timespec old[2] = {{.tv_sec = 1000}, {.tv_sec = 1000}};
    struct rig living = start("odd"), killed = start("stays");
    check_next(&living, "\"ready\"");
    check_next(&killed, "\"ready\"");
    CHECK(kill(killed.pid, SIGKILL) == 0 && end(&killed) == -SIGKILL);
    AUTO_FREE char *two = folders();
    AUTO_FREE char *copy = memory_string(two);
    char *rest = copy;
    for (const char *one = strsep(&rest, " "); one && *one; one = strsep(&rest, " "))
        CHECK(utimensat(AT_FDCWD, one, old, 0) == 0);
    struct rig next_one = start("odd");
    check_next(&next_one, "\"ready\"");
    CHECK(end(&next_one) == 0);
    AUTO_FREE char *left = folders();
    CHECK(strlen(left) * 2 == strlen(two));
    check_run(&living, "plain", "\"status\":\"ok\"", NULL);
    CHECK(end(&living) == 0);
    AUTO_FREE char *none = folders();
    CHECK_TEXT(none, "");
}

static bool has_python(const char *module)
{
    AUTO_FREE char *line = memory_printf("/usr/bin/python3 -c 'import %s' 2>/dev/null", module);
    return system(line) == 0;
}

int main(void)
{
    if (!has_python("zmq, ipykernel"))
        check_skip("no ipykernel here (python3-ipykernel)");
    (void)signal(SIGPIPE, SIG_IGN);
    CHECK(mkdtemp(folder) != NULL);
    CHECK(setenv("JUPYTER_PATH", folder, 1) == 0 && setenv("TMPDIR", folder, 1) == 0);
    write_odd_spec("odd", "");
    write_odd_spec("dies", "");
    write_odd_spec("tcp", "");
    write_odd_spec("colon", ",\"interrupt_mode\":\"message\"");
    write_odd_spec("slow", ",\"metadata\":{\"parley\":{\"transport\":\"tcp\"}}");
    write_odd_spec("stays", "");
    write_odd_spec("fragile", "");
    test_ipykernel();
    test_death("import os; os._exit(3)", "ended with status 3", 3);
    test_death("import os; os.kill(os.getpid(), 9)", "was killed by signal 9", 128 + SIGKILL);
    test_death_by_interrupt();
    test_odd();
    test_works("tcp");
    test_works("colon");
    test_works("slow");
    test_does_not_start();
    test_ends_though_it_stays();
    test_ends_while_it_starts();
    test_wrong_request();
    test_leaves_nothing();
    CHECK(fd_remove_tree(folder, NULL));
    return check_done();
}
