/* programs.c - the file server, the monitor, and who asks whether the guest answers: see monitor.h. */
#include "sandboxd/isolation/microvm/monitor/monitor.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <linux/capability.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <time.h>

#define FILE_SERVER "/usr/lib/qemu/virtiofsd"

enum { NOBODY = 65534 };

/* A child that ends with its parent, hears all signals, and whose errors go to `errors`. */
static pid_t fork_child(int errors, struct error *err)
{
    pid_t parent = getpid();
    pid_t pid = fork();
    if (pid < 0)
        error_set_errno(err, ERROR_INTERNAL, "fork");
    if (pid != 0)
        return pid;
    sigset_t none;
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    int null = open("/dev/null", O_RDWR | O_CLOEXEC);
    if (prctl(PR_SET_PDEATHSIG, SIGKILL) < 0 || getppid() != parent || dup2(null, STDIN_FILENO) < 0 ||
        dup2(null, STDOUT_FILENO) < 0 || dup2(errors, STDERR_FILENO) < 0)
        _exit(127);
    return 0;
}

_Noreturn static void fail(const struct error *why)
{
    (void)fprintf(stderr, "microvm: %s\n", why->message);
    _exit(127);
}

static bool keep(int fd, struct error *err)
{
    return fcntl(fd, F_SETFD, 0) == 0 || error_set_errno(err, ERROR_INTERNAL, "fcntl");
}

/* It holds a descriptor for each inode that the guest knows. */
static void raise_file_limit(void)
{
    struct rlimit files;
    if (getrlimit(RLIMIT_NOFILE, &files) == 0) {
        files.rlim_cur = files.rlim_max;
        (void)setrlimit(RLIMIT_NOFILE, &files);
    }
}

pid_t programs_start_files(int listener, int errors, struct error *err)
{
    pid_t pid = fork_child(errors, err);
    if (pid != 0)
        return pid;
    struct error why = {0};
    char socket_argument[32];
    snprintf(socket_argument, sizeof socket_argument, "--fd=%d", listener);
    char *const environment[] = {NULL};
    char program[] = FILE_SERVER, foreground[] = "-f", option[] = "-o", limit[] = "--rlimit-nofile=0";
    char options[] =
        "source=" PLACES_FILES ",sandbox=chroot,cache=auto,announce_submounts,no_posix_lock,no_flock,log_level=err";
    char *const arguments[] = {program, foreground, socket_argument, limit, option, options, NULL};
    raise_file_limit();
    if (keep(listener, &why) && places_enter(true, &why)) {
        execve(program, arguments, environment);
        error_set_errno(&why, ERROR_INTERNAL, "start " FILE_SERVER);
    }
    fail(&why);
}

/* No capability, and no uid that owns a file of the slot. */
static bool give_up_rights(struct error *err)
{
    for (int number = 0; prctl(PR_CAPBSET_READ, number, 0, 0, 0) >= 0; number++) {
        if (prctl(PR_CAPBSET_DROP, number, 0, 0, 0) < 0)
            return error_set_errno(err, ERROR_INTERNAL, "drop capability %d", number);
    }
    struct __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3};
    struct __user_cap_data_struct none[2] = {{0}};
    if (setgroups(0, NULL) < 0 || setresgid(NOBODY, NOBODY, NOBODY) < 0 || setresuid(NOBODY, NOBODY, NOBODY) < 0 ||
        syscall(SYS_capset, &header, none) < 0 || prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0 ||
        prctl(PR_SET_PDEATHSIG, SIGKILL) < 0) /* again: a change of uid forgets it */
        return error_set_errno(err, ERROR_INTERNAL, "give up rights");
    return true;
}

pid_t programs_start_machine(const struct vmm *vmm, const struct vmm_machine *machine, int errors, struct error *err)
{
    static struct vmm_command command;
    if (!vmm->describe(machine, vmm->program, &command, err))
        return -1;
    pid_t pid = fork_child(errors, err);
    if (pid != 0)
        return pid;
    struct error why = {0};
    char *const environment[] = {NULL};
    if (keep(machine->kernel, &why) && keep(machine->initramfs, &why) && keep(machine->root_server, &why) &&
        keep(machine->console, &why) && places_enter(false, &why) && give_up_rights(&why)) {
        execve(vmm->program, command.arguments, environment);
        error_set_errno(&why, ERROR_INTERNAL, "start %s", vmm->program);
    }
    fail(&why);
}

/* --- does it answer? --- */

static bool speaks_http(uint16_t port)
{
    static const char QUESTION[] = "GET / HTTP/1.1\r\nHost: guest\r\nConnection: close\r\n\r\n";
    const struct sockaddr_in address = {
        .sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    const struct timeval patience = {.tv_sec = 1};
    char answer[5];
    AUTO_FD int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    return fd >= 0 && setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience) == 0 &&
           connect(fd, (const struct sockaddr *)&address, sizeof address) == 0 &&
           send(fd, QUESTION, sizeof QUESTION - 1, MSG_NOSIGNAL) == (ssize_t)sizeof QUESTION - 1 &&
           recv(fd, answer, sizeof answer, MSG_WAITALL) == (ssize_t)sizeof answer && memcmp(answer, "HTTP/", 5) == 0;
}

pid_t programs_start_probe(uint16_t port, struct error *err)
{
    static const struct timespec PAUSE = {.tv_nsec = 50000000};
    pid_t pid = fork_child(STDERR_FILENO, err);
    if (pid != 0)
        return pid;
    while (!speaks_http(port))
        nanosleep(&PAUSE, NULL);
    _exit(0);
}
