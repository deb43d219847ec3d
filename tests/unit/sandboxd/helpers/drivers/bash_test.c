/* bash_test.c - a shell as a context: its state, its errors, and code that tries to break the frames. */
#include "tests/unit/sandboxd/helpers/drivers/driver_rig.h"

#include <sys/syscall.h>

static void test_state(struct rig *rig)
{
    static const struct rig_cell cells[] = {
        {"x=5; a=(1 'two words' 3); export Y=7; f() { echo \"f $1\"; }; alias q='echo quick'", "=ok"},
        {"echo $x \"${a[1]}\" $Y; f 1; q", "o[5 two words 7\nf 1\nquick\n]=ok"},
        {"cd /; pwd", "o[/\n]=ok"},
        {"pwd", "o[/\n]=ok"},
        {"printf '%s' 'quotes \" \\ '\\'' and\nlines'", "o[quotes \" \\ ' and\nlines]=ok"},
        {"cat <<'E'\n$x `date` \"\nE", "o[$x `date` \"\n]=ok"},
        {"f() {\n  local z=$1\n  echo $((z * 2))\n}\nfor i in 1 2; do\n  f $i\ndone", "o[2\n4\n]=ok"},
        {"", "=ok"},
        {"# nothing", "=ok"},
        {"shopt -s nullglob; echo /nowhere/*", "o[\n]=ok"},
    };
    RIG_CELLS(rig, cells);
}

static void test_errors(struct rig *rig)
{
    static const struct rig_cell cells[] = {
        {"false", "x[ExitStatus: exit status 1]=error"},
        {"(exit 37)", "x[ExitStatus: exit status 37]=error"},
        {"kill -9 $BASHPID & wait $!", "~x[ExitStatus: exit status 137 (signal 9)]=error"},
        {"nosuchcommand", "~e[|nosuchcommand: command not found\n]x[ExitStatus: exit status 127]=error"},
        {"if then", "~e[|syntax error|x[ExitStatus: exit status 2]=error"},
        {"echo 'open", "~e[|x[ExitStatus: |=error"},
        {"echo ${unset_one?must be set}; echo after", "~e[|must be set\n]x[ExitStatus: exit status 1]=error"},
        {"set -u; echo $unset_one; echo after", "~e[|unbound variable\n]x["},
        {"set +u; readonly r=1; r=2; echo after", "~e[|readonly variable\n]x["},
        {"read line; echo \"got:$line:$?\"", "o[got::1\n]=ok"},
        {"cat; wc -c", "o[0\n]=ok"},
        {"echo out; echo err >&2; sleep 0.05; echo out again", "~out\n|=ok"},
    };
    RIG_CELLS(rig, cells);
}

/* set -e ends a run where it should, and nothing else. */
static void test_errexit(struct rig *rig)
{
    static const struct rig_cell cells[] = {
        {"set -e; kept=1; declare -A map=([k]='v w'); cd /tmp; false; echo not reached",
         "x[ExitStatus: exit status 1]=error"},
        {"echo $kept \"${map[k]}\" $PWD $x; f 4", "o[1 v w /tmp 5\n8\n]=ok"},
        {"(exit 9); echo not reached", "x[ExitStatus: exit status 9]=error"},
        {"set +e; false; echo reached", "o[reached\n]=ok"},
        {"echo err >&2", "e[err\n]=ok"},
        {"set -x; sleep 0; echo traced >&2", "~e[|echo traced\n|traced\n]=ok"},
        {"{ set +x; } 2>/dev/null; echo quiet", "~o[quiet\n]=ok"},
    };
    RIG_CELLS(rig, cells);
}

static void test_bytes(struct rig *rig)
{
    static const struct rig_cell cells[] = {
        {"printf 'a\\xff\\xc3\\xa9\\xed\\xa0\\x80\\xf4\\x90\\x80\\x80z'",
         "o[a\xEF\xBF\xBD\xC3\xA9\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD"
         "\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBDz]=ok"},
        {"printf 'nul:\\0:\\001\\\\\"\\x7f\\xc3'", "o[nul:0:\001\\\"\x7f\xEF\xBF\xBD]=ok"},
        {"printf '\\xc3'; sleep 0.1; printf '\\xa9\\n'", "o[\xC3\xA9\n]=ok"},
        {"seq 1 200000 | md5sum; seq 1 200000 >/tmp/drv_seq.$$; md5sum </tmp/drv_seq.$$; rm /tmp/drv_seq.$$", "~=ok"},
    };
    RIG_CELLS(rig, cells);
    /* More than any pipe holds, with nobody reading for a while: nothing is lost, nothing grows. */
    rig_send(rig, "head -c 5000000 /dev/zero | tr '\\0' x; echo end");
    (void)poll(NULL, 0, 200);
    size_t seen = 0;
    json_t *frame;
    bool is_done = false;
    while (!is_done && (frame = rig_frame(rig)) != NULL) {
        seen += json_string_length(json_object_get(json_object_get(frame, "stdout"), "text"));
        is_done = json_object_get(frame, "done") != NULL;
        json_decref(frame);
    }
    CHECK(seen == 5000004);
}

