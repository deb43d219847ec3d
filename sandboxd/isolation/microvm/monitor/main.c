/* main.c - parley-microvm: see monitor.h. Usage: parley-microvm VMM MEMORY_MIB CPU_MILLI PIDS, by the keeper only: what
 * the sandbox is held to. Ends with 0 when the guest powered off, else with 1 and a line that says why. */
#include "sandboxd/isolation/microvm/monitor/monitor.h"

#include "sandboxd/isolation/microvm/microvm.h"
#include "shared/base/fd.h"
#include "shared/base/text.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>

enum {
    CONSOLE_BYTES = 64 * 1024, /* of it are passed on: a guest that floods its console fills no log */
    PIDS_MAX = 1 << 24,
    LINE_BYTES = 160 /* of what it said last are told again when it ends */
};

static const uint64_t MIB = 1024ULL * 1024;

/* What runs. A pid of 0 is nobody. */
struct running {
    pid_t files, machine, probe;
    int signals, console;                            /* descriptors to read */
    size_t passed;                                   /* bytes of the console */
    char line[LINE_BYTES + 1], part[LINE_BYTES + 1]; /* the last whole line that was not the kernel's; one that comes */
    size_t part_length;
    int status;    /* of the machine, once it ended */
    bool is_ready; /* the guest has answered */
};

/* What the file server may have open. */
static uint32_t most_files(void)
{
    struct rlimit files;
    return getrlimit(RLIMIT_NOFILE, &files) == 0 && files.rlim_max < UINT32_MAX ? (uint32_t)files.rlim_max : UINT32_MAX;
}

static bool read_arguments(int argc, char *argv[], const struct vmm **vmm, struct vmm_machine *machine,
                           struct boot_limits *limits, struct error *err)
{
    uint64_t memory_mib, cpu_milli, pids;
    if (argc != 5 || !text_parse_u64(argv[4], strlen(argv[4]), PIDS_MAX, &pids) ||
        !text_parse_u64(argv[2], strlen(argv[2]), 1 << 24, &memory_mib) ||
        !text_parse_u64(argv[3], strlen(argv[3]), UINT32_MAX, &cpu_milli))
        return error_set(err, ERROR_INVALID, "usage: " MICROVM_PROGRAM " VMM MEMORY_MIB CPU_MILLI PIDS");
    *vmm = vmm_find(argv[1], err);
    if (!*vmm || !vmm_memory(*vmm, memory_mib * MIB, &machine->memory_bytes, err))
        return false;
    *limits = (struct boot_limits){.pids = (uint32_t)pids, .inodes = most_files()};
    machine->cpus = vmm_cpus((uint32_t)cpu_milli);
    machine->host_port = machine->guest_port = MICROVM_PORT;
    return true;
}

/* The two ends of a connection that nothing else in the slot can make: its name is one that the kernel chose, and by
 * the time the file server accepts one connection and closes the listener there is one. */
static bool connect_files(int *listener, int *connected, struct error *err)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    socklen_t size = sizeof address;
    AUTO_FD int listening = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    AUTO_FD int other = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    const struct sockaddr *name = (const struct sockaddr *)&address;
    if (listening < 0 || other < 0 || bind(listening, name, offsetof(struct sockaddr_un, sun_path)) < 0 ||
        listen(listening, 1) < 0 || getsockname(listening, (struct sockaddr *)&address, &size) < 0 ||
        connect(other, name, size) < 0)
        return error_set_errno(err, ERROR_INTERNAL, "connect the monitor and the file server");
    *listener = TAKE_FD(listening);
    *connected = TAKE_FD(other);
    return true;
}

static int watch_children(struct error *err)
{
    sigset_t wanted;
    sigemptyset(&wanted);
    sigaddset(&wanted, SIGCHLD);
    int fd = sigprocmask(SIG_BLOCK, &wanted, NULL) == 0 ? signalfd(-1, &wanted, SFD_CLOEXEC | SFD_NONBLOCK) : -1;
    if (fd < 0)
        error_set_errno(err, ERROR_INTERNAL, "signalfd");
    return fd;
}

static bool start(struct running *running, const struct vmm *vmm, struct vmm_machine *machine,
                  const struct boot_limits *limits, struct error *err)
{
    char *letter = NULL;
    size_t size = 0;
    int console[2];
    AUTO_FD int listener = -1, connected = -1;
    AUTO_FD int kernel = open(MICROVM_FOLDER "/" MICROVM_KERNEL, O_RDONLY | O_CLOEXEC);
    if (kernel < 0 || pipe2(console, O_CLOEXEC) < 0)
        return error_set_errno(err, ERROR_INTERNAL, "open " MICROVM_FOLDER "/" MICROVM_KERNEL);
    AUTO_FD int errors = console[1];
    running->console = console[0];
    if (fchmod(errors, 0622) < 0) /* the monitor opens it once more, as another user */
        return error_set_errno(err, ERROR_INTERNAL, "fchmod of a pipe");
    running->signals = watch_children(err);
    if (running->signals < 0 || !machine_read_letter(STDIN_FILENO, &letter, &size, err))
        return false;
    AUTO_FD int initramfs = machine_make_initramfs(letter, size, limits, err);
    free(letter);
    if (initramfs < 0 || !places_make(err) || !connect_files(&listener, &connected, err))
        return false;
    machine->kernel = kernel;
    machine->initramfs = initramfs;
    machine->root_server = connected;
    machine->console = errors;
    machine->tsc_khz = machine_measure_tsc();
    return (running->files = programs_start_files(listener, errors, err)) > 0 &&
           (running->machine = programs_start_machine(vmm, machine, errors, err)) > 0 &&
           (running->probe = programs_start_probe(machine->host_port, err)) > 0;
}

