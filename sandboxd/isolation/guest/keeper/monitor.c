/* monitor.c - the one child of the keeper: started, heard, given connections, ended. What it says is hostile. */
#include "sandboxd/isolation/guest/keeper/keeper.h"

#include "sandboxd/init/cgroup.h"
#include "shared/base/clock.h"
#include "shared/base/fd.h"
#include "shared/base/text.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/seccomp.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

enum { OPTION_PASSRIGHTS = 83 /* SO_PASSRIGHTS, newer than the headers */ };
enum { SERIAL = 1, LETTER_BYTES_MAX = 65536, NUMBER_BYTES = 24, READS_A_TURN = 16 };
static const char READY[] = "guest ready";
static const uint64_t MS_NS = 1000000, MIB = 1048576;

/* ---- its start ---- */

/* argv, cut up in place. What stands for a limit is written to `numbers`. */
static void list_arguments(struct li_guest *guest, const struct li_become *become, char *list[static 1],
                           char numbers[static 4 * NUMBER_BYTES])
{
    char *at = guest->arguments;
    uint64_t memory = become ? become->memory_bytes / MIB : 0, cpu_milli = become ? become->cpu_milli : 0;
    (void)snprintf(numbers, NUMBER_BYTES, "%llu", (unsigned long long)memory);
    (void)snprintf(numbers + NUMBER_BYTES, NUMBER_BYTES, "%llu", (unsigned long long)cpu_milli);
    (void)snprintf(numbers + (size_t)2 * NUMBER_BYTES, NUMBER_BYTES, "%llu",
                   (unsigned long long)((cpu_milli + 999) / 1000));
    (void)snprintf(numbers + (size_t)3 * NUMBER_BYTES, NUMBER_BYTES, "%u", become ? become->pids : 0);
    for (uint32_t i = 0; i < guest->argument_count; i++, at += strlen(at) + 1) {
        list[i] = at;
        if (strcmp(at, "{memory_mib}") == 0)
            list[i] = numbers;
        else if (strcmp(at, "{cpu_milli}") == 0)
            list[i] = numbers + NUMBER_BYTES;
        else if (strcmp(at, "{cpus}") == 0)
            list[i] = numbers + (size_t)2 * NUMBER_BYTES;
        else if (strcmp(at, "{pids}") == 0)
            list[i] = numbers + (size_t)3 * NUMBER_BYTES;
    }
    list[guest->argument_count] = NULL;
}

static bool join_cgroups(const struct keeper *keeper)
{
    for (size_t i = 0; i < keeper->join_count; i++) {
        if (write(INHERIT_FD_JOIN + (int)i, "0", 1) != 1)
            return false;
    }
    return true;
}

static bool raise_file_limit(void)
{
    struct rlimit files;
    if (getrlimit(RLIMIT_NOFILE, &files) < 0)
        return false;
    files.rlim_cur = files.rlim_max;
    return setrlimit(RLIMIT_NOFILE, &files) == 0;
}

/* In the child: its words on failure are what the keeper reads as the monitor's. */
static _Noreturn void run(struct keeper *keeper, char *const *arguments, int input, int output)
{
    static char path[] = "PATH=/usr/sbin:/usr/bin", tmp[] = "TMPDIR=/tmp", home[] = "HOME=/tmp";
    char *const environment[] = {path, tmp, home, NULL};
    sigset_t none;
    sigemptyset(&none);
    bool is_ready = setsid() >= 0 && join_cgroups(keeper) && dup2(input, 0) == 0 && dup2(output, 1) == 1 &&
                    dup2(output, 2) == 2 && syscall(SYS_close_range, 3U, ~0U, 0U) == 0 && raise_file_limit() &&
                    sigprocmask(SIG_SETMASK, &none, NULL) == 0 &&
                    syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &keeper->filter) == 0;
    if (is_ready)
        execve(arguments[0], arguments, environment);
    (void)dprintf(2, "%s: %s: %s\n", is_ready ? "execute" : "prepare", arguments[0], strerrordesc_np(errno));
    _exit(127);
}

bool monitor_start(struct keeper *keeper, const struct li_become *become, struct error *err)
{
    static char *arguments[LAUNCHER_INIT_ARGUMENTS + 1];
    static char numbers[4 * NUMBER_BYTES];
    int pair[2], ends[2];
    list_arguments(&keeper->guest, become, arguments, numbers);
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
        return error_set_errno(err, ERROR_INTERNAL, "socketpair");
    keeper->channel = pair[0];
    AUTO_FD int input = pair[1];
    if (pipe2(ends, O_CLOEXEC) < 0)
        return error_set_errno(err, ERROR_INTERNAL, "pipe");
    keeper->output = ends[0];
    AUTO_FD int output = ends[1];
    AUTO_FD int directory = cgroup_make(INHERIT_FD_RUN, SERIAL, err);
    if (directory < 0)
        return false;
    keeper->monitor = cgroup_clone(directory, err);
    if (keeper->monitor == 0)
        run(keeper, arguments, input, output);
    return keeper->monitor > 0 && fd_set_nonblocking(keeper->output, err) &&
           keeper_watch(keeper, keeper->output, err) && keeper_watch(keeper, keeper->channel, err);
}