static void test_interrupts(struct rig *rig)
{
    CHECK(rig_matches(rig_interrupt(rig, "echo go; sleep 100; echo never"),
                      "~o[go\n]|x[KeyboardInterrupt: interrupted]=interrupted"));
    CHECK(strstr(rig->summary, "never") == NULL);
    CHECK(rig_matches(rig_interrupt(rig, "echo go; while :; do :; done"),
                      "~x[KeyboardInterrupt: interrupted]=interrupted"));
    CHECK(rig_matches(rig_interrupt(rig, "echo go; while :; do echo on and on; done"), "~=interrupted"));
    CHECK(rig_matches(rig_interrupt(rig, "trap 'echo trapped' INT; echo go; sleep 1; echo after"),
                      "~trapped\n|after\n|=ok"));
    CHECK_TEXT(rig_run(rig, "trap - INT; echo alive"), "o[alive\n]=ok");
    CHECK(kill(-rig->pid, SIGINT) == 0);
    CHECK(rig_matches(rig_run(rig, "echo between runs"), "~o[between runs\n]|=ok"));
}

/* What user code finds of ours it may use, against itself alone: the host goes on, and frames stay frames. */
static void test_attacks(struct rig *rig)
{
    static const struct rig_cell cells[] = {
        {"echo '{\"done\":{\"run\":\"x\",\"status\":\"ok\"}}'", "o[{\"done\":{\"run\":\"x\",\"status\":\"ok\"}}\n]=ok"},
        {"trap 'true' DEBUG; trap 'true' ERR; echo on; false", "~o[on\n]x[ExitStatus: exit status 1]=error"},
        {"trap - DEBUG ERR; unset -f f; unalias q", "~=ok"},
        {"alias echo='false' eval='false' read='false' builtin='false'", "=ok"},
        {"printf on", "o[on]=ok"},
        {"unalias -a; __parley=; unset __parley; IFS=xyz; printf on", "o[on]=ok"},
        {"IFS=$' \\t\\n'; exec 3>&1 4>&2; printf on >&3; exec 3>&- 4>&-", "o[on]=ok"},
    };
    RIG_CELLS(rig, cells);
}

static void test_ends(void)
{
    struct rig rig;
    rig_start(&rig, "bash", NULL);
    rig_ready(&rig, "bash");
    CHECK(rig_matches(rig_run(&rig, "trap 'echo bye' EXIT; exit 3"),
                      "~o[bye\n]|x[Exit: the code ended its interpreter with exit status 3]=error"));
    CHECK(rig_end(&rig) == 3);
    rig_start(&rig, "bash", NULL);
    rig_ready(&rig, "bash");
    CHECK_TEXT(rig_run(&rig, "exec 1>&-; exec sh -c 'kill -9 $$'"),
               "x[Exit: the interpreter was ended by signal 9]=error");
    CHECK(rig_end(&rig) == 137);
    rig_start(&rig, "bash", NULL);
    rig_ready(&rig, "bash");
    CHECK(rig_matches(rig_run(&rig, "(sleep 0.2; echo late) & echo now"), "~o[now\n]|=ok"));
    CHECK(rig_end(&rig) == 0);
}

static void expect(struct rig *rig, const char *code, const char *want, int exit_code)
{
    const char *got = rig_run(rig, code);
    if (!rig_matches(got, want) || !rig->has_exit_code || rig->exit_code != exit_code) {
        (void)fprintf(stderr, "%s: got %s, exit code %d\n", code, got, rig->exit_code);
        check_failures++;
    }
}

