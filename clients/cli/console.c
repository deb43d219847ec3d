#include "clients/cli/console.h"

#include "clients/cli/console_output.h"
#include "clients/cli/local_tty.h"

#include "shared/base/clock.h"
#include "shared/base/memory.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/signalfd.h>
#include <unistd.h>

enum { KEYS_BYTES = 4096, PIPE_BYTES = 64 * 1024, INTERRUPTS_MAX = 3, NOTE_LOST_MS = 1000 };
static const unsigned PIPE_RESUMES_FOR_S = 60;
static const uint64_t TELLS_AGAIN_NS = 3000000000;
static const uint64_t ANSWERS_AFTER_NS = 150000000; /* a terminal answers to what it is asked within that */

struct console {
    const struct console_wanted *wanted;
    struct console_end *end;
    struct session *session;
    bool is_raw;
    uint64_t told_ns; /* boot time at which it was said that keys go nowhere */
    bool input_over;  /* nothing more is read */
    struct local_tty_keys keys;
    struct local_tty_screen screen;
    uint64_t replayed_ns; /* boot time at which the last old byte came */
    unsigned interrupts;
    struct console_output output;
    struct error unwritten;
};

static void say(const struct console *console, const char *sentence)
{
    AUTO_FREE char *safe = cli_safe(sentence);
    if (console->is_raw)
        fprintf(stderr, "\r\n[parley: %s]\r\n", safe);
    else
        fprintf(stderr, "parley: %s\n", safe);
}

/* ---- what the session tells ---- */

static bool is_replaying(const struct console *console)
{
    return console->wanted->replay_to > session_had(console->session);
}

static bool on_output(void *cookie, bool is_stderr, const void *data, size_t size)
{
    struct console *console = cookie;
    if (console->is_raw)
        local_tty_screen_follow(&console->screen, data, size);
    if (!is_stderr && session_had(console->session) < console->wanted->replay_to + size)
        console->replayed_ns = clock_boot_ns();
    if (console->wanted->output) {
        console->wanted->output(console->wanted->cookie, is_stderr, data, size);
        return true;
    }
    bool good = console_output_add(&console->output, is_stderr, data, size, &console->unwritten);
    session_pause(console->session, console_output_is_waiting(&console->output));
    return good;
}

static void on_note(void *cookie, const char *sentence)
{
    const struct console *console = cookie;
    if (console->is_raw || console->wanted->verbose)
        say(console, sentence);
}

static void on_warning(void *cookie, const char *sentence)
{
    say(cookie, sentence);
}

/* Who watches sees the other's screen: on a smaller one it does not look the same. */
static void on_attached(void *cookie)
{
    const struct console *console = cookie;
    const struct session_facts *facts = session_facts(console->session);
    unsigned columns, rows;
    if (console->wanted->use != SESSION_WATCH || !facts->tty || !local_tty_size(&columns, &rows) ||
        (columns >= facts->columns && rows >= facts->rows))
        return;
    AUTO_FREE char *sentence = memory_printf("the terminal is %ux%u, this one %ux%u: it may look wrong", facts->columns,
                                             facts->rows, columns, rows);
    say(console, sentence);
}

/* ---- what the user does ---- */

static void leave(struct console *console, int signal)
{
    console->end->left = true;
    console->end->signal = signal;
}

static void help(const struct console *console)
{
    AUTO_FREE char *sentence = memory_printf(
        "~. leaves (terminal %s lives on), ~~ types a ~, at the beginning of a line", console->wanted->id);
    say(console, sentence);
}

/* While old output is shown, the user's terminal may answer to questions in it that were answered long ago. */
static bool is_answered(const struct console *console)
{
    return is_replaying(console) || (console->replayed_ns && clock_boot_ns() - console->replayed_ns < ANSWERS_AFTER_NS);
}

static void type(struct console *console, char *keys, size_t size)
{
    char kept[2 * KEYS_BYTES];
    if (is_answered(console))
        size = local_tty_without_answers(keys, size);
    while (size > 0 && !console->end->left) {
        size_t used = 0, count = 0;
        enum local_tty_key key = local_tty_keys_take(&console->keys, keys, size, &used, kept, &count);
        if (count > 0)
            session_write(console->session, kept, count);
        if (key == LOCAL_TTY_KEYS_LEAVE)
            leave(console, 0);
        if (key == LOCAL_TTY_KEYS_HELP)
            help(console);
        keys += used;
        size -= used;
    }
}

static void read_keys(struct console *console)
{
    char keys[KEYS_BYTES];
    ssize_t got = read(STDIN_FILENO, keys, sizeof keys);
    if (got < 0 && (errno == EINTR || errno == EAGAIN))
        return;
    if (got <= 0)
        leave(console, SIGHUP); /* the user's terminal is gone */
    else
        type(console, keys, (size_t)got);
}

