/* command.c - the table of commands and what becomes of each; starting one is start.c. */
#include "sandboxd/init/command.h"

#include "sandboxd/init/connection.h"
#include "sandboxd/init/deadline.h"
#include "sandboxd/init/family.h"
#include "sandboxd/init/orders.h"
#include "shared/base/clock.h"
#include "shared/base/text.h"

#include <errno.h>
#include <signal.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/wait.h>

static bool has_ended(const struct command *command)
{
    return command->state != COMMAND_STARTING && command->state != COMMAND_RUNNING;
}

struct command *command_find(struct init *init, const char *id)
{
    for (size_t i = 0; i < init->count; i++) {
        if (init->commands[i]->state != COMMAND_FORGOTTEN && text_equal(init->commands[i]->id, id))
            return init->commands[i];
    }
    return NULL;
}

struct command *command_find_pid(struct init *init, pid_t pid)
{
    for (size_t i = 0; i < init->count; i++) {
        if (!has_ended(init->commands[i]) && init->commands[i]->pid == pid)
            return init->commands[i];
    }
    return NULL;
}

void command_add(struct command *command, struct init *init)
{
    init->commands[init->count++] = command;
    deadline_consider(init, command->due_boot_ns);
}

static void take_out(const struct command *command, struct init *init)
{
    for (size_t i = 0; i < init->count; i++) {
        if (init->commands[i] != command)
            continue;
        init->count--;
        memmove(&init->commands[i], &init->commands[i + 1], (init->count - i) * sizeof(struct command *));
        return;
    }
}

void command_free(struct command *command, struct init *init)
{
    if (command->is_untold)
        TAILQ_REMOVE(&init->untold, command, link);
    order_end(command, init);
    watch_end(init, &command->watch);
    streams_close(&command->streams);
    free(command);
}

/* True when nothing of it is left in the kernel. */
static bool remove_directory(struct command *command, struct init *init)
{
    if (command->serial != 0 && !family_remove(init, command->serial))
        return false;
    command->serial = 0;
    watch_end(init, &command->watch);
    return true;
}

static void free_when_forgotten(struct command *command, struct init *init)
{
    if (command->state != COMMAND_FORGOTTEN)
        return;
    take_out(command, init);
    command_free(command, init);
}

static void on_directory_event(struct init *init, struct watch *watch, uint32_t events)
{
    char text[128];
    (void)events;
    /* Reading first: a change after it wakes us again, one before it is seen by rmdir. */
    ssize_t size = pread(watch->fd, text, sizeof text, 0);
    if (remove_directory(watch->owner, init))
        free_when_forgotten(watch->owner, init);
    else if (size < 0)
        watch_end(init, watch); /* rather no event than one without end; FORGET tries again */
}

/* Removes the directory, or waits for the last process in it to go. */
static void leave_directory(struct command *command, struct init *init)
{
    if (remove_directory(command, init) || command->watch.fd >= 0)
        return;
    int fd = family_open_events(init, command->serial);
    if (fd < 0)
        return;
    command->watch.ready = on_directory_event;
    /* The first event comes at once: a fresh cgroup.events counts as changed, so no end is missed. */
    if (!watch_add(init, &command->watch, fd, EPOLLPRI, NULL))
        return;
}

void command_orphan_reaped(struct init *init)
{
    if (!family_is_marked(init)) /* else their cgroups tell */
        return;
    for (size_t i = init->count; i > 0; i--) {
        struct command *command = init->commands[i - 1];
        if (command->serial != 0 && has_ended(command) && remove_directory(command, init))
            free_when_forgotten(command, init);
    }
}

static void refuse(struct command *command, struct init *init)
{
    take_out(command, init);
    command->state = COMMAND_REFUSED;
    order_end(command, init);
    watch_end(init, &command->watch);
    streams_close(&command->streams);
    connection_tell(init, command);
}

void command_refuse(struct command *command, struct init *init, const struct error *why)
{
    command->refusal = *why;
    refuse(command, init);
}

void command_runs(struct command *command, struct init *init)
{
    command->state = COMMAND_RUNNING;
    connection_tell(init, command);
}

