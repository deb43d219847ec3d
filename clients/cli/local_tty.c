#include "clients/cli/local_tty.h"

#include "shared/base/fd.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <termios.h>
#include <unistd.h>

static struct termios before;
static volatile sig_atomic_t changed;

/* Safe in a signal handler (signal-safety(7)). */
static void restore(void)
{
    if (changed)
        (void)tcsetattr(STDIN_FILENO, TCSAFLUSH, &before);
    changed = 0;
}

/* The handler is gone when this returns: the crash goes on as it would have. */
static void on_crash(int number UNUSED)
{
    restore();
}

static void watch_exits(void)
{
    static bool done;
    static const int CRASHES[] = {SIGABRT, SIGSEGV, SIGBUS, SIGFPE, SIGILL};
    const struct sigaction crash = {.sa_handler = on_crash, .sa_flags = (int)SA_RESETHAND};
    if (done)
        return;
    done = true;
    atexit(restore);
    for (size_t i = 0; i < sizeof CRASHES / sizeof *CRASHES; i++) {
        struct sigaction now;
        if (sigaction(CRASHES[i], NULL, &now) == 0 && !(now.sa_flags & SA_SIGINFO) && now.sa_handler == SIG_DFL)
            (void)sigaction(CRASHES[i], &crash, NULL); /* a sanitizer's own handler stays */
    }
}

bool local_tty_enter(enum local_tty_mode mode, struct error *err)
{
    struct termios wanted;
    if (!changed && tcgetattr(STDIN_FILENO, &before) != 0)
        return error_set_errno(err, ERROR_INVALID, "stdin is no terminal");
    watch_exits();
    wanted = before;
    cfmakeraw(&wanted);
    if (mode == LOCAL_TTY_WATCH)
        wanted.c_lflag |= ISIG;
    changed = 1;
    return tcsetattr(STDIN_FILENO, TCSADRAIN, &wanted) == 0 ||
           error_set_errno(err, ERROR_INTERNAL, "the terminal cannot be switched to raw mode");
}

void local_tty_leave(void)
{
    restore();
}

bool local_tty_size(unsigned *columns, unsigned *rows)
{
    struct winsize size;
    if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) != 0 && ioctl(STDIN_FILENO, TIOCGWINSZ, &size) != 0)
        return false;
    if (size.ws_col == 0 || size.ws_row == 0)
        return false;
    *columns = size.ws_col;
    *rows = size.ws_row;
    return true;
}

enum local_tty_key local_tty_keys_take(struct local_tty_keys *keys, const char *from, size_t size, size_t *used,
                                       char *to, size_t *kept)
{
    *kept = 0;
    for (size_t i = 0; i < size; i++) {
        char key = from[i];
        *used = i + 1;
        bool was_tilde = keys->tilde, was_start = keys->at_start;
        keys->tilde = !was_tilde && was_start && key == '~';
        keys->at_start = key == '\r' || key == '\n';
        if (keys->tilde)
            continue;
        if (was_tilde && (key == '.' || key == '?')) {
            keys->at_start = true;
            return key == '.' ? LOCAL_TTY_KEYS_LEAVE : LOCAL_TTY_KEYS_HELP;
        }
        if (was_tilde && key != '~')
            to[(*kept)++] = '~';
        to[(*kept)++] = key;
    }
    return LOCAL_TTY_KEYS_PASS;
}

/* The length of the answer that begins at `at`, an ESC; 0 when it is a key. */
static size_t answer_length(const char *at, size_t size)
{
    if (size < 2)
        return 0;
    if (at[1] == 'P' || at[1] == ']') { /* up to BEL or ST, which is ESC \ */
        const char *bell = memchr(at, '\a', size), *end = memmem(at, size, "\033\\", 2);
        if (bell && (!end || bell < end))
            return (size_t)(bell - at) + 1;
        return end ? (size_t)(end - at) + 2 : size;
    }
    size_t length = 2;
    while (at[1] == '[' && length < size && at[length] && strchr("0123456789;?>=$", at[length]))
        length++;
    bool ends = length > 2 && length < size && at[length] && strchr("cRnytx", at[length]);
    return ends ? length + 1 : 0;
}

size_t local_tty_without_answers(char *keys, size_t size)
{
    size_t kept = 0;
    for (size_t i = 0; i < size;) {
        size_t answer = keys[i] == '\033' ? answer_length(keys + i, size - i) : 0;
        if (answer == 0)
            keys[kept++] = keys[i++];
        i += answer;
    }
    return kept;
}

/* "ESC [ ? 1049 h" and its like: the parameters of a private mode, one of them the alternate screen. */
static void judge(struct local_tty_screen *screen, char last)
{
    static const char *const SCREENS[] = {"1049", "1047", "47"};
    screen->sequence[screen->length] = '\0';
    char *rest = NULL;
    for (char *mode = strtok_r(screen->sequence + 3, ";", &rest); mode; mode = strtok_r(NULL, ";", &rest)) {
        for (size_t i = 0; i < sizeof SCREENS / sizeof *SCREENS; i++)
            screen->alternate = strcmp(mode, SCREENS[i]) == 0 ? last == 'h' : screen->alternate;
    }
}

static void follow_byte(struct local_tty_screen *screen, char byte)
{
    static const char HEAD[] = "\033[?";
    size_t length = screen->length;
    bool fits = length < 3 ? byte == HEAD[length] : (byte >= '0' && byte <= '9') || byte == ';';
    if (fits && length + 1 < sizeof screen->sequence) {
        screen->sequence[screen->length++] = byte;
        return;
    }
    if (length > 3 && (byte == 'h' || byte == 'l'))
        judge(screen, byte);
    screen->length = 0;
    if (byte == HEAD[0])
        screen->sequence[screen->length++] = byte;
}

void local_tty_screen_follow(struct local_tty_screen *screen, const char *data, size_t size)
{
    const char *end = data + size;
    while (data < end) {
        if (screen->length == 0)
            data = memchr(data, '\033', (size_t)(end - data));
        if (!data)
            return;
        follow_byte(screen, *data++);
    }
}

void local_tty_screen_restore(const struct local_tty_screen *screen)
{
    static const char MODES[] = "\033[?1000l\033[?1002l\033[?1003l\033[?1006l\033[?2004l\033[?1l\033>\033[?25h\033[0m";
    static const char MAIN_SCREEN[] = "\033[?1049l";
    if (!isatty(STDOUT_FILENO))
        return;
    if (screen->alternate)
        (void)!fd_write_all(STDOUT_FILENO, MAIN_SCREEN, sizeof MAIN_SCREEN - 1, NULL);
    (void)!fd_write_all(STDOUT_FILENO, MODES, sizeof MODES - 1, NULL);
}
