/* python_test.c - a Python context, forked from a zygote by an init that this test is: with IPython, where python3 has
 * it, and without. */
#include "tests/unit/sandboxd/helpers/drivers/driver_rig.h"

static void start(struct rig *rig, const struct rig_zygote *zygote, char *const *environment)
{
    char *const arguments[] = {(char[]){"python3"}, (char[]){"kernel"}, (char[]){"python"}, NULL};
    const struct front_init_command command = {
        .cwd = "/", .arguments = arguments, .variables = environment ? environment : environ};
    CHECK(rig_order(rig, zygote, &command) == 0);
    rig_ready(rig, "python");
}

static void test_values(struct rig *rig)
{
    static const struct rig_cell cells[] = {
        {"x = 1\nx + 1", "r[2]=ok"},
        {"x", "r[1]=ok"},
        {"x;", "=ok"},
        {"_ + 1", "~r[|=ok"},
        {"None", "=ok"},
        {"def f(a):\n    return a * 2\n\nf('ab')", "r['abab']=ok"},
        {"import asyncio\nawait asyncio.sleep(0)\n7", "r[7]=ok"},
        {"class H:\n    def _repr_html_(self): return '<b>'\n    def __repr__(self): return 'H'\nH()", "r[H]=ok"},
        {"display(H())", "~d[|text/html|]=ok"},
        {"h = display(1, display_id=True)\nh.update(2)", "d[text/plain ]u[text/plain ]=ok"},
        {"class Bad:\n    def _repr_html_(self): raise ValueError('no html')\n    def __repr__(self): return "
         "'bad'\nBad()",
         "~r[bad]|=ok"},
        {"class Worse:\n    def __repr__(self): raise ValueError('no repr')\ndisplay(1); w = Worse()",
         "d[text/plain ]=ok"},
        {"w", "~="},
        {"class J:\n    def _repr_json_(self): return {'a': float('nan'), 'b': 10**30, 'c': {1, 2}, 'd': "
         "'\\ud800'}\nJ()",
         "~r[|=ok"},
        {"class M:\n    def _repr_mimebundle_(self, **k): return {'text/plain': 'm', 'image/png': b'\\x89PNG'}\nM()",
         "r[m]=ok"},
        {"'x' * 3_000_000", "~r['xxx"},
        {"import pickle\nclass P: pass\nlen(pickle.dumps(P())) > 10", "r[True]=ok"},
        {"import os; os.getcwd(), __name__", "r[('/', '__main__')]=ok"},
    };
    RIG_CELLS(rig, cells);
}

static void test_order(struct rig *rig)
{
    static const struct rig_cell cells[] = {
        {"import os, sys, subprocess\nprint('a'); os.system('echo b; echo c >&2'); print('d', file=sys.stderr); "
         "os.write(1, b'e\\n'); print('f')",
         "o[a\nb\n]e[c\nd\n]o[e\nf\n]=ok"},
        {"for i in range(3):\n    print(i); subprocess.run(['echo', str(i)])", "o[0\n0\n1\n1\n2\n2\n]=ok"},
        {"import ctypes\nc = ctypes.CDLL(None)\nc.puts(b'from C'); print('then')", "o[from C\nthen\n]=ok"},
        {"print('before'); display(1); print('after')", "o[before\n]d[text/plain ]o[after\n]=ok"},
        {"sys.stdout.buffer.write(b'\\xff'); sys.stdout.write('\\ud800\\0'); None", "o[\xEF\xBF\xBD\xEF\xBF\xBD"
                                                                                    "0]=ok"},
        {"import threading\nt = [threading.Thread(target=print, args=(i,)) for i in range(50)]\n[a.start() for a in "
         "t]; [a.join() for a in t]; None",
         "~o[|49\n|=ok"},
        {"print('x' * 5_000_000, end='')\nlen(os.listdir('/proc/self/fd')) < 20", "~o[xxx"},
        {"p = os.fork()\nif p == 0:\n    print('child', flush=True)\nelse:\n    os.waitpid(p, 0); print('parent')",
         "o[child\nparent\n]=ok"},
        {"subprocess.run(['ls', '/proc/self/fd'], capture_output=True).stdout.split() == [b'0', b'1', b'2', b'3']",
         "r[True]=ok"},
    };
    RIG_CELLS(rig, cells);
}

