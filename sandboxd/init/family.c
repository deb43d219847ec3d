/* family.c - see family.h. */
#include "sandboxd/init/family.h"

#include "sandboxd/init/cgroup.h"
#include "sandboxd/init/command.h"
#include "sandboxd/init/mark.h"

#include <errno.h>
#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

bool family_is_marked(const struct init *init)
{
    return init->run < 0;
}

gid_t family_mark(const struct init *init, uint64_t serial)
{
    return family_is_marked(init) ? init->first_mark + (gid_t)(serial % MARKS) : 0;
}

/* ---- by cgroup ---- */

static pid_t clone_into_cgroup(struct init *init, uint64_t serial, struct error *err)
{
    AUTO_FD int directory = cgroup_make(init->run, serial, err);
    if (directory < 0)
        return -1;
    init->last_serial = serial;
    pid_t pid = cgroup_clone(directory, err);
    if (pid < 0)
        cgroup_remove(init->run, serial);
    return pid;
}

/* ---- by mark ---- */

static bool shares_mark(uint64_t serial, uint64_t other)
{
    return other != 0 && other % MARKS == serial % MARKS;
}

static bool is_taken(const struct init *init, uint64_t serial)
{
    bool is_taken = shares_mark(serial, init->spare.serial);
    for (size_t i = 0; i < init->count && !is_taken; i++)
        is_taken = shares_mark(serial, init->commands[i]->serial);
    for (size_t i = 0; i < INIT_HELPERS && !is_taken; i++)
        is_taken = shares_mark(serial, init->helpers[i].serial);
    return is_taken;
}

/* There are more marks than commands, helpers and the spare together. */
static uint64_t next_free(const struct init *init)
{
    uint64_t serial = init->last_serial + 1;
    while (is_taken(init, serial))
        serial++;
    return serial;
}

static pid_t clone_marked(struct init *init, uint64_t serial, struct error *err)
{
    init->last_serial = serial;
    pid_t pid = (pid_t)syscall(SYS_clone, SIGCHLD, NULL, NULL, NULL, NULL); /* as clone3: glibc hears nothing of it */
    if (pid < 0)
        error_set_errno(err, errno == EAGAIN || errno == ENOMEM ? ERROR_NO_CAPACITY : ERROR_INTERNAL, "clone");
    return pid;
}

/* ---- either ---- */

pid_t family_clone(struct init *init, uint64_t *serial, struct error *err)
{
    bool is_marked = family_is_marked(init);
    uint64_t next = is_marked ? next_free(init) : init->last_serial + 1;
    pid_t pid = is_marked ? clone_marked(init, next, err) : clone_into_cgroup(init, next, err);
    if (pid >= 0)
        *serial = next;
    return pid;
}

bool family_take(struct init *init, uint64_t *serial, pid_t pid, struct error *err)
{
    uint64_t next = init->last_serial + 1;
    if (family_is_marked(init))
        return error_set(err, ERROR_INTERNAL, "a process cannot change its family here");
    AUTO_FD int directory = cgroup_make(init->run, next, err);
    if (directory < 0)
        return false;
    init->last_serial = next;
    if (!cgroup_move(init->run, next, pid)) {
        cgroup_remove(init->run, next);
        return error_set(err, ERROR_INTERNAL, "the command's process could not be moved to its cgroup");
    }
    *serial = next;
    return true;
}

bool family_has(const struct init *init, uint64_t serial, pid_t pid)
{
    return !family_is_marked(init) && cgroup_has(init->run, serial, pid);
}

bool family_kill(const struct init *init, uint64_t serial)
{
    if (!family_is_marked(init))
        return cgroup_kill(init->run, serial);
    (void)mark_kill(family_mark(init, serial), 1, init->uid);
    return false; /* a first member may not have taken its mark yet */
}

void family_signal_all(const struct init *init, int number)
{
    if (family_is_marked(init)) {
        if (number == SIGKILL)
            (void)mark_kill(init->first_mark, MARKS, init->uid);
        else
            (void)mark_signal(init->first_mark, MARKS, number);
        return;
    }
    if (number == SIGKILL)
        cgroup_kill_all(init->run); /* also what is frozen; where the file is not ours, kill(2) does the rest */
    kill(-1, number);               /* all of this pid namespace but init: kill(2) */
}

bool family_is_any(const struct init *init)
{
    return mark_signal(init->first_mark, MARKS, 0) > 0;
}

bool family_remove(const struct init *init, uint64_t serial)
{
    return family_is_marked(init) ? mark_signal(family_mark(init, serial), 1, 0) == 0
                                  : cgroup_remove(init->run, serial);
}

int family_open_events(const struct init *init, uint64_t serial)
{
    return family_is_marked(init) ? -1 : cgroup_open_events(init->run, serial);
}

uint64_t family_cpu_us(const struct init *init, uint64_t serial)
{
    return family_is_marked(init) ? 0 : cgroup_cpu_us(init->run, serial);
}