void command_settle(struct command *command, struct init *init)
{
    struct error refusal;
    ssize_t size = read(command->watch.fd, &refusal, sizeof refusal);
    if (size < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    watch_end(init, &command->watch);
    if (size != (ssize_t)sizeof refusal) {
        command_runs(command, init);
        return;
    }
    /* The child is about to leave: the front is told once it was reaped and its cgroup can be removed. */
    refusal.message[sizeof refusal.message - 1] = 0;
    refusal.message[text_utf8_prefix(refusal.message, strlen(refusal.message))] = 0;
    if (refusal.kind <= ERROR_NONE || refusal.kind >= ERROR_KINDS)
        refusal.kind = ERROR_INTERNAL;
    command->refusal = refusal;
}

static uint64_t cpu_ms_of(const struct command *command, const struct init *init, const struct rusage *usage)
{
    uint64_t seconds = (uint64_t)usage->ru_utime.tv_sec + (uint64_t)usage->ru_stime.tv_sec;
    uint64_t waited_us = seconds * 1000000 + (uint64_t)usage->ru_utime.tv_usec + (uint64_t)usage->ru_stime.tv_usec;
    /* wait4(2) knows the children it waited for; the cgroup also those that were orphaned. */
    uint64_t cgroup_us = family_cpu_us(init, command->serial);
    return (cgroup_us > waited_us ? cgroup_us : waited_us) / 1000;
}

void command_reaped(struct command *command, struct init *init, int status, const struct rusage *usage)
{
    if (command->state == COMMAND_STARTING && command->watch.fd >= 0)
        command_settle(command, init); /* its end of the pipe is closed: this reads an error or the end */
    if (command->refusal.kind != ERROR_NONE) {
        family_remove(init, command->serial);
        refuse(command, init);
        return;
    }
    bool by_kill = WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL;
    command->exited = (struct fi_exited){
        .timed_out = command->timed_out && by_kill,
        .killed = command->killed && !command->timed_out,
        .wait_status = status,
        .wall_ms = (clock_boot_ns() - command->start_boot_ns) / 1000000,
        .cpu_ms = cpu_ms_of(command, init, usage),
        .max_rss_bytes = (uint64_t)usage->ru_maxrss * 1024,
        .end_wall_ms = clock_wall_ms(),
    };
    memcpy(command->exited.id, command->id, sizeof command->id);
    command->state = COMMAND_ENDED;
    command->due_boot_ns = 0;
    leave_directory(command, init);
    connection_tell(init, command);
    init->spare_due = true;
}

void command_kill(struct command *command, struct init *init)
{
    if (command->order) {
        order_abandon(command, init, ERROR_GONE, "it was killed before it began");
        return;
    }
    if (!has_ended(command))
        command->killed = true;
    if (command->serial != 0 && family_kill(init, command->serial))
        return;
    if (!has_ended(command)) {
        kill(-command->pid, SIGKILL);
        kill(command->pid, SIGKILL);
    }
}

void command_time_out(struct command *command, struct init *init)
{
    bool killed = command->killed;
    command->due_boot_ns = 0;
    if (command->order) {
        order_abandon(command, init, ERROR_TIMEOUT, "its time was over before it began");
        return;
    }
    command->timed_out = !killed;
    command_kill(command, init);
    command->killed = killed;
}

void command_signal(struct command *command, struct init *init, int number)
{
    if (has_ended(command))
        return; /* its pid may be another's by now */
    if (command->order) {
        order_signal(command, init, number);
        return;
    }
    if (number == SIGKILL && family_kill(init, command->serial))
        return;
    if (kill(-command->pid, number) < 0 && errno == ESRCH)
        kill(command->pid, number); /* before its setsid(2) */
}

void command_end_stdin(struct command *command)
{
    if (!command->streams.is_terminal)
        streams_end_stdin(&command->streams);
    else if (command->state == COMMAND_ENDED)
        streams_end_terminal(&command->streams);
}

void command_forget(struct command *command, struct init *init)
{
    if (command->state != COMMAND_ENDED)
        return;
    command->state = COMMAND_FORGOTTEN;
    if (command->is_untold) {
        TAILQ_REMOVE(&init->untold, command, link);
        command->is_untold = false;
    }
    streams_close(&command->streams);
    leave_directory(command, init);
    if (command->serial == 0)
        free_when_forgotten(command, init);
}
