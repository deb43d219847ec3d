/* mark.c - see mark.h; credentials(7), proc_pid_status(5). */
#include "sandboxd/init/mark.h"

#include "shared/base/text.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

enum {
    STATUS_BYTES = 8192, /* of /proc/<pid>/status; the groups stand in its first part */
    KILL_ROUNDS = 50,
    KILL_WAIT_US = 1000
};
static const gid_t HIGH = 0x40000000, HIGH_PLACES = 0x20000000 / MARKS, LOW = 60100;

static bool is_to_be_had(gid_t group)
{
    return syscall(SYS_setgroups, 1, &group) == 0 && syscall(SYS_setgroups, 0, NULL) == 0;
}

bool mark_choose(gid_t *first, struct error *err)
{
    gid_t random = 0;
    (void)!getrandom(&random, sizeof random, GRND_NONBLOCK); /* another guest beside this one is rare enough */
    gid_t high = HIGH + random % HIGH_PLACES * MARKS;
    if (is_to_be_had(high + MARKS - 1))
        *first = high;
    else if (is_to_be_had(LOW + MARKS - 1))
        *first = LOW;
    else
        return error_set_errno(err, ERROR_INTERNAL, "setgroups: commands cannot be told apart here");
    return true;
}

/* What one process is: how far it is, and whether it has a group of the range. */
struct look {
    bool is_alive, is_marked;
};

static const char *find_line(const char *text, const char *name)
{
    const char *at = strstr(text, name);
    return at ? at + strlen(name) : NULL;
}

static bool has_group(const char *groups, gid_t first, size_t count)
{
    while (*groups && *groups != '\n') {
        char *end;
        unsigned long group = strtoul(groups, &end, 10);
        if (end == groups)
            return false;
        if (group >= first && group < first + count)
            return true;
        groups = end + strspn(end, " \t");
    }
    return false;
}

static struct look look_at(int proc, const char *pid, gid_t first, size_t count)
{
    char path[32], text[STATUS_BYTES];
    struct look look = {0};
    if (!text_format(path, sizeof path, "%.16s/status", pid))
        return look;
    AUTO_FD int fd = openat(proc, path, O_RDONLY | O_CLOEXEC);
    ssize_t size = fd < 0 ? -1 : read(fd, text, sizeof text - 1);
    if (size <= 0)
        return look;
    text[size] = 0;
    /* A command names itself in the first line, but a newline in its name is escaped there. */
    const char *state = find_line(text, "\nState:\t"), *groups = find_line(text, "\nGroups:\t");
    look.is_alive = state && *state != 'Z' && *state != 'X';
    look.is_marked = groups && has_group(groups + strspn(groups, " "), first, count);
    return look;
}

size_t mark_signal(gid_t first, size_t count, int number)
{
    size_t found = 0;
    DIR *proc = opendir("/proc");
    const struct dirent *entry;
    while (proc && (entry = readdir(proc)) != NULL) {
        if (entry->d_name[0] < '1' || entry->d_name[0] > '9')
            continue;
        struct look look = look_at(dirfd(proc), entry->d_name, first, count);
        if (!look.is_marked || !look.is_alive)
            continue;
        found++;
        if (number != 0)
            (void)kill(atoi(entry->d_name), number);
    }
    if (proc)
        closedir(proc);
    return found;
}

/* In a child that may signal whatever is the user's, and is nobody's to signal: kill(2) looks at the sender's effective
 * id and at the target's other two. One system call, during which nothing is forked. */
static void signal_user(uid_t user, gid_t own, int number)
{
    pid_t pid = (pid_t)syscall(SYS_clone, SIGCHLD, NULL, NULL, NULL, NULL);
    if (pid == 0) {
        if (syscall(SYS_setresuid, own, user, own) == 0)
            (void)kill(-1, number);
        _exit(0);
    }
    while (pid > 0 && waitpid(pid, NULL, 0) < 0 && errno == EINTR) {
    }
}

/* What does not fork while it is looked at is found for certain: so who is always another process than a moment ago. */
static size_t kill_stopped(gid_t first, size_t count, uid_t user)
{
    signal_user(user, first, SIGSTOP);
    size_t found = mark_signal(first, count, SIGKILL);
    signal_user(user, first, SIGCONT);
    return found;
}

bool mark_kill(gid_t first, size_t count, uid_t user)
{
    for (int round = 0; round < KILL_ROUNDS; round++) {
        if (kill_stopped(first, count, user) == 0)
            return true;
        (void)usleep(KILL_WAIT_US); /* they are on their way */
    }
    return false;
}