static void test_errors(struct rig *rig)
{
    static const struct rig_cell cells[] = {
        {"1/0", "x[ZeroDivisionError: division by zero]=error"},
        {"def f(:", "~x[SyntaxError: |=error"},
        {"input('name')", "~x[StdinNotSupported: |=error"},
        {"import sys; sys.stdin.readline()", "~x[StdinNotSupported: |=error"},
        {"def deep(): deep()\ndeep()", "~x[RecursionError: |=error"},
        {"class E(Exception):\n    def __str__(self): raise ValueError\nraise E()", "~x[E: |=error"},
        {"raise BaseException('base')", "~x[BaseException: base]|=error"},
        {"'alive'", "r['alive']=ok"},
        {"import sys; sys.stdout = None", "=ok"},
        {"print('again')", "o[again\n]=ok"},
        {"import os; os.close(0); os.close(1); os.close(2)", "~="},
        {"f = open('/dev/null', 'w'); print('mine'); os.system('echo yours')", "~o[mine\nyours\n]"},
        {"import sys; sys.exit(3)", "~x[SystemExit: 3]"},
        {"'still here'", "r['still here']=ok"},
    };
    RIG_CELLS(rig, cells);
    rig->keep = "error";
    CHECK(rig_matches(rig_run(rig, "def g():\n    return 1/0\n\ng()"), "~x[ZeroDivisionError"));
    char *all = json_dumps(json_object_get(rig->last, "traceback"), JSON_COMPACT);
    CHECK(strstr(all, "return 1/0") != NULL && strstr(all, "g()") != NULL);
    CHECK(strstr(all, "<parley>") == NULL && strstr(all, "u001b") == NULL);
    free(all);
    rig->keep = NULL;
}

static void test_interrupts(struct rig *rig)
{
    static const char *const endless[] = {
        "import time; print('go', flush=True); time.sleep(1000)",
        "print('go')\nwhile True: pass",
        "print('go')\nwhile True: print('x' * 1000)",
        "import os; os.system('echo go; sleep 3')",
        "import asyncio; print('go'); await asyncio.sleep(1000)",
        "print('go'); import threading; threading.Event().wait()",
    };
    for (size_t i = 0; i < sizeof endless / sizeof endless[0]; i++) {
        const char *got = rig_interrupt(rig, endless[i]);
        bool is_right = strstr(got, "=interrupted") != NULL || strlen(got) > RIG_SUMMARY_BYTES - 100 ||
                        (i == 3 && strstr(got, "=ok") != NULL); /* the program was interrupted, and the code went on */
        if (!is_right)
            (void)fprintf(stderr, "%s: %.300s\n", endless[i], got);
        CHECK(is_right);
    }
    CHECK(kill(-rig->pid, SIGINT) == 0);
    CHECK_TEXT(rig_run(rig, "'alive'"), "r['alive']=ok");
}

static void test_apart(const struct rig_zygote *zygote)
{
    struct rig one, other;
    start(&one, zygote, NULL);
    start(&other, zygote, NULL);
    (void)rig_run(&one, "v = 1; import random; print(random.random())");
    CHECK(rig_matches(rig_run(&other, "v"), "~x[NameError: "));
    AUTO_FREE char *first = memory_string(one.summary);
    (void)rig_run(&other, "import random; print(random.random())");
    CHECK(strcmp(first, other.summary) != 0);
    CHECK_TEXT(rig_run(&one, "import os; print('last words'); os._exit(7)"), "o[last words\n]");
    CHECK(one.is_ended);
    CHECK(rig_end(&one) == 7);
    /* what is not flushed waits a moment for more, and a crash may come before that is over */
    CHECK_TEXT(rig_run(&other, "import ctypes; print('x', flush=True); ctypes.string_at(0)"), "o[x\n]");
    CHECK(rig_end(&other) == 128 + SIGSEGV);
}

/* What user code finds of ours, it may break: for itself. */
static void test_forged(const struct rig_zygote *zygote)
{
    struct rig rig, other;
    start(&rig, zygote, NULL);
    start(&other, zygote, NULL);
    rig_send(&rig, "import os\nfor fd in os.listdir('/proc/self/fd'):\n    if int(fd) > 2:\n        try: "
                   "os.write(int(fd), b'{\"done\":{\"run\":\"x\"}}\\n')\n"
                   "        except OSError: pass\nos.closerange(3, 2000)");
    char *line;
    while ((line = rig_line(&rig)) != NULL)
        free(line);
    CHECK_TEXT(rig_run(&other, "1 + 1"), "r[2]=ok");
    (void)rig_end(&rig);
    CHECK(rig_end(&other) == 0);
}

