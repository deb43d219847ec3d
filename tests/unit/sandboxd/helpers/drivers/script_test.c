/* script_test.c - what a script does when it is forked from the zygote, held against the same python3 starting it. */
#include "tests/unit/sandboxd/helpers/drivers/driver_rig.h"

#define PYTHON "/usr/bin/python3"

struct ran {
    char *out, *err;
    int status; /* as waitpid(2) says */
};

static char *read_all(int fd)
{
    size_t size = 0;
    char *text = memory_new(1);
    ssize_t got;
    do {
        text = memory_resize(text, size + 65537);
        got = read(fd, text + size, 65536);
        size += got > 0 ? (size_t)got : 0;
    } while (got > 0);
    text[size] = 0;
    close(fd);
    return text;
}

static struct ran ran_done(struct rig *rig)
{
    struct ran ran = {0};
    close(rig->in);
    ran.out = read_all(rig->out);
    ran.err = read_all(rig->err);
    CHECK(waitpid(rig->pid, &ran.status, 0) == rig->pid);
    return ran;
}

static void ran_free(struct ran *ran)
{
    free(ran->out);
    free(ran->err);
}

static struct ran by_zygote(const struct rig_zygote *zygote, const char *folder, char *path, char *const *environment)
{
    char *const arguments[] = {(char[]){"python3"}, (char[]){"script"},    path,
                               (char[]){"one"},     (char[]){"two words"}, NULL};
    const struct front_init_command command = {.cwd = folder, .arguments = arguments, .variables = environment};
    struct rig rig;
    CHECK(rig_order(&rig, zygote, &command) == 0);
    (void)!write(rig.in, "typed\n", 6); /* it may have ended already */
    return ran_done(&rig);
}

static struct ran by_hand(const char *folder, char *path, char *const *environment)
{
    int in[2], out[2], err[2];
    CHECK(pipe2(in, O_CLOEXEC) == 0 && pipe2(out, O_CLOEXEC) == 0 && pipe2(err, O_CLOEXEC) == 0);
    struct rig rig = {.pid = fork(), .in = in[1], .out = out[0], .err = err[0]};
    if (rig.pid == 0) {
        const char *const arguments[] = {PYTHON, path, "one", "two words", NULL};
        if (chdir(folder) < 0)
            _exit(124);
        rig_become(arguments, environment, (int[]){in[0], out[1], err[1]}, 3);
    }
    close(in[0]);
    close(out[1]);
    close(err[1]);
    (void)!write(rig.in, "typed\n", 6); /* it may have ended already */
    return ran_done(&rig);
}

static const char *const scripts[] = {
    "print('hello')",
    "import sys; print(sys.argv, __name__, __file__, sys.path[0], sys.flags, sys.stdin.read())",
    "def f():\n    return 1/0\n\nf()",
    "try:\n    1/0\nexcept ZeroDivisionError as e:\n    raise ValueError('two') from e",
    "def f(:\n",
    "import sys; print('out'); sys.exit(3)",
    "import sys; sys.exit('a text')",
    "raise SystemExit",
    "import atexit, sys; atexit.register(print, 'at exit'); sys.stdout.write('no newline')",
    "import threading, time\ndef f():\n    time.sleep(0.1); print('thread')\nthreading.Thread(target=f).start(); "
    "print('main')",
    "import os; print('lost'); os._exit(4)",
    "import os, signal; os.kill(os.getpid(), signal.SIGTERM)",
    "import signal; print([signal.getsignal(s) for s in (signal.SIGINT, signal.SIGTERM, signal.SIGPIPE, "
    "signal.SIGCHLD)])",
    "raise KeyboardInterrupt",
    "import sys\ndef hook(t, v, tb):\n    print('hooked', t.__name__, tb.tb_frame.f_code.co_name)\nsys.excepthook = "
    "hook\n1/0",
    "class D:\n    def __del__(self): print('deleted')\nd = D()",
    "import os; print([fd for fd in sorted(os.listdir('/proc/self/fd')) if int(fd) < 10], os.getcwd(), "
    "os.environ.get('MINE'))",
    "import sys; print(sys.stdout.encoding, sys.stdout.errors, sys.stderr.errors, sys.stdin.encoding, "
    "sys.stdout.line_buffering)",
    "import multiprocessing as m\ndef f(x): return x * 2\nif __name__ == '__main__':\n    with m.Pool(2) as p: "
    "print(p.map(f, [1, 2]))",
    "import pickle\nclass P: pass\nprint(pickle.loads(pickle.dumps(P())).__class__, P.__module__)",
    "print(__builtins__.__name__, __spec__, sorted(globals()))",
    "import asyncio\nasync def f():\n    await asyncio.sleep(0); print('async')\nasyncio.run(f())",
    "print('\\xe9\\u4e2d'); import sys; sys.stderr.write('\\ud800\\n')",
    "input('prompt '); input()",
    "import warnings; warnings.warn('careful')",
};