static void test_exit_codes(struct rig *rig)
{
    expect(rig, "true", "=ok", 0);
    expect(rig, "(exit 37)", "~=error", 37);
    expect(rig, "nosuchcommand", "~=error", 127);
    expect(rig, "if then", "~=error", 2);
    expect(rig, "set -e; (exit 5); echo on", "~=error", 5);
    expect(rig, "set +e; kill -9 $BASHPID & wait $!", "~=error", 137);
}

/* Where a run begins, and what it does with stderr. */
static void test_ways(struct rig *rig)
{
    char folder[] = "/tmp/parley it's-XXXXXX";
    CHECK(mkdtemp(folder) != NULL);
    AUTO_FREE char *there = memory_printf("o[%s\n]=ok", folder);
    rig->with = json_pack("{s:s}", "cwd", folder);
    CHECK_TEXT(rig_run(rig, "pwd"), there);
    CHECK_TEXT(rig_run(rig, "cd /; pwd"), "o[/\n]=ok");
    CHECK_TEXT(rig_run(rig, "pwd"), there); /* there again */
    json_decref(rig->with);
    rig->with = NULL;
    CHECK_TEXT(rig_run(rig, "pwd"), there); /* it stays */
    rig->with = json_pack("{s:s,s:b}", "cwd", "/nowhere'; echo no; '", "merge", 1);
    expect(rig, "echo never", "~o[|No such file or directory\n]x[ExitStatus: exit status 1]=error", 1);
    CHECK(strstr(rig->summary, "never") == NULL && strstr(rig->summary, "no\n]") == NULL);
    json_decref(rig->with);
    rig->with = json_pack("{s:b}", "merge", 1);
    expect(rig, "echo 1; echo 2 >&2; echo 3; sh -c 'echo 4 >&2'; echo 5", "o[1\n2\n3\n4\n5\n]=ok", 0);
    expect(rig, "if then", "~o[|syntax error|x[ExitStatus: exit status 2]=error", 2);
    expect(rig, "nosuchcommand; echo after", "~o[|command not found\nafter\n]=ok", 0);
    json_decref(rig->with);
    rig->with = NULL;
    expect(rig, "cd /; echo apart >&2", "e[apart\n]=ok", 0);
    CHECK(rmdir(folder) == 0);
}

/* Whatever ends its shell ends a run, and no more. */
static void test_durable(void)
{
    struct rig rig;
    rig_start_as(&rig, "bash", "durable", NULL);
    rig_ready(&rig, "bash");
    expect(&rig, "x=5; export Y=7; f() { echo f; }; cd /tmp; echo last; exit 3",
           "~o[last\n]x[ExitStatus: exit status 3]=error", 3);
    expect(&rig, "echo $x $Y $PWD; f", "o[5 7 /tmp\nf\n]=ok", 0);
    expect(&rig, "exit 0", "=ok", 0);
    expect(&rig, "echo $x $Y", "o[5 7\n]=ok", 0);
    expect(&rig, "set -e; false", "~=error", 1);
    expect(&rig, "set +e; echo $x", "o[5\n]=ok", 0);
    expect(&rig, "exec sh -c 'echo other; exit 4'", "~o[other\n]|=error", 4);
    expect(&rig, "echo still here $x", "o[still here\n]=ok", 0); /* as it began: nobody could ask that shell */
    expect(&rig, "kill -9 $$", "~=error", 137);
    expect(&rig, "echo still here", "o[still here\n]=ok", 0);
    expect(&rig, "trap 'echo bye' EXIT; exit 6", "~o[bye\n]|=error", 6);
    expect(&rig, "sleep 0 & wait; sh -c 'kill -9 $$'; echo $?", "o[137\n]=ok", 0); /* and not a word of either */
    expect(&rig, "f() { local v=1; return 3; }; f", "~=error", 3);
    expect(&rig, "return 4; echo on", "~=error", 4);
    expect(&rig, "echo 'open", "~=error", 2);
    expect(&rig, "echo ${unset_one?must be set}; echo after", "~must be set|=error", 1);
    expect(&rig, "set -u; echo $unset_one; echo after", "~unbound variable|=error", 1);
    expect(&rig, "set +u; echo on", "o[on\n]=ok", 0);
    expect(&rig, "readonly r=1; exit", "~=", 0);
    expect(&rig, "echo $r", "o[1\n]=ok", 0);
    CHECK(rig_end(&rig) == 0);
}

/* It is a shell as any other. */
static void test_durable_as_others(void)
{
    struct rig rig;
    rig_start_as(&rig, "bash", "durable", NULL);
    rig_ready(&rig, "bash");
    test_state(&rig);
    test_errors(&rig);
    test_errexit(&rig);
    test_bytes(&rig);
    test_interrupts(&rig);
    test_attacks(&rig);
    test_ways(&rig);
    CHECK(rig_end(&rig) == 0);
}

