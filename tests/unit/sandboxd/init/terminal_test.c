/* terminal_test.c - a command on a terminal of its own: whose it is, how it is controlled, and what outlives a front.
 */
#include "tests/unit/sandboxd/init/init_rig.h"

#include <sys/ioctl.h>
#include <sys/mman.h>
#include <termios.h>

static const struct rig_start TERMINAL = {.columns = 132, .rows = 43};

/* What the master gives until `wanted` was in it, its end, or RIG_PATIENCE_MS; the caller frees. */
static char *read_until(int master, const char *wanted)
{
    struct text all = {0};
    text_append(&all, "", 0);
    while (wanted == NULL || strstr(all.data, wanted) == NULL) {
        char piece[4096];
        struct pollfd wait = {.fd = master, .events = POLLIN};
        ssize_t size = poll(&wait, 1, RIG_PATIENCE_MS) == 1 ? read(master, piece, sizeof piece) : -1;
        if (size <= 0)
            break;
        text_append(&all, piece, (size_t)size);
    }
    return all.data;
}

static bool shows(int master, const char *wanted)
{
    char *text = read_until(master, wanted);
    bool is_there = strstr(text, wanted) != NULL;
    if (!is_there)
        fprintf(stderr, "wanted \"%s\", got \"%s\"\n", wanted, text);
    free(text);
    return is_there;
}

static void type(int master, const char *keys)
{
    CHECK(write(master, keys, strlen(keys)) == (ssize_t)strlen(keys));
}

static void close_all(int fds[static FI_FDS_MAX])
{
    for (int i = 0; i < FI_FDS_MAX; i++) {
        if (fds[i] >= 0)
            close(fds[i]);
        fds[i] = -1;
    }
}

static void start(struct rig *rig, const char *script, int fds[static FI_FDS_MAX])
{
    struct front_init_message message;
    CHECK(rig_start_shell(rig, "term", &TERMINAL, script));
    CHECK(rig_expect(rig, 0, "term", &message, fds));
    CHECK(message.type == FI_STARTED && message.as.started.terminal == 1 && message.as.started.has_stdin == 1);
}

static void finish(struct rig *rig, int fds[static FI_FDS_MAX])
{
    close_all(fds);
    CHECK(rig_name(rig, FI_KILL, "term"));
    CHECK(rig_name(rig, FI_FORGET, "term"));
    CHECK(rig_wait_cgroups(rig, 0));
}

static int end(struct rig *rig)
{
    struct front_init_message message;
    CHECK(rig_expect(rig, FI_EXITED, "term", &message, NULL));
    return message.as.exited.wait_status;
}

static void test_it_is_there(struct rig *rig)
{
    int fds[FI_FDS_MAX];
    start(
        rig,
        "test -t 0 && test -t 1 && test -t 2 && stty size; tty | grep ^/dev/pts/ && stat -c 'owner %u mode %a' $(tty);"
        "echo opened > /dev/tty; ps -o tpgid=,pgid=,sid= -p $$ | awk '{print ($1 == $2 && $2 == $3) ? \"leads\" : $0}';"
        "stty -a | grep -o -w -e iutf8; ls /proc/$$/fd | tr '\\n' ' '; cat; exit 3",
        fds);
    int master = fds[FI_TERMINAL_FD_MASTER];
    CHECK((fcntl(master, F_GETFL) & O_NONBLOCK) != 0);
    CHECK(fcntl(fds[FI_TERMINAL_FD_STDIN_MEMORY], F_GET_SEALS) == F_SEAL_SHRINK);
    for (int i = FI_TERMINAL_FD_OUT_READ; i <= FI_TERMINAL_FD_OUT_WRITE; i++)
        CHECK((fcntl(fds[i], F_GETFL) & O_NONBLOCK) != 0 && (fcntl(fds[i + 3], F_GETFL) & O_NONBLOCK) != 0);
    char *text = read_until(master, "0 1 2 ");
    CHECK(strstr(text, "43 132\r\n/dev/pts/") == text);
    CHECK(strstr(text, "\r\nowner 1000 mode 6") != NULL); /* 620, or 600 without the group tty */
    CHECK(strstr(text, "\r\nopened\r\nleads\r\niutf8\r\n0 1 2 ") != NULL);
    free(text);
    type(master, "\004");
    CHECK(end(rig) == 3 << 8);
    char byte;
    CHECK(read(master, &byte, 1) < 0 && errno == EIO);
    finish(rig, fds);
}

