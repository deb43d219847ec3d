/* terminal_kill_test.c - a front that is killed at any moment loses and doubles no byte of a terminal; and one that is
 * fed without end goes on with its other duties. */
#include "sandboxd/sandbox/terminal.h"

#include "shared/base/random.h"
#include "shared/http/loop_internal.h"
#include "tests/unit/check.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <termios.h>
#include <time.h>
#include <unistd.h>

enum { LINES = 40000, LINE = 8 };

static int kept[FI_TERMINAL_FDS]; /* as init keeps them */

static int new_memory(void)
{
    int memory = memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    CHECK(memory >= 0 && fcntl(memory, F_ADD_SEALS, F_SEAL_SHRINK) == 0);
    return memory;
}

static int open_slave(void)
{
    return ioctl(kept[FI_TERMINAL_FD_MASTER], TIOCGPTPEER, O_RDWR | O_NOCTTY | O_CLOEXEC);
}

/* Its slave, so that it is not over. */
static int make_terminal(void)
{
    int ends[2], unlocked = 0;
    struct termios modes;
    kept[FI_TERMINAL_FD_MASTER] = open("/dev/ptmx", O_RDWR | O_NOCTTY | O_NONBLOCK | O_CLOEXEC);
    CHECK(ioctl(kept[FI_TERMINAL_FD_MASTER], TIOCSPTLCK, &unlocked) == 0);
    int slave = open_slave();
    CHECK(tcgetattr(slave, &modes) == 0);
    cfmakeraw(&modes);
    CHECK(tcsetattr(slave, TCSANOW, &modes) == 0);
    for (int i = 0; i < 2; i++) {
        CHECK(pipe2(ends, O_CLOEXEC | O_NONBLOCK) == 0);
        kept[FI_TERMINAL_FD_OUT_READ + 3 * i] = ends[0];
        kept[FI_TERMINAL_FD_OUT_WRITE + 3 * i] = ends[1];
        kept[FI_TERMINAL_FD_STDOUT_MEMORY + 3 * i] = new_memory();
    }
    return slave;
}

static void close_terminal(int slave)
{
    close(slave);
    for (int i = 0; i < FI_TERMINAL_FDS; i++)
        close(kept[i]);
}

struct front {
    struct loop *loop;
    struct input *input;
    struct output *output;
    struct terminal *terminal;
};

/* Adopts it. */
static struct front new_front(void)
{
    struct error err = {0};
    struct front front = {.loop = loop_new(0, &err)};
    int fds[FI_TERMINAL_FDS];
    for (int i = 0; i < FI_TERMINAL_FDS; i++)
        fds[i] = fcntl(kept[i], F_DUPFD_CLOEXEC, 3);
    loop_open(front.loop);
    front.input = input_new(TAKE_FD(fds[FI_TERMINAL_FD_STDIN_MEMORY]), &err);
    front.output = output_new(TAKE_FD(fds[FI_TERMINAL_FD_STDOUT_MEMORY]), &err);
    front.terminal = terminal_new(front.loop, fds, &err);
    CHECK(front.input && front.output && front.terminal);
    return front;
}

/* Whoever has init fills the pipe as fast as it is emptied: a call ends all the same. */
static void test_pipe_without_end(void)
{
    enum { FLOODERS = 3, CALLS = 30, MOST = 2 << 20 };
    static char block[65536];
    pid_t flooders[FLOODERS];
    int slave = make_terminal(), pipe = kept[FI_TERMINAL_FD_OUT_WRITE];
    struct front front = new_front();
    CHECK(fcntl(pipe, F_SETFL, fcntl(pipe, F_GETFL) & ~O_NONBLOCK) == 0 && fcntl(pipe, F_SETPIPE_SZ, 1 << 20) > 0);
    for (int i = 0; i < FLOODERS; i++) {
        flooders[i] = fork();
        while (flooders[i] == 0 && write(pipe, block, sizeof block) > 0)
            ;
    }
    uint64_t most = 0;
    for (int i = 0; i < CALLS || (most == 0 && i < 10000); i++) {
        uint64_t before = front.output->length;
        (void)!terminal_pump(front.terminal, front.output, UINT64_MAX, 1 << 20);
        uint64_t grown = front.output->length - before;
        if (grown == 0)
            usleep(1000); /* the flooders have not had a turn yet */
        most = grown > most ? grown : most;
    }
    for (int i = 0; i < FLOODERS; i++)
        CHECK(kill(flooders[i], SIGKILL) == 0 && waitpid(flooders[i], NULL, 0) == flooders[i]);
    printf("at most %llu KiB in a call\n", (unsigned long long)most >> 10);
    CHECK(most > 0 && most <= MOST);
    terminal_free(front.terminal);
    input_free(front.input);
    output_release(front.output);
    loop_close(front.loop);
    loop_free(front.loop);
    close_terminal(slave);
}

