/* main.c - PID 1 of a microVM: see boot.h. */
#include "sandboxd/isolation/microvm/boot/boot.h"

#include "shared/base/fd.h"
#include "shared/base/memory.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/reboot.h>
#include <sys/wait.h>

enum { FRONT_TEXTS = 32, TEXTS_BYTES = 4096, LETTER_BYTES = 64 * 1024 };

/* What the guest's front is started with. */
struct front {
    char *arguments[FRONT_TEXTS + 1], *environment[FRONT_TEXTS + 1];
    int letter; /* to read it from */
    struct boot_limits limits;
    int group;         /* cgroup.procs */
    int count, caches; /* of inodes: boot_trim_inodes */
};

/* Borrowed from memory that is never freed: it is needed until execve(2). */
static bool read_texts(const char *path, char *list[static FRONT_TEXTS + 1], struct error *err)
{
    size_t size = 0, count = 0;
    char *text = fd_read_file(path, TEXTS_BYTES, &size, err);
    if (!text)
        return false;
    for (char *at = text; at < text + size && count < FRONT_TEXTS; at += strlen(at) + 1)
        list[count++] = at;
    return count > 0 || error_set(err, ERROR_INVALID, "%s is empty", path);
}

/* Into a pipe: when it has been read it is nowhere in this machine but in the reader. */
static bool read_letter(struct front *front, struct error *err)
{
    size_t size = 0;
    int ends[2];
    AUTO_FREE char *letter = fd_read_file("/" BOOT_LETTER, LETTER_BYTES, &size, err);
    if (!letter)
        return false;
    (void)unlink("/" BOOT_LETTER);
    if (pipe2(ends, O_CLOEXEC) < 0)
        return error_set_errno(err, ERROR_INTERNAL, "pipe");
    AUTO_FD int writer = ends[1];
    front->letter = ends[0];
    if (fcntl(writer, F_SETPIPE_SZ, LETTER_BYTES) < LETTER_BYTES)
        return error_set_errno(err, ERROR_INTERNAL, "size a pipe");
    bool written = fd_write_all(writer, letter, size, err);
    explicit_bzero(letter, size);
    return written;
}

static pid_t start_front(const struct front *front, struct error *err)
{
    pid_t pid = fork();
    if (pid < 0)
        error_set_errno(err, ERROR_INTERNAL, "fork");
    if (pid != 0)
        return pid;
    sigset_t none;
    sigemptyset(&none);
    if (sigprocmask(SIG_SETMASK, &none, NULL) == 0 && write(front->group, "0", 1) == 1 &&
        dup2(front->letter, STDIN_FILENO) == STDIN_FILENO && setsid() > 0)
        execve(front->arguments[0], front->arguments, front->environment);
    (void)fprintf(stderr, "microvm: start %s: %s\n", front->arguments[0], strerror(errno));
    _exit(127);
}

static bool boot(struct front *front, struct error *err)
{
    return read_texts("/" BOOT_ARGUMENTS, front->arguments, err) &&
           read_texts("/" BOOT_ENVIRONMENT, front->environment, err) && boot_read_limits(&front->limits, err) &&
           (front->group = boot_make_group(&front->limits, err)) >= 0 && read_letter(front, err) &&
           boot_load_modules(err) && boot_raise_network(err) && boot_enter_root(err);
}

static bool watch_children(struct front *front, struct error *err)
{
    sigset_t wanted;
    sigemptyset(&wanted);
    sigaddset(&wanted, SIGCHLD);
    front->count = open("/proc/sys/fs/inode-nr", O_RDONLY | O_CLOEXEC);
    front->caches = open("/proc/sys/vm/drop_caches", O_WRONLY | O_CLOEXEC);
    return (front->count >= 0 && front->caches >= 0 && sigprocmask(SIG_BLOCK, &wanted, NULL) == 0) ||
           error_set_errno(err, ERROR_INTERNAL, "open files of /proc/sys");
}

/* Until the front ends; orphans of the sandbox's commands come here too. Nothing tells how many inodes there are: once
 * a second is asked, in which an interpreted guest does not find half of what the file server may have open. */
static void reap_until_end_of(const struct front *front, pid_t pid)
{
    static const struct timespec SECOND = {.tv_sec = 1};
    int status = 0;
    pid_t ended = 0;
    sigset_t wanted;
    sigemptyset(&wanted);
    sigaddset(&wanted, SIGCHLD);
    while (ended != pid) {
        (void)sigtimedwait(&wanted, NULL, &SECOND);
        boot_trim_inodes(&front->limits, front->count, front->caches);
        do
            ended = waitpid(-1, &status, WNOHANG);
        while (ended > 0 && ended != pid);
    }
    if (WIFSIGNALED(status)) /* else it has said why itself */
        (void)fprintf(stderr, "microvm: the guest's front ended, signal %d\n", WTERMSIG(status));
}

int main(void)
{
    struct front front = {.letter = -1};
    struct error err = {0};
    pid_t pid = boot(&front, &err) && watch_children(&front, &err) ? start_front(&front, &err) : -1;
    if (pid > 0) {
        close(front.letter);
        reap_until_end_of(&front, pid);
    } else {
        (void)fprintf(stderr, "microvm: %s\n", err.message);
    }
    sync();
    (void)reboot(RB_POWER_OFF);
    return 1;
}