/* `is_spare`: by the child made in advance, or one cloned for it. */
static void test_control(struct rig *rig, bool is_spare)
{
    int fds[FI_FDS_MAX], number = SIGTSTP;
    pid_t spare = rig_wait_spare(rig);
    CHECK(spare > 0 && (is_spare || kill(spare, SIGKILL) == 0));
    while (!is_spare && kill(spare, 0) == 0)
        usleep(1000);
    start(rig, "exec bash --norc -i", fds);
    int master = fds[FI_TERMINAL_FD_MASTER];
    type(master, "PS1='$ '; sleep 1000; echo after=$?\n");
    CHECK(shows(master, "sleep 1000"));
    usleep(200000);
    type(master, "\003");
    CHECK(shows(master, "^C"));
    type(master, "echo now=$?\n");
    CHECK(shows(master, "now=130"));
    type(master, "sleep 1001\n");
    CHECK(shows(master, "sleep 1001"));
    usleep(200000);
    CHECK(ioctl(master, TIOCSIG, number) == 0);
    CHECK(shows(master, "Stopped"));
    type(master, "bg; kill %1; wait %1; echo job=$?\n");
    CHECK(shows(master, "job=143"));
    struct winsize size = {.ws_col = 77, .ws_row = 11};
    type(master, "sh -c 'trap \"stty size; exit\" WINCH; echo lis\"\"tens; while :; do sleep 0.05; done'\n");
    CHECK(shows(master, "listens"));
    CHECK(ioctl(master, TIOCSWINSZ, &size) == 0);
    CHECK(shows(master, "11 77"));
    type(master, "exit 6\n");
    CHECK(end(rig) == 6 << 8);
    finish(rig, fds);
}

static void test_hang_up(struct rig *rig)
{
    int fds[FI_FDS_MAX];
    start(
        rig,
        "(trap 'echo hung up; exit' HUP; while :; do sleep 0.05; done) & setsid -f sleep 1000; echo started; sleep 0.2",
        fds);
    CHECK(shows(fds[FI_TERMINAL_FD_MASTER], "started"));
    CHECK(shows(fds[FI_TERMINAL_FD_MASTER], "hung up")); /* sh has no job control here: it is in the foreground */
    CHECK(end(rig) == 0);
    CHECK(rig_wait_cgroups(rig, 1)); /* who left the session lives on */
    finish(rig, fds);                /* ... but not KILL */
}

static void test_reconnect(struct rig *rig)
{
    int fds[FI_FDS_MAX], again[FI_FDS_MAX];
    struct front_init_message message;
    start(rig, "stty raw -echo; echo up; head -c 10; echo over; sleep 1000", fds);
    CHECK(shows(fds[FI_TERMINAL_FD_MASTER], "up"));
    /* This front died with three bytes in the pipe to the terminal, and three to go. */
    CHECK(pwrite(fds[FI_TERMINAL_FD_STDIN_MEMORY], "onetwo", 6, 0) == 6);
    CHECK(splice(fds[FI_TERMINAL_FD_STDIN_MEMORY], NULL, fds[FI_TERMINAL_FD_IN_WRITE], NULL, 3, 0) == 3);
    CHECK(rig_name(rig, FI_EOF, "term")); /* harmless while it runs */
    close_all(fds);
    rig_connect(rig);
    CHECK(rig_expect(rig, FI_STARTED, "term", &message, again));
    CHECK(message.as.started.terminal == 1 && message.as.started.has_stdin == 1);
    CHECK(lseek(again[FI_TERMINAL_FD_STDIN_MEMORY], 0, SEEK_CUR) == 3);
    int master = again[FI_TERMINAL_FD_MASTER];
    CHECK(splice(again[FI_TERMINAL_FD_IN_READ], NULL, master, NULL, 100, SPLICE_F_NONBLOCK) == 3);
    CHECK(splice(again[FI_TERMINAL_FD_STDIN_MEMORY], NULL, again[FI_TERMINAL_FD_IN_WRITE], NULL, 100, 0) == 3);
    CHECK(splice(again[FI_TERMINAL_FD_IN_READ], NULL, master, NULL, 100, SPLICE_F_NONBLOCK) == 3);
    type(master, "four");
    CHECK(shows(master, "onetwofourover\n"));
    CHECK(fcntl(again[FI_TERMINAL_FD_STDIN_MEMORY], F_ADD_SEALS, F_SEAL_GROW) == 0);
    CHECK(rig_name(rig, FI_KILL, "term"));
    CHECK(WTERMSIG(end(rig)) == SIGKILL);
    CHECK(rig_wait_spare(rig) > 0);
    int before = rig_count_fds(rig);
    CHECK(rig_name(rig, FI_EOF, "term")); /* ended: all but the output's memory is closed */
    CHECK(rig_wait_fds(rig, before - 6));
    CHECK(rig_name(rig, FI_EOF, "term"));
    close_all(again);
    rig_connect(rig);
    CHECK(rig_expect(rig, FI_STARTED, "term", &message, again));
    CHECK(message.as.started.terminal == 1 && message.as.started.has_stdin == 0 && message.as.started.stdin_bytes == 6);
    CHECK(fcntl(again[0], F_GET_SEALS) == (F_SEAL_SHRINK | F_SEAL_SEAL) && again[1] == -1);
    CHECK(rig_expect(rig, FI_CURRENT, "", &message, NULL));
    finish(rig, again);
}

int main(void)
{
    struct rig rig;
    if (access("/dev/ptmx", R_OK | W_OK) < 0)
        check_skip("no terminals here");
    rig_open_connected(&rig, NULL);
    CHECK(rig_wait_spare(&rig) > 0);
    int open_at_first = rig_count_fds(&rig);
    test_it_is_there(&rig);
    test_control(&rig, true);
    test_control(&rig, false);
    test_hang_up(&rig);
    test_reconnect(&rig);
    CHECK(open_at_first > 8 && rig_wait_fds(&rig, open_at_first));
    CHECK(rig_close(&rig));
    return check_done();
}
