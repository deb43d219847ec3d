/* terminal.c - see terminal.h. */
#include "sandboxd/sandbox/terminal.h"

#include "sandboxd/sandbox/interrupt.h"
#include "shared/base/clock.h"
#include "shared/base/memory.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <termios.h>
#include <unistd.h>

enum {
    STEP_BYTES = 65536,
    PIPE_BYTES = 1 << 20, /* more than our pipes hold; others may fill one while it is emptied */
    END_CHARACTER = 4,
    WAITS_MAX = 20 /* calls that may be interrupted within WAITS_NS: a fiftieth of the loop's time */
};
static const uint64_t WAITS_NS = UINT64_C(60) * 1000000000;

struct terminal {
    struct loop_watch *master, *out_read;
    int out_write, in_read, in_write;
    unsigned waits; /* since: */
    uint64_t waits_since;
    bool is_foul; /* somebody inside made it wait: it is over */
};

/* ptmx is 5:2 in every instance of devpts, and its masters are that file (devpts.rst). */
static bool is_master(int fd)
{
    struct stat status;
    unsigned number;
    return fstat(fd, &status) == 0 && S_ISCHR(status.st_mode) && major(status.st_rdev) == 5 &&
           minor(status.st_rdev) == 2 && ioctl(fd, TIOCGPTN, &number) == 0;
}

static bool is_pipe(int reads, int writes)
{
    struct stat one, other;
    return fstat(reads, &one) == 0 && fstat(writes, &other) == 0 && S_ISFIFO(one.st_mode) && S_ISFIFO(other.st_mode) &&
           one.st_dev == other.st_dev && one.st_ino == other.st_ino &&
           (fcntl(reads, F_GETFL) & O_ACCMODE) == O_RDONLY && (fcntl(writes, F_GETFL) & O_ACCMODE) == O_WRONLY;
}

struct terminal *terminal_new(struct loop *loop, int fds[FI_TERMINAL_FDS], struct error *err)
{
    int master = fds[FI_TERMINAL_FD_MASTER];
    if (!is_master(master) || !is_pipe(fds[FI_TERMINAL_FD_OUT_READ], fds[FI_TERMINAL_FD_OUT_WRITE]) ||
        !is_pipe(fds[FI_TERMINAL_FD_IN_READ], fds[FI_TERMINAL_FD_IN_WRITE])) {
        error_set(err, ERROR_INVALID, "a terminal's descriptors are not a master and two pipes");
        return NULL;
    }
    if (fcntl(master, F_SETFL, O_RDWR | O_NONBLOCK) < 0) {
        error_set_errno(err, ERROR_INTERNAL, "a terminal that does not block");
        return NULL;
    }
    struct terminal *terminal = memory_new(sizeof *terminal);
    *terminal = (struct terminal){.out_write = TAKE_FD(fds[FI_TERMINAL_FD_OUT_WRITE]),
                                  .in_read = TAKE_FD(fds[FI_TERMINAL_FD_IN_READ]),
                                  .in_write = TAKE_FD(fds[FI_TERMINAL_FD_IN_WRITE])};
    terminal->master = loop_watch_new(loop, TAKE_FD(fds[FI_TERMINAL_FD_MASTER]));
    terminal->out_read = loop_watch_new(loop, TAKE_FD(fds[FI_TERMINAL_FD_OUT_READ]));
    return terminal;
}

void terminal_free(struct terminal *terminal)
{
    if (!terminal)
        return;
    loop_watch_free(terminal->master);
    loop_watch_free(terminal->out_read);
    close(terminal->out_write);
    close(terminal->in_read);
    close(terminal->in_write);
    free(terminal);
}

struct loop_watch *terminal_watch(struct terminal *terminal)
{
    return terminal->master;
}

struct loop_watch *terminal_watch_left(struct terminal *terminal)
{
    return terminal->out_read;
}

int terminal_input_pipe(const struct terminal *terminal)
{
    return terminal->in_write;
}

/* An honest terminal may be taken for one that waits, when this thread was given no processor for so long: so only many
 * at once count. */
static void note_wait(struct terminal *terminal)
{
    uint64_t now = clock_boot_ns();
    if (now - terminal->waits_since > WAITS_NS) {
        terminal->waits_since = now;
        terminal->waits = 0;
    }
    terminal->waits++;
    bool may_wait = !(fcntl(loop_watch_fd(terminal->master), F_GETFL) & O_NONBLOCK);
    terminal->is_foul = terminal->is_foul || may_wait || terminal->waits > WAITS_MAX;
}

/* A terminal goes by O_NONBLOCK of the open file, not by SPLICE_F_NONBLOCK, and init, which shares that file, could
 * take it away. So nothing is read or written that poll has not promised, and what waits even so is interrupted. */