bool monitor_send_letter(const struct keeper *keeper, int memory, struct error *err)
{
    static char letter[LETTER_BYTES_MAX];
    ssize_t size = pread(memory, letter, sizeof letter, 0);
    bool is_sent = size > 0 && send(keeper->channel, letter, (size_t)size, MSG_NOSIGNAL) == size;
    int failed = errno;
    explicit_bzero(letter, sizeof letter);
    errno = failed;
    bool has_gone = !is_sent && (failed == EPIPE || failed == ECONNRESET); /* its end tells why */
    return is_sent || has_gone || error_set_errno(err, ERROR_INTERNAL, "send the guest its letter");
}

/* ---- what it says ---- */

static void end_line(struct keeper *keeper)
{
    keeper->part[keeper->part_length] = '\0';
    for (size_t i = 0; i < keeper->part_length; i++) {
        if ((unsigned char)keeper->part[i] < ' ' || (unsigned char)keeper->part[i] >= 0x7f)
            keeper->part[i] = '?';
    }
    if (keeper->part_length > 0)
        memcpy(keeper->line, keeper->part, keeper->part_length + 1);
    keeper->is_up = keeper->is_up || strstr(keeper->part, READY) != NULL;
    keeper->part_length = 0;
}

static void take_output(struct keeper *keeper, const char *data, size_t size)
{
    for (size_t i = 0; i < size; i++) {
        if (data[i] == '\n')
            end_line(keeper);
        else if (keeper->part_length < sizeof keeper->part - 1)
            keeper->part[keeper->part_length++] = data[i];
    }
}

void monitor_read(struct keeper *keeper)
{
    char data[4096];
    ssize_t size = 1;
    for (int i = 0; keeper->output >= 0 && size > 0 && i < READS_A_TURN; i++) {
        size = read(keeper->output, data, sizeof data);
        if (size > 0)
            take_output(keeper, data, (size_t)size);
    }
    if (size != 0)
        return;
    end_line(keeper);
    close(keeper->output);
    keeper->output = -1;
}

void monitor_hear(struct keeper *keeper)
{
    char data[64];
    ssize_t size = recv(keeper->channel, data, sizeof data, MSG_DONTWAIT);
    if (size > 0)
        keeper->is_up = true;
    else if (size == 0 || errno != EAGAIN) { /* nobody has its other end: it ends, or wants no connections */
        close(keeper->channel);
        keeper->channel = -1;
    }
}

void monitor_reap(struct keeper *keeper)
{
    struct signalfd_siginfo ignored;
    int status = 0;
    pid_t pid;
    (void)!read(keeper->signals, &ignored, sizeof ignored);
    while ((pid = waitpid(-1, &status, WNOHANG | __WALL)) > 0) {
        if (pid != keeper->monitor)
            continue;
        keeper->has_ended = keeper->leaving = true;
        keeper->status = status;
        if (!keeper->end_boot_ns)
            keeper->exit_code = status == 0 ? KEEPER_ENDED : KEEPER_FAILED;
    }
}

/* ---- connections ---- */

static int connect_to_port(uint16_t port)
{
    const struct sockaddr_in to = {
        .sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int on = 1;
    AUTO_FD int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, IPPROTO_TCP);
    if (fd < 0)
        return -1;
    (void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    if (connect(fd, (const struct sockaddr *)&to, sizeof to) < 0 && errno != EINPROGRESS)
        return -1;
    return TAKE_FD(fd);
}

/* What comes from the other end is bytes: a descriptor that is sent with them would be closed by the front, which may
 * wait for that (socket(7), SO_LINGER). Linux 6.16; before it only who got out of the guest's kernel can send one. */
static void refuse_descriptors(int fd)
{
    const int off = 0;
    (void)setsockopt(fd, SOL_SOCKET, OPTION_PASSRIGHTS, &off, sizeof off);
}

int monitor_connect(const struct keeper *keeper)
{
    int pair[2];
    struct error err = {0};
    errno = ESHUTDOWN;
    if (keeper->end_boot_ns || keeper->has_ended)
        return -1;
    if (keeper->guest.port)
        return connect_to_port(keeper->guest.port);
    if (keeper->channel < 0 || socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) < 0)
        return -1;
    AUTO_FD int mine = pair[0];
    AUTO_FD int theirs = pair[1];
    refuse_descriptors(mine);
    if (fd_set_nonblocking(mine, &err) && fd_send_message(keeper->channel, "c", 1, &theirs, 1, &err))
        return TAKE_FD(mine);
    errno = err.system_errno;
    return -1;
}

void monitor_terminate(struct keeper *keeper, uint64_t grace_ms, int exit_code)
{
    if (keeper->end_boot_ns)
        return;
    keeper->exit_code = exit_code;
    keeper->end_boot_ns = clock_boot_ns() + grace_ms * MS_NS + 1;
    if (keeper->monitor > 0)
        (void)kill(keeper->monitor, SIGTERM);
    keeper_arm(keeper);
}