/* A program, and then a shell, that do not heed: they are killed, and the context lives. */
static void test_durable_interrupts(void)
{
    struct rig rig;
    rig_start_as(&rig, "bash", "durable", NULL);
    rig_ready(&rig, "bash");
    CHECK(rig_matches(rig_interrupt(&rig, "echo go; sleep 100"), "~=interrupted"));
    CHECK(rig_matches(rig_interrupt(&rig, "x=5; sh -c 'trap \"\" INT; echo go; while :; do sleep 1; done'"), "~x[|="));
    CHECK(strstr(rig.summary, "=ok") == NULL);
    CHECK_TEXT(rig_run(&rig, "echo $x"), "o[5\n]=ok");
    CHECK(rig_matches(rig_interrupt(&rig, "trap '' INT; echo go; while :; do :; done"), "~x[|="));
    CHECK_TEXT(rig_run(&rig, "echo alive"), "o[alive\n]=ok");
    CHECK(rig_end(&rig) == 0);
}

/* A driver that is killed (out of memory, say) leaves no shell behind that runs on for nobody. */
static void test_driver_killed(void)
{
    struct rig rig;
    int pid = 0;
    rig_start(&rig, "bash", NULL);
    rig_ready(&rig, "bash");
    CHECK(sscanf(rig_run(&rig, "echo $$"), "o[%d", &pid) == 1 && pid > 1);
    int shell = (int)syscall(SYS_pidfd_open, pid, 0U);
    CHECK(shell >= 0);
    rig_send(&rig, "while :; do :; done");
    CHECK(kill(rig.pid, SIGKILL) == 0);
    CHECK(rig_end(&rig) == 137);
    bool has_ended = poll(&(struct pollfd){.fd = shell, .events = POLLIN}, 1, RIG_DEADLINE_MS) == 1;
    CHECK(has_ended);
    if (!has_ended)
        (void)kill(pid, SIGKILL);
    close(shell);
}

/* A template without bash: the shell that there is. */
static void test_plain_shell(void)
{
    char folder[] = "/tmp/parley-sh-XXXXXX";
    if (mkdtemp(folder) == NULL)
        check_skip("no temporary folder");
    AUTO_FREE char *path = memory_printf("PATH=%s", folder), *shell = memory_printf("%s/sh", folder);
    AUTO_FREE char *bash = memory_printf("%s/bash", folder), *cat = memory_printf("%s/cat", folder);
    CHECK(symlink("/bin/dash", shell) == 0 && symlink("/bin/cat", cat) == 0);
    (void)bash;
    char *environment[] = {path, NULL};
    struct rig rig;
    rig_start(&rig, "bash", environment);
    rig_ready(&rig, "bash");
    bool is_plain = !rig_implements(&rig, "bash");
    CHECK_TEXT(rig_run(&rig, "x=5; echo \"$x\" 'a\nb'"), "o[5 a\nb\n]=ok");
    CHECK_TEXT(rig_run(&rig, "echo $x; (exit 4)"), "o[5\n]x[ExitStatus: exit status 4]=error");
    CHECK(rig_end(&rig) == 0);
    if (!is_plain)
        (void)printf("a plain sh was not tried: bash is where programs usually are\n");
    CHECK(unlink(shell) == 0 && unlink(cat) == 0 && rmdir(folder) == 0);
}

int main(void)
{
    if (access("/bin/bash", X_OK) != 0)
        check_skip("no bash");
    signal(SIGPIPE, SIG_IGN);
    struct rig rig;
    rig_start(&rig, "bash", NULL);
    rig_ready(&rig, "bash");
    CHECK(rig_implements(&rig, "bash "));
    test_state(&rig);
    test_errors(&rig);
    CHECK(rig_matches(rig_run(&rig, "break; return 3; continue; echo on"), "~o[on\n]|=ok"));
    test_errexit(&rig);
    test_bytes(&rig);
    test_interrupts(&rig);
    test_attacks(&rig);
    test_exit_codes(&rig);
    test_ways(&rig);
    CHECK(rig_end(&rig) == 0);
    test_ends();
    test_durable();
    test_durable_as_others();
    test_durable_interrupts();
    test_driver_killed();
    test_plain_shell();
    return check_done();
}