/* "[   12.345678] ..." is the kernel's. */
static void remember(struct running *running, const char *bytes, size_t size)
{
    for (size_t i = 0; i < size; i++) {
        bool is_end = bytes[i] == '\n' || bytes[i] == '\r';
        if (!is_end && running->part_length < LINE_BYTES)
            running->part[running->part_length++] = bytes[i];
        if (!is_end || running->part_length == 0)
            continue;
        running->part[running->part_length] = '\0';
        if (running->part[0] != '[')
            memcpy(running->line, running->part, running->part_length + 1);
        running->part_length = 0;
    }
}

static void pass_console(struct running *running)
{
    char bytes[4096];
    ssize_t size = read(running->console, bytes, sizeof bytes);
    if (size <= 0) {
        close(running->console);
        running->console = -1;
        return;
    }
    remember(running, bytes, (size_t)size);
    size_t room = CONSOLE_BYTES - running->passed;
    size_t passed = (size_t)size < room ? (size_t)size : room;
    running->passed += passed;
    (void)!fd_write_all(STDERR_FILENO, bytes, passed, NULL);
}

/* False: it is over. */
static bool reap(struct running *running, struct error *err)
{
    struct signalfd_siginfo ignored;
    int status;
    pid_t pid;
    (void)!read(running->signals, &ignored, sizeof ignored);
    while ((pid = waitpid(-1, &status, WNOHANG)) > 0) {
        if (pid == running->probe && status != 0) {
            running->probe = 0;
            return error_set(err, ERROR_INTERNAL, "who asked whether the guest answers ended, wait status %d", status);
        }
        if (pid == running->probe) {
            const char ready = MICROVM_READY;
            running->probe = 0;
            running->is_ready = true;
            (void)!send(STDIN_FILENO, &ready, 1, MSG_NOSIGNAL | MSG_DONTWAIT);
        } else if (pid == running->machine) {
            running->machine = 0;
            running->status = status;
            return false;
        } else if (pid == running->files) {
            running->files = 0;
            return error_set(err, ERROR_GONE, "the file server ended, wait status %d", status);
        }
    }
    return true;
}

static void serve(struct running *running, struct error *err)
{
    bool goes_on = true;
    while (goes_on) {
        struct pollfd watched[] = {{.fd = running->signals, .events = POLLIN},
                                   {.fd = running->console, .events = POLLIN}};
        if (poll(watched, 2, -1) < 0 && errno != EINTR)
            return;
        if (watched[1].revents)
            pass_console(running);
        if (watched[0].revents)
            goes_on = reap(running, err);
    }
}

/* What it said last, before it ended, is in the pipe; nobody else writes much. */
static void drain_console(struct running *running)
{
    struct pollfd watched = {.fd = running->console, .events = POLLIN};
    while (running->console >= 0 && poll(&watched, 1, 0) == 1 && watched.revents & POLLIN)
        pass_console(running);
}

static void end_all(const struct running *running)
{
    const pid_t all[] = {running->machine, running->files, running->probe};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        if (all[i] > 0)
            kill(all[i], SIGKILL);
    }
}

/* How it ended; ERROR_NONE: the guest powered off, having served. */
static void judge_end(const struct running *running, struct error *err)
{
    if (err->kind == ERROR_NONE && !(WIFEXITED(running->status) && WEXITSTATUS(running->status) == 0))
        error_set(err, ERROR_GONE, "the machine's monitor ended, wait status %d: %s", running->status, running->line);
    else if (err->kind == ERROR_NONE && !running->is_ready)
        error_set(err, ERROR_GONE, "the guest ended before it answered: %s", running->line);
}

int main(int argc, char *argv[])
{
    struct running running = {.signals = -1, .console = -1};
    struct vmm_machine machine = {0};
    struct boot_limits limits = {0};
    const struct vmm *vmm = NULL;
    struct error err = {0};
    (void)prctl(PR_SET_DUMPABLE, 0, 0, 0, 0); /* the letter was here */
    if (read_arguments(argc, argv, &vmm, &machine, &limits, &err) && start(&running, vmm, &machine, &limits, &err)) {
        serve(&running, &err);
        drain_console(&running);
        judge_end(&running, &err);
    }
    end_all(&running);
    if (err.kind != ERROR_NONE)
        (void)fprintf(stderr, "microvm: %s\n", err.message);
    return err.kind == ERROR_NONE ? 0 : 1;
}