static ssize_t move(struct terminal *terminal, int from, int to)
{
    interrupt_arm();
    ssize_t moved = splice(from, NULL, to, NULL, STEP_BYTES, SPLICE_F_NONBLOCK | SPLICE_F_MOVE);
    int reason = errno;
    if (interrupt_disarm())
        note_wait(terminal);
    errno = reason;
    return moved;
}

static bool is_ready(const struct terminal *terminal, short events)
{
    struct pollfd one = {.fd = loop_watch_fd(terminal->master), .events = events};
    return poll(&one, 1, 0) == 1;
}

/* At most STEP_BYTES from the master into the empty pipe. */
static enum output_pumped read_master(struct terminal *terminal)
{
    if (terminal->is_foul)
        return OUTPUT_END;
    if (!is_ready(terminal, POLLIN))
        return OUTPUT_EMPTY;
    ssize_t moved = move(terminal, loop_watch_fd(terminal->master), terminal->out_write);
    if (moved > 0)
        return OUTPUT_MORE;
    return moved < 0 && (errno == EAGAIN || errno == EINTR) ? OUTPUT_EMPTY : OUTPUT_END;
}

enum output_pumped terminal_pump(struct terminal *terminal, struct output *output, uint64_t limit, size_t budget)
{
    uint64_t end = output->length + budget;
    for (;;) {
        enum output_pumped pumped = output_pump(output, loop_watch_fd(terminal->out_read), limit, PIPE_BYTES);
        if (pumped != OUTPUT_EMPTY)
            return pumped;
        if (output->length >= end)
            return OUTPUT_MORE;
        pumped = read_master(terminal);
        if (pumped != OUTPUT_MORE)
            return pumped;
    }
}

/* What is in the pipe goes first. INPUT_EMPTY: nothing is in it any more. */
static enum input_moved write_master(struct terminal *terminal)
{
    int waiting = 0;
    for (size_t all = 0; ioctl(terminal->in_read, FIONREAD, &waiting) == 0 && waiting > 0;) {
        if (all >= PIPE_BYTES)
            return INPUT_MORE;
        if (terminal->is_foul)
            return INPUT_BROKEN;
        if (!is_ready(terminal, POLLOUT))
            return INPUT_FULL;
        ssize_t moved = move(terminal, terminal->in_read, loop_watch_fd(terminal->master));
        if (moved < 0 && (errno == EAGAIN || errno == EINTR))
            return INPUT_FULL;
        if (moved <= 0)
            return INPUT_BROKEN;
        all += (size_t)moved;
    }
    return INPUT_EMPTY;
}

enum input_moved terminal_feed(struct terminal *terminal, struct input *input, size_t budget)
{
    uint64_t end = input->delivered + budget;
    for (;;) {
        enum input_moved moved = write_master(terminal);
        if (moved != INPUT_EMPTY || input_waiting(input) == 0)
            return moved;
        if (input->delivered >= end)
            return INPUT_MORE;
        uint64_t before = input->delivered;
        moved = input_move(input, terminal->in_write, STEP_BYTES);
        if (moved == INPUT_BROKEN || input->delivered == before) /* an empty pipe takes something */
            return INPUT_BROKEN;
    }
}

bool terminal_resize(struct terminal *terminal, unsigned columns, unsigned rows, struct error *err)
{
    struct winsize size = {.ws_col = (unsigned short)columns, .ws_row = (unsigned short)rows};
    if (ioctl(loop_watch_fd(terminal->master), TIOCSWINSZ, &size) == 0)
        return true;
    return error_set_errno(err, ERROR_INTERNAL, "the size of a terminal");
}

void terminal_size(const struct terminal *terminal, unsigned *columns, unsigned *rows)
{
    struct winsize size;
    if (ioctl(loop_watch_fd(terminal->master), TIOCGWINSZ, &size) != 0)
        return;
    *columns = size.ws_col;
    *rows = size.ws_row;
}

bool terminal_signal(struct terminal *terminal, int number)
{
    pid_t group = 0;
    if (number != SIGINT && number != SIGQUIT && number != SIGTSTP)
        return false;
    if (ioctl(loop_watch_fd(terminal->master), TIOCGPGRP, &group) != 0 || group <= 0)
        return false;
    return ioctl(loop_watch_fd(terminal->master), TIOCSIG, number) == 0;
}

char terminal_end_character(const struct terminal *terminal)
{
    struct termios modes;
    if (tcgetattr(loop_watch_fd(terminal->master), &modes) != 0 || modes.c_cc[VEOF] == _POSIX_VDISABLE)
        return END_CHARACTER;
    return (char)modes.c_cc[VEOF];
}
