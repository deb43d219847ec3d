/* terminal.c - see terminal.h. */
#include "sandboxd/init/terminal.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/fsuid.h>
#include <sys/ioctl.h>
#include <termios.h>
#include <unistd.h>

/* devpts gives a slave to who opened ptmx (its gid= says the group): by the fsuid, for init stays who it is. */
static int open_master(const struct terminal_order *order)
{
    setfsgid(order->gid);
    setfsuid(order->uid);
    int master = open("/dev/ptmx", O_RDWR | O_NOCTTY | O_NONBLOCK | O_CLOEXEC);
    int reason = errno;
    setfsuid(0);
    setfsgid(0);
    errno = reason;
    return master;
}

static bool refuse_terminal(struct error *err)
{
    if (errno == ENOSPC || errno == EIO) /* EIO: the host's kernel.pty.max */
        return error_set(err, ERROR_NO_CAPACITY, "no terminal left in this sandbox; kill a command that has one");
    return streams_failed("opening a terminal", err);
}

static bool set_up(int master, unsigned columns, unsigned rows)
{
    struct termios modes;
    struct winsize size = {.ws_col = (unsigned short)columns, .ws_row = (unsigned short)rows};
    int unlocked = 0;
    if (ioctl(master, TIOCSPTLCK, &unlocked) < 0 || ioctl(master, TIOCSWINSZ, &size) < 0 ||
        tcgetattr(master, &modes) < 0)
        return false;
    modes.c_iflag |= IUTF8; /* erases whole letters */
    return tcsetattr(master, TCSANOW, &modes) == 0;
}

static bool open_pipe(int *reads, int *writes, struct error *err)
{
    int ends[2];
    if (pipe2(ends, O_CLOEXEC | O_NONBLOCK) < 0)
        return streams_failed("pipe", err);
    *reads = ends[0];
    *writes = ends[1];
    return true;
}

/* By the master, not by its name: what is mounted at /dev/pts does not matter. By name where the kernel has no such
 * request; there it may not have seen our fsuid either. */
static int open_other_end(int master, const struct terminal_order *order)
{
    char path[32];
    int number = 0;
    int fd = ioctl(master, TIOCGPTPEER, O_RDWR | O_NOCTTY | O_CLOEXEC);
    if (fd >= 0 || (errno != ENOTTY && errno != EINVAL))
        return fd;
    if (ioctl(master, TIOCGPTN, &number) < 0)
        return -1;
    (void)snprintf(path, sizeof path, "/dev/pts/%d", number);
    fd = open(path, O_RDWR | O_NOCTTY | O_CLOEXEC);
    if (fd >= 0)
        (void)!fchown(fd, order->uid, order->gid);
    return fd;
}

static bool open_all(struct streams *made, const struct terminal_order *order, struct error *err)
{
    int *kept = made->kept, master = open_master(order);
    if (master < 0)
        return refuse_terminal(err);
    kept[FI_TERMINAL_FD_MASTER] = master;
    if (!set_up(master, order->columns, order->rows))
        return streams_failed("setting up a terminal", err);
    made->terminal_end = open_other_end(master, order);
    if (made->terminal_end < 0)
        return streams_failed("opening the other end of a terminal", err);
    return open_pipe(&kept[FI_TERMINAL_FD_OUT_READ], &kept[FI_TERMINAL_FD_OUT_WRITE], err) &&
           streams_open_memory(&kept[FI_TERMINAL_FD_STDOUT_MEMORY], "stdout", false, err) &&
           open_pipe(&kept[FI_TERMINAL_FD_IN_READ], &kept[FI_TERMINAL_FD_IN_WRITE], err) &&
           streams_open_memory(&kept[FI_TERMINAL_FD_STDIN_MEMORY], "stdin", true, err);
}

bool terminal_open(struct streams *streams, const struct terminal_order *order, int limit, struct error *err)
{
    struct streams made = STREAMS_NONE;
    made.is_terminal = true;
    if (!open_all(&made, order, err) || !streams_check_limit(&made, limit, err)) {
        streams_close(&made);
        return false;
    }
    *streams = made;
    return true;
}