static bool is_same(const char *script, const struct ran *got, const struct ran *want)
{
    bool is = got->status == want->status && strcmp(got->out, want->out) == 0 && strcmp(got->err, want->err) == 0;
    if (!is)
        (void)fprintf(stderr, "%s\n zygote %d: %s%s\n hand   %d: %s%s\n", script, got->status, got->out, got->err,
                      want->status, want->out, want->err);
    return is;
}

static void test_scripts(const struct rig_zygote *zygote, const char *folder, char *const *environment)
{
    struct error err = {0};
    AUTO_FREE char *path = memory_printf("%s/script.py", folder);
    char *const names[] = {path, (char[]){"script.py"}};
    for (size_t i = 0; i < sizeof scripts / sizeof scripts[0]; i++) {
        CHECK(fd_write_file(path, 0600, scripts[i], strlen(scripts[i]), &err));
        struct ran got = by_zygote(zygote, folder, names[i % 2], environment);
        struct ran want = by_hand(folder, names[i % 2], environment);
        CHECK(is_same(scripts[i], &got, &want));
        ran_free(&got);
        ran_free(&want);
    }
    struct ran none = by_zygote(zygote, folder, (char[]){"missing.py"}, environment),
               by = by_hand(folder, (char[]){"missing.py"}, environment);
    CHECK(WEXITSTATUS(none.status) == WEXITSTATUS(by.status) && strstr(none.err, "can't open file") != NULL);
    ran_free(&none);
    ran_free(&by);
}

/* A module beside the script goes before one of the zygote's, as it does for python3. */
static void test_shadow(const struct rig_zygote *zygote, const char *folder, char *const *environment)
{
    struct error err = {0};
    AUTO_FREE char *beside = memory_printf("%s/beside", folder), *module = memory_printf("%s/string.py", beside);
    AUTO_FREE char *path = memory_printf("%s/script.py", beside);
    static const char code[] = "import string; print(string.mine)";
    CHECK(mkdir(beside, 0700) == 0 && fd_write_file(module, 0600, "mine = 'mine'\n", 14, &err));
    CHECK(fd_write_file(path, 0600, code, sizeof code - 1, &err));
    struct ran got = by_zygote(zygote, folder, path, environment);
    CHECK_TEXT(got.out, "mine\n");
    ran_free(&got);
}

int main(void)
{
    signal(SIGPIPE, SIG_IGN);
    char folder[] = "/tmp/parley-script-XXXXXX";
    if (access(PYTHON, X_OK) != 0 || mkdtemp(folder) == NULL)
        check_skip("no " PYTHON);
    struct error err = {0};
    struct driver_start how;
    CHECK(driver_script("python", &how, &err));
    AUTO_FREE char *home = memory_printf("HOME=%s", folder);
    char *environment[] = {(char[]){"PATH=/usr/bin:/bin"}, home, (char[]){"LANG=C.UTF-8"},
                           (char[]){"PYTHONDONTWRITEBYTECODE=1"}, NULL};
    struct rig_zygote zygote = rig_zygote_start(&how, environment);
    test_scripts(&zygote, folder, environment);
    test_shadow(&zygote, folder, environment);
    char *other[] = {(char[]){"PATH=/usr/bin:/bin"},
                     home,
                     (char[]){"LANG=C.UTF-8"},
                     (char[]){"MINE=yes"},
                     (char[]){"PYTHONDONTWRITEBYTECODE=1"},
                     (char[]){"PYTHONOPTIMIZE=1"},
                     NULL};
    test_scripts(&zygote, folder, other); /* an interpreter of its own */
    rig_zygote_end(&zygote);
    CHECK(fd_remove_tree(folder, &err));
    return check_done();
}