/* Who only watches must not believe that the other hears him. */
static void drop_keys(struct console *console)
{
    char keys[KEYS_BYTES];
    ssize_t got = read(STDIN_FILENO, keys, sizeof keys);
    uint64_t now = clock_boot_ns();
    if (got == 0 || (got < 0 && errno != EINTR && errno != EAGAIN)) {
        leave(console, SIGHUP); /* the user's terminal is gone */
        return;
    }
    if (got < 0 || local_tty_without_answers(keys, (size_t)got) == 0)
        return; /* what the terminal itself says to what it is shown */
    if (console->told_ns == 0 || now - console->told_ns > TELLS_AGAIN_NS)
        say(console, "only watching: keys are not sent; Ctrl-C leaves");
    console->told_ns = now;
}

static void read_pipe(struct console *console)
{
    char bytes[PIPE_BYTES];
    size_t room = session_room(console->session);
    ssize_t got = read(STDIN_FILENO, bytes, room < sizeof bytes ? room : sizeof bytes);
    if (got < 0 && (errno == EINTR || errno == EAGAIN))
        return;
    if (got > 0) {
        session_write(console->session, bytes, (size_t)got);
        return;
    }
    console->input_over = true;
    session_end_input(console->session);
}

static void resize(const struct console *console)
{
    unsigned columns, rows;
    if (console->wanted->use != SESSION_WATCH && local_tty_size(&columns, &rows))
        session_resize(console->session, columns, rows);
}

static enum local_tty_mode mode_of(const struct console *console)
{
    return console->wanted->input == CONSOLE_KEYS ? LOCAL_TTY_RAW : LOCAL_TTY_WATCH;
}

static void pass_signal(struct console *console, int number)
{
    bool owned = console->wanted->owned;
    bool passes = (owned || console->wanted->input == CONSOLE_PIPE) && session_facts(console->session)->started;
    if (!passes || (number == SIGINT && ++console->interrupts >= INTERRUPTS_MAX))
        leave(console, number);
    else if (owned && number == SIGINT && console->interrupts > 1)
        session_signal(console->session, sigabbrev_np(SIGKILL));
    else
        session_signal(console->session, sigabbrev_np(number));
}

static void read_signal(struct console *console, int signals)
{
    struct signalfd_siginfo info;
    if (read(signals, &info, sizeof info) != (ssize_t)sizeof info)
        return;
    int number = (int)info.ssi_signo;
    if (number == SIGCONT && console->is_raw)
        (void)!local_tty_enter(mode_of(console), NULL); /* the shell around us may have changed it */
    if (number == SIGWINCH || number == SIGCONT)
        resize(console);
    else if (number != SIGTSTP)
        pass_signal(console, number);
}

/* ---- the loop ---- */

static bool write_on(struct console *console)
{
    bool good = console_output_go_on(&console->output, &console->unwritten);
    session_pause(console->session, console_output_is_waiting(&console->output));
    return good;
}

static bool turn(struct console *console, int signals, struct error *err)
{
    struct curl_waitfd extra[3] = {{.fd = signals, .events = CURL_WAIT_POLLIN}};
    unsigned count = 1, output = 0, keys = 0;
    enum console_input input = console->wanted->input;
    bool drops = input == CONSOLE_NONE && console->is_raw && console->wanted->use == SESSION_WATCH;
    bool reads =
        drops || (input != CONSOLE_NONE && !console->input_over && session_room(console->session) >= KEYS_BYTES);
    if (input == CONSOLE_PIPE && !session_facts(console->session)->started)
        reads = false;
    if (reads)
        extra[keys = count++] = (struct curl_waitfd){.fd = STDIN_FILENO, .events = CURL_WAIT_POLLIN};
    if (console_output_is_waiting(&console->output))
        extra[output = count++] = console_output_wait(&console->output);
    if (!session_turn(console->session, extra, count, err))
        return false;
    if (extra[0].revents)
        read_signal(console, signals);
    if (keys && extra[keys].revents && drops)
        drop_keys(console);
    else if (keys && extra[keys].revents && input == CONSOLE_KEYS)
        read_keys(console);
    else if (keys && extra[keys].revents)
        read_pipe(console);
    return !output || !extra[output].revents || write_on(console);
}