static void test_cwd(const struct rig_zygote *zygote)
{
    char *const arguments[] = {(char[]){"python3"}, (char[]){"kernel"}, NULL};
    struct rig rig;
    const struct front_init_command command = {.cwd = "/nonexistent", .arguments = arguments, .variables = environ};
    CHECK(rig_order(&rig, zygote, &command) == ENOENT);
    close(rig.in);
    close(rig.out);
    close(rig.err);
}

/* Variables that an interpreter reads at its start: the context is not forked then, and they hold. */
static void test_other_environment(const struct rig_zygote *zygote)
{
    struct rig rig;
    char *environment[] = {(char[]){"PATH=/usr/bin:/bin"}, (char[]){"PYTHONPATH=/tmp/parley-there"},
                           (char[]){"HOME=/tmp"}, (char[]){"MINE=yes"}, NULL};
    start(&rig, zygote, environment);
    CHECK_TEXT(rig_run(&rig, "import os, sys; '/tmp/parley-there' in sys.path, os.environ['MINE'], os.environ['HOME']"),
               "r[(True, 'yes', '/tmp')]=ok");
    CHECK(rig_end(&rig) == 0);
}

static void test_ipython(struct rig *rig)
{
    static const struct rig_cell cells[] = {
        {"%cd /tmp", "o[/tmp\n]=ok"},
        {"!echo out; echo err >&2", "~o[out\n]|=ok"},
        {"x = !echo captured\nx[0]", "r['captured']=ok"},
        {"%%time\nq = 5", "~o[|Wall time|=ok"},
        {"%timeit -n1 -r1 pass", "~o[|loop|=ok"},
        {"len?", "d[text/plain ]=ok"},
        {"%nosuchmagic", "~x[UsageError: |=error"},
        {"%%capture c\nprint('hidden')", "=ok"},
        {"c.stdout", "r['hidden\\n']=ok"},
        {"from IPython.display import HTML, clear_output\nHTML('<b>')", "~r[|=ok"},
        {"clear_output(wait=True)", "c=ok"},
        {"get_ipython().set_next_input('ignored')", "=ok"},
        {"%%bash\necho in bash", "o[in bash\n]=ok"},
        {"import os\n[f for f in ('.ipython', '.python_history') if os.path.lexists(os.path.join(os.environ['HOME'], "
         "f))]",
         "r[[]]=ok"},
    };
    RIG_CELLS(rig, cells);
}

static void test_plots(struct rig *rig)
{
    if (!rig_matches(rig_run(rig, "import matplotlib"), "=ok"))
        return;
    CHECK(rig_matches(rig_run(rig, "import matplotlib.pyplot as plt\nplt.plot([1, 2]); None"), "~d[|image/png |]=ok"));
    CHECK(rig_matches(rig_run(rig, "plt.plot([1, 2]); plt.show(); print('after')"), "~d[|image/png |]o[after\n]=ok"));
    CHECK_TEXT(rig_run(rig, "import os; 'MPLBACKEND' in os.environ"), "r[False]=ok");
}

static void test_with(char *const *environment, bool wants_plain)
{
    struct driver_start how;
    struct error err = {0};
    CHECK(driver_context("python", &how, &err));
    struct rig_zygote zygote = rig_zygote_start(&how, environment);
    struct rig rig;
    start(&rig, &zygote, environment);
    if (wants_plain)
        CHECK(rig_implements(&rig, "cpython "));
    test_values(&rig);
    test_order(&rig);
    test_errors(&rig);
    test_interrupts(&rig);
    if (rig_implements(&rig, "ipython "))
        test_ipython(&rig);
    test_plots(&rig);
    CHECK(rig_end(&rig) == 0);
    if (!wants_plain) {
        test_apart(&zygote);
        test_forged(&zygote);
        test_cwd(&zygote);
        test_other_environment(&zygote);
    }
    rig_zygote_end(&zygote);
}

int main(void)
{
    signal(SIGPIPE, SIG_IGN);
    char folder[] = "/tmp/parley-plain-XXXXXX";
    if (access("/usr/bin/python3", X_OK) != 0 || mkdtemp(folder) == NULL)
        check_skip("no /usr/bin/python3");
    struct error err = {0};
    AUTO_FREE char *home = memory_printf("HOME=%s", folder), *path = memory_printf("PYTHONPATH=%s", folder);
    AUTO_FREE char *broken = memory_printf("%s/IPython.py", folder);
    char *environment[] = {(char[]){"PATH=/usr/bin:/bin"}, home, NULL, NULL};
    test_with(environment, false);
    CHECK(fd_write_file(broken, 0600, "raise ImportError\n", 18, &err));
    environment[2] = path;
    test_with(environment, true);
    CHECK(fd_remove_tree(folder, &err));
    return check_done();
}