static _Noreturn void print_lines(int slave)
{
    for (unsigned i = 0; i < LINES; i++) {
        char line[16];
        snprintf(line, sizeof line, "%07u\n", i);
        if (write(slave, line, LINE) != LINE)
            _exit(1);
    }
    _exit(0);
}

static _Noreturn void read_lines(int slave)
{
    char line[LINE + 1] = "";
    for (unsigned i = 0; i < LINES; i++) {
        for (ssize_t have = 0, got; have < LINE; have += got)
            if ((got = read(slave, line + have, (size_t)(LINE - have))) <= 0)
                _exit(1);
        if (strtoul(line, NULL, 10) != i)
            _exit(2);
    }
    _exit(0);
}

static pid_t run_on_slave(void (*run)(int slave))
{
    int slave = open_slave();
    pid_t pid = fork();
    if (pid == 0)
        run(slave);
    close(slave);
    return pid;
}

/* Moves what there is until all has come and gone. */
static _Noreturn void be_front(void)
{
    struct front front = new_front();
    for (;;) {
        if (terminal_pump(front.terminal, front.output, UINT64_MAX, 10000) == OUTPUT_END)
            _exit(4);
        enum input_moved moved = terminal_feed(front.terminal, front.input, 3000);
        if (moved == INPUT_BROKEN)
            _exit(5);
        if (moved == INPUT_EMPTY && front.output->length == LINES * LINE)
            _exit(0);
    }
}

/* At any moment, again and again: each line goes in once and comes out once, in order. */
static void test_killed_fronts(void)
{
    int slave = make_terminal();
    for (unsigned i = 0; i < LINES; i++) {
        char line[16];
        snprintf(line, sizeof line, "%07u\n", i);
        CHECK(pwrite(kept[FI_TERMINAL_FD_STDIN_MEMORY], line, LINE, (off_t)i * LINE) == LINE);
    }
    pid_t printer = run_on_slave(print_lines), reader = run_on_slave(read_lines);
    int status = 0;
    unsigned kills = 0;
    for (bool is_over = false; !is_over && kills < 10000;) {
        pid_t front = fork();
        if (front == 0)
            be_front();
        struct timespec moment = {.tv_nsec = 2000000 + (long)random_below(3000000)};
        nanosleep(&moment, NULL);
        kill(front, SIGKILL);
        CHECK(waitpid(front, &status, 0) == front);
        is_over = WIFEXITED(status);
        kills += !is_over;
    }
    CHECK(kills > 3 && WIFEXITED(status) && WEXITSTATUS(status) == 0);
    CHECK(waitpid(printer, &status, 0) == printer && status == 0);
    CHECK(waitpid(reader, &status, 0) == reader && status == 0);
    CHECK(lseek(kept[FI_TERMINAL_FD_STDOUT_MEMORY], 0, SEEK_CUR) == LINES * LINE);
    unsigned wrong = 0;
    for (unsigned i = 0; i < LINES; i++) {
        char line[LINE + 1] = "";
        CHECK(pread(kept[FI_TERMINAL_FD_STDOUT_MEMORY], line, LINE, (off_t)i * LINE) == LINE);
        wrong += strtoul(line, NULL, 10) != i;
    }
    printf("%u fronts killed, %u wrong lines\n", kills, wrong);
    CHECK(wrong == 0);
    close_terminal(slave);
}

int main(void)
{
    (void)signal(SIGPIPE, SIG_IGN);
    alarm(60);
    if (access("/dev/ptmx", R_OK | W_OK) < 0)
        check_skip("no terminals here");
    test_pipe_without_end();
    test_killed_fronts();
    return check_done();
}