/* From here on signals are events, and no signal ends this program while its terminal is raw. */
static int open_signals(const struct console *console)
{
    static const int TAKEN[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGWINCH, SIGCONT, SIGTSTP};
    static const int CRASHES[] = {SIGABRT, SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGSYS};
    sigset_t taken, blocked;
    sigemptyset(&taken);
    for (size_t i = 0; i < sizeof TAKEN / sizeof *TAKEN; i++)
        if (console->is_raw || TAKEN[i] != SIGTSTP)
            sigaddset(&taken, TAKEN[i]);
    blocked = taken;
    if (console->is_raw) {
        sigfillset(&blocked);
        for (size_t i = 0; i < sizeof CRASHES / sizeof *CRASHES; i++)
            sigdelset(&blocked, CRASHES[i]);
    }
    sigprocmask(SIG_BLOCK, &blocked, NULL);
    return signalfd(-1, &taken, SFD_CLOEXEC | SFD_NONBLOCK);
}

static bool converse(struct console *console, int signals, struct error *err)
{
    bool good = true;
    resize(console);
    while (good && !console->end->left && !session_over(console->session, &console->end->process))
        good = turn(console, signals, err);
    if (!console->end->left && console->unwritten.kind == ERROR_NONE)
        good = console_output_finish(&console->output, &console->unwritten) && good;
    console->end->started = session_facts(console->session)->started;
    console->end->unread = console->unwritten.kind != ERROR_NONE;
    if (console->end->unread)
        *err = console->unwritten;
    return good;
}

static bool run(struct console *console, const struct grant_keeping *keeping, int signals, struct error *err)
{
    const struct console_wanted *wanted = console->wanted;
    const struct session_wanted details = {.use = wanted->use,
                                           .id = wanted->id,
                                           .command = wanted->command,
                                           .tty = wanted->tty,
                                           .has_from = wanted->has_from,
                                           .from = wanted->from,
                                           .narrow_to = wanted->narrow_to,
                                           .resume_for_s = console->is_raw ? 0 : PIPE_RESUMES_FOR_S,
                                           .note_lost_ms = NOTE_LOST_MS,
                                           .output = on_output,
                                           .attached = on_attached,
                                           .note = on_note,
                                           .warn = on_warning,
                                           .cookie = console,
                                           .keeping = keeping};
    AUTO(session) *session = session_new(&details, err);
    console->session = session;
    return session && converse(console, signals, err);
}

bool console_run(const struct console_wanted *wanted, const struct grant_keeping *keeping, struct console_end *end,
                 struct error *err)
{
    struct console console = {.wanted = wanted, .end = end, .keys = {.at_start = true}};
    struct grant_keeping kept = *keeping;
    sigset_t before;
    *end = (struct console_end){0};
    kept.warn = on_warning;
    kept.cookie = &console;
    sigprocmask(SIG_BLOCK, NULL, &before);
    console.is_raw = wanted->tty && wanted->input != CONSOLE_PIPE && isatty(STDIN_FILENO) && isatty(STDOUT_FILENO);
    AUTO_FD int signals = open_signals(&console);
    bool ran = (!console.is_raw || local_tty_enter(mode_of(&console), err)) && run(&console, &kept, signals, err);
    if (console.is_raw && (end->left || !ran))
        local_tty_screen_restore(&console.screen);
    local_tty_leave();
    console_output_done(&console.output);
    if (wanted->owned && (end->left || end->unread))
        remote_command_end(keeping->grant, wanted->id);
    sigprocmask(SIG_SETMASK, &before, NULL);
    return ran;
}

bool console_run_with_grant(const struct console_wanted *wanted, const struct place *place,
                            const struct grant_request *request, struct grant *grant, struct console_end *end,
                            struct error *err)
{
    const struct grant_keeping keeping = {.grant = grant, .place = place, .request = request};
    bool negotiated = false, ran;
    do {
        cli_tell_grant(grant, wanted->verbose);
        ran = console_run(wanted, &keeping, end, err);
    } while (!ran && !end->started && cli_renew_spent(grant, place, request, &negotiated, err));
    return ran;
}

static void tell_way_back(const struct console_wanted *wanted)
{
    fprintf(stderr, "\nparley: left terminal %s, which lives on; come back with: parley attach --thread %s %s\n",
            wanted->id, wanted->thread, wanted->id);
}

int console_status(const struct console_wanted *wanted, bool ran, const struct console_end *end,
                   const struct error *err)
{
    if (!ran)
        return err->system_errno == EPIPE ? 128 + SIGPIPE : cli_fail_usual(err, CLI_NO_SANDBOX);
    if (end->left && end->started && wanted->input == CONSOLE_KEYS)
        tell_way_back(wanted);
    if (end->left)
        return end->signal == 0 || (end->signal == SIGINT && wanted->input == CONSOLE_NONE) ? CLI_OK
                                                                                            : 128 + end->signal;
    if (end->process.timed_out)
        fprintf(stderr, "parley: its time was up; the whole process tree was killed\n");
    if (end->process.oom)
        fprintf(stderr, "parley: out of memory: the sandbox's limit ended it\n");
    return end->process.exit_code;
}
