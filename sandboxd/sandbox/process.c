/* process.c - the records of one sandbox's commands: from init's word that one started to the day it is forgotten. */
#include "sandboxd/sandbox/sandbox_internal.h"

#include "sandboxd/sandbox/usage.h"
#include "shared/base/clock.h"
#include "shared/base/log.h"
#include "shared/base/memory.h"

#include <string.h>
#include <sys/ioctl.h>
#include <sys/wait.h>

struct process *process_find(const struct sandbox *sandbox, const char *id)
{
    for (struct process *process = sandbox->processes_last; process; process = process->previous)
        if (strcmp(process->view.id, id) == 0)
            return process;
    return NULL;
}

struct process_tomb *process_find_tomb(const struct sandbox *sandbox, const char *id)
{
    for (struct process_tomb *tomb = sandbox->tombs; tomb; tomb = tomb->next)
        if (strcmp(tomb->view.id, id) == 0)
            return tomb;
    return NULL;
}

bool process_drop_tomb(struct sandbox *sandbox, const char *id)
{
    struct process_tomb *before = NULL, *tomb = sandbox->tombs;
    for (; tomb && strcmp(tomb->view.id, id) != 0; tomb = tomb->next)
        before = tomb;
    if (!tomb)
        return false;
    if (before)
        before->next = tomb->next;
    else
        sandbox->tombs = tomb->next;
    if (sandbox->tombs_last == tomb)
        sandbox->tombs_last = before;
    sandbox->tomb_count--;
    free(tomb);
    return true;
}

struct process *process_new(struct sandbox *sandbox, const char *id)
{
    struct process *process = memory_new(sizeof *process);
    process->sandbox = sandbox;
    process->view.started_ms = clock_wall_ms(); /* until init says better */
    memcpy(process->view.id, id, strlen(id) + 1);
    for (int i = 0; i < OUTPUT_STREAMS; i++)
        process->streams[i] = (struct process_stream){.process = process, .which = (enum output_stream)i};
    process->oom_before = usage_oom_kills(sandbox->stats[FL_FD_OOM]);
    process->previous = sandbox->processes_last;
    if (sandbox->processes_last)
        sandbox->processes_last->next = process;
    else
        sandbox->processes = process;
    sandbox->processes_last = process;
    sandbox->process_count++;
    sandbox->running_count++;
    return process;
}

void process_show(const struct process *process, struct process_view *view)
{
    *view = process->view;
    view->stdin_open = process->input && !process->input->is_ended;
    if (process->terminal)
        terminal_size(process->terminal, &view->columns, &view->rows);
    for (int i = 0; i < OUTPUT_STREAMS; i++)
        if (process->streams[i].output) {
            view->length[i] = process->streams[i].output->length;
            view->kept_from[i] = process->streams[i].output->kept_from;
        }
}

void process_keep_line(struct process *process, const struct command *command)
{
    char *line = command_text(command);
    size_t size = strlen(line) + 1;
    if (process->sandbox->line_bytes + size > SANDBOX_LINES_BYTES) {
        free(line);
        return;
    }
    process->sandbox->line_bytes += size;
    process->line = line;
}

void process_drop_line(struct process *process)
{
    if (process->line)
        process->sandbox->line_bytes -= strlen(process->line) + 1;
    free(TAKE(process->line));
}

/* ---- followers ---- */

static void drop_follower(struct process_follower **at)
{
    struct process_follower *holder = *at;
    *at = holder->next;
    follower_detach(holder->follower);
    follower_release(holder->follower);
    free(holder);
}

static void on_follower_moved(void *owner)
{
    struct process_follower *holder = owner;
    struct process *process = holder->process;
    if (follower_has_left(holder->follower)) {
        struct process_follower **at = &process->followers;
        while (*at != holder)
            at = &(*at)->next;
        drop_follower(at);
    }
    process_output_resume(process);
}

static void tell_started(const struct process *process, struct follower *follower)
{
    struct process_view view;
    process_show(process, &view);
    struct output *outputs[OUTPUT_STREAMS] = {process->streams[0].output, process->streams[1].output};
    follower_tell_started(follower, outputs, &view);
}

static void tell_ended(const struct process *process, struct follower *follower)
{
    struct process_view view;
    process_show(process, &view);
    follower_tell_ended(follower, &view);
}

void process_attach(struct process *process, struct follower *follower)
{
    struct process_follower *holder = memory_new(sizeof *holder);
    *holder =
        (struct process_follower){.next = process->followers, .process = process, .follower = follower_hold(follower)};
    process->followers = holder;
    follower_attach(follower, on_follower_moved, holder);
    if (process->end_told) /* first, so that who looks once at its start sees the end too */
        tell_ended(process, follower);
    if (process->state != PROCESS_STARTING)
        tell_started(process, follower);
    if (follower_has_left(follower)) /* before it was attached, so that nobody posted it */
        on_follower_moved(holder);
    else
        process_output_resume(process); /* a driver that is back ends the hold */
}

/* ---- the audit ---- */

/* What comes after is of no interest to it any more. */
static void tell_over(struct process *process, const struct process_end *end, const struct error *why)
{
    const struct sandboxes_options *options = &process->sandbox->all->options;
    AUTO_FREE char *origin = TAKE(process->origin);
    struct process_deed deed = {.sandbox_id = process->sandbox->facts.id,
                                .process_id = process->view.id,
                                .origin = origin,
                                .end = end,
                                .why = why};
    if (options->command_ended)
        options->command_ended(options->context, &deed);
}

void process_tell_gone(struct sandbox *sandbox, const struct error *why)
{
    for (struct process *process = sandbox->processes; process; process = process->next)
        if (process->state != PROCESS_ENDED)
            tell_over(process, NULL, why);
}

/* ---- the end of records ---- */

static void bury(struct process *process)
{
    struct sandbox *sandbox = process->sandbox;
    struct process_tomb *tomb = memory_new(sizeof *tomb);
    process_show(process, &tomb->view);
    tomb->view.output_gone = true;
    memcpy(tomb->hash, process->hash, sizeof tomb->hash);
    tomb->hash_known = process->hash_known;
    if (sandbox->tombs_last)
        sandbox->tombs_last->next = tomb;
    else
        sandbox->tombs = tomb;
    sandbox->tombs_last = tomb;
    if (++sandbox->tomb_count <= PROCESS_TOMBS_MAX)
        return;
    struct process_tomb *oldest = sandbox->tombs;
    sandbox->tombs = oldest->next;
    sandbox->tomb_count--;
    free(oldest);
}

void process_free(struct process *process)
{
    struct sandbox *sandbox = process->sandbox;
    struct error gone = {0};
    error_set(&gone, ERROR_CONFLICT, "command %s is over", process->view.id);
    process_input_close(process, &gone);
    free(process->origin);
    process_drop_line(process);
    loop_timer_cancel(process->end_timer);
    loop_timer_cancel(process->stop_timer);
    while (process->followers)
        drop_follower(&process->followers);
    for (int i = 0; i < OUTPUT_STREAMS; i++)
        process_output_close(&process->streams[i]);
    process_close_terminal(process);
    if (process->previous)
        process->previous->next = process->next;
    else
        sandbox->processes = process->next;
    if (process->next)
        process->next->previous = process->previous;
    else
        sandbox->processes_last = process->previous;
    sandbox->process_count--;
    sandbox->running_count -= process->state != PROCESS_ENDED;
    free(process);
}

void process_forget(struct process *process)
{
    struct front_init_message message = {.type = FI_KILL};
    memcpy(message.as.name.id, process->view.id, sizeof message.as.name.id);
    struct error err = {0};
    if (process->stop_timer) /* afterwards nobody would know what it left behind */
        (void)!sandbox_send(process->sandbox, &message, -1, &err);
    message.type = FI_FORGET;
    if (!sandbox_send(process->sandbox, &message, -1, &err))
        log_warn("sandbox", "init was not told to forget a command: %s sandbox=%s", err.message,
                 process->sandbox->facts.id);
    if (process->named)
        bury(process);
    process_free(process);
}

static void on_forget_timer(void *cookie);

/* The next one whose replay time is over. It runs from the day the end is told: before, a driver that is behind has yet
 * to take what the command wrote. */
static void plan_forgetting(struct sandbox *sandbox)
{
    loop_timer_cancel(TAKE(sandbox->forget_timer));
    uint64_t next = UINT64_MAX;
    for (const struct process *process = sandbox->processes; process; process = process->next)
        if (process->end_told && process->forget_at < next)
            next = process->forget_at;
    if (next != UINT64_MAX)
        sandbox->forget_timer = loop_timer_start(sandbox->loop, next, on_forget_timer, sandbox);
}

static void on_forget_timer(void *cookie)
{
    struct sandbox *sandbox = cookie;
    sandbox->forget_timer = NULL;
    uint64_t now = clock_boot_ns();
    for (struct process *process = sandbox->processes, *next; process; process = next) {
        next = process->next;
        if (process->end_told && process->forget_at <= now)
            process_forget(process);
    }
    plan_forgetting(sandbox);
}

unsigned process_commands_max(const struct sandbox *sandbox)
{
    unsigned max = sandbox->facts.limits.commands;
    return max > 0 && max < PROCESS_COMMANDS_MAX ? max : PROCESS_COMMANDS_MAX;
}

uint64_t process_kept_max(const struct sandbox *sandbox)
{
    uint64_t max = sandbox->facts.limits.output_bytes;
    return max > 0 ? max : SANDBOX_KEPT_BYTES;
}

static bool has_room(const struct sandbox *sandbox)
{
    int64_t max = sandbox->all->descriptors_max;
    return sandbox->process_count < PROCESS_RECORDS_MAX && sandbox->descriptors + PROCESS_DESCRIPTORS <= max / 4 &&
           sandbox->all->descriptors + PROCESS_DESCRIPTORS <= max;
}

void process_forget_half(struct sandbox *sandbox)
{
    size_t count = 0;
    for (const struct process *process = sandbox->processes; process; process = process->next)
        count += process->state == PROCESS_ENDED && process->end_told;
    for (struct process *process = sandbox->processes, *next; process && count > 1; process = next) {
        next = process->next;
        if (process->state != PROCESS_ENDED || !process->end_told)
            continue;
        process_forget(process);
        count -= 2; /* it, and one that stays for it */
    }
}

bool process_make_room(struct sandbox *sandbox)
{
    sandboxes_shed(sandbox->all);
    if (sandbox->running_count >= process_commands_max(sandbox))
        return false;
    for (struct process *process = sandbox->processes, *next; process && !has_room(sandbox); process = next) {
        next = process->next;
        if (process->state == PROCESS_ENDED && process->end_told)
            process_forget(process);
    }
    return has_room(sandbox);
}

void process_fail_starting(struct sandbox *sandbox, const struct error *err)
{
    for (struct process *process = sandbox->processes, *next; process; process = next) {
        next = process->next;
        if (process->state != PROCESS_STARTING)
            continue;
        if (sandbox->ending) /* else init tells upon the next connection whether it started */
            tell_over(process, NULL, err);
        for (const struct process_follower *holder = process->followers; holder; holder = holder->next)
            follower_tell_failed(holder->follower, err);
        process_free(process);
    }
}

void process_free_all(struct sandbox *sandbox, const struct error *err)
{
    while (sandbox->processes) {
        struct process *process = sandbox->processes;
        for (const struct process_follower *holder = process->followers; holder; holder = holder->next)
            follower_tell_failed(holder->follower, err);
        process_free(process);
    }
    for (struct process_tomb *tomb = sandbox->tombs, *next; tomb; tomb = next) {
        next = tomb->next;
        free(tomb);
    }
    sandbox->tombs = sandbox->tombs_last = NULL;
    loop_timer_cancel(TAKE(sandbox->forget_timer));
}

/* ---- what init says ---- */

static void fill_view(struct process *process, const struct fi_started *started)
{
    process->view.pid = started->pid;
    process->view.started_ms = started->start_wall_ms;
    process->view.timeout_ms = started->timeout_ms;
    process->view.stdin_offset = started->stdin_bytes;
    process->input_ended = !started->has_stdin;
    if (!process->view.title[0]) /* ours, when we started it; init's for a command of an earlier front */
        memcpy(process->view.title, started->title, sizeof process->view.title);
}

/* Of an earlier front, if they are what they seem; then this process has fewer descriptors than that one. */
static void note_left_out(struct sandbox *sandbox)
{
    sandbox->left_out++;
    if ((sandbox->left_out & (sandbox->left_out - 1)) == 0)
        log_warn("sandbox", "init tells of more commands than there is room for: left out sandbox=%s count=%u",
                 sandbox->facts.id, sandbox->left_out);
}

void process_started(struct sandbox *sandbox, const struct fi_started *started, int *fds)
{
    struct process *process = process_find(sandbox, started->id);
    if (process && process->state != PROCESS_STARTING)
        return; /* told again after a reconnection: ours are the same open files */
    bool is_ours = process != NULL;
    if (!is_ours && (sandbox->process_count >= FRONT_INIT_COMMANDS || !has_room(sandbox))) {
        note_left_out(sandbox);
        return;
    }
    if (!is_ours) {
        process = process_new(sandbox, started->id);
        process->named = true; /* perhaps */
    }
    fill_view(process, started);
    struct error err = {0};
    if (!process_open_streams(process, started, fds, &err)) {
        struct error lie = err;
        error_set(&err, ERROR_INTERNAL, "the sandbox's init does not say what it should: %s", lie.message);
        if (is_ours) /* else no exec was recorded that this could be the end of */
            tell_over(process, NULL, &err);
        for (const struct process_follower *holder = process->followers; holder; holder = holder->next)
            follower_tell_failed(holder->follower, &err);
        process_free(process);
        init_link_accuse(sandbox->link, lie.message);
        return;
    }
    process->state = PROCESS_RUNNING;
    for (const struct process_follower *holder = process->followers; holder; holder = holder->next)
        tell_started(process, holder->follower);
    process_input_start(process);
}

void process_refused(struct sandbox *sandbox, const struct fi_refused *refused)
{
    struct process *process = process_find(sandbox, refused->id);
    if (!process || process->state != PROCESS_STARTING)
        return;
    struct error err = refused->error;
    if (err.kind == ERROR_NOT_FOUND) /* a missing command or folder is the asker's mistake, not a missing route */
        err.kind = ERROR_INVALID;
    if (err.kind != ERROR_INVALID && err.kind != ERROR_NO_CAPACITY && err.kind != ERROR_CONFLICT &&
        err.kind != ERROR_GONE && err.kind != ERROR_FORBIDDEN)
        err.kind = ERROR_INTERNAL;
    tell_over(process, NULL, &err);
    for (const struct process_follower *holder = process->followers; holder; holder = holder->next)
        follower_tell_failed(holder->follower, &err);
    process_free(process);
}

static void fill_end(struct process *process, const struct fi_exited *exited)
{
    struct process_end *end = &process->view.end;
    bool signaled = WIFSIGNALED(exited->wait_status);
    end->signal = signaled ? WTERMSIG(exited->wait_status) : 0;
    end->exit_code = signaled ? 128 + end->signal : WEXITSTATUS(exited->wait_status);
    end->timed_out = exited->timed_out != 0;
    end->wall_ms = exited->wall_ms;
    end->cpu_ms = exited->cpu_ms;
    end->max_rss_bytes = exited->max_rss_bytes;
    end->ended_ms = exited->end_wall_ms;
    /* 137: a shell passes on what its child died of. */
    bool killed = end->exit_code == 128 + 9 && !exited->timed_out && !exited->killed;
    end->oom = killed && usage_oom_kills(process->sandbox->stats[FL_FD_OOM]) > process->oom_before;
}

static const uint64_t END_LOOK_NS = 1000000000;
static const uint64_t TERMINAL_END_NS = 100000000;  /* programs in the foreground get SIGHUP, and may say something */
static const uint64_t TERMINAL_LEFT_BYTES = 131072; /* more than a terminal and a pipe hold */

/* The end waits for bytes that were in a pipe, and no event tells when somebody inside took them out. */
static void look_for_end(void *cookie)
{
    struct process *process = cookie;
    process->end_timer = NULL;
    struct process_stream *stdout_stream = &process->streams[OUTPUT_STDOUT];
    if (process->terminal && stdout_stream->end_at == UINT64_MAX)
        stdout_stream->end_at = stdout_stream->output->length + TERMINAL_LEFT_BYTES;
    for (int i = 0; i < OUTPUT_STREAMS; i++)
        process_output_pump(&process->streams[i]);
    if (!process->end_told)
        process->end_timer =
            loop_timer_start(process->sandbox->loop, clock_boot_ns() + END_LOOK_NS, look_for_end, process);
}

/* All it wrote itself is in the pipe now; what its children write later does not delay the end. */
static void find_end(struct process_stream *stream)
{
    int pending = 0;
    if (!stream->pipe)
        return;
    if (ioctl(loop_watch_fd(stream->pipe), FIONREAD, &pending) != 0)
        pending = 0;
    stream->end_at = stream->output->length + (uint64_t)(pending > 0 ? pending : 0);
    if (stream->process->terminal) /* others may have it open, and are on their way out */
        stream->end_at = UINT64_MAX;
}

void process_exited(struct sandbox *sandbox, const struct fi_exited *exited)
{
    struct process *process = process_find(sandbox, exited->id);
    if (!process || process->state != PROCESS_RUNNING)
        return;
    fill_end(process, exited);
    process->state = PROCESS_ENDED; /* a stop_timer goes on: what it left behind has until then */
    sandbox->running_count--;
    process->view.ended = true;
    tell_over(process, &process->view.end, NULL);
    struct error closed = {0};
    error_set(&closed, ERROR_CONFLICT, "command %s has ended", process->view.id);
    process_input_abandon(process, &closed);
    for (int i = 0; i < OUTPUT_STREAMS; i++)
        find_end(&process->streams[i]);
    for (int i = 0; i < OUTPUT_STREAMS; i++)
        process_output_pump(&process->streams[i]);
    process_check_end(process);
    if (!process->end_told)
        process->end_timer = loop_timer_start(process->sandbox->loop,
                                              clock_boot_ns() + (process->terminal ? TERMINAL_END_NS : END_LOOK_NS),
                                              look_for_end, process);
}

void process_check_end(struct process *process)
{
    if (process->state != PROCESS_ENDED || process->end_told)
        return;
    for (int i = 0; i < OUTPUT_STREAMS; i++)
        if (process->streams[i].pipe && process->streams[i].output->length < process->streams[i].end_at)
            return;
    process->end_told = true;
    process->forget_at = clock_boot_ns() + (process->view.leaving ? 0 : PROCESS_REPLAY_NS);
    if (!process->sandbox->forget_timer ||
        process->view.leaving) /* else it is set for one whose end was told earlier */
        plan_forgetting(process->sandbox);
    for (const struct process_follower *holder = process->followers; holder; holder = holder->next)
        tell_ended(process, holder->follower);
    for (int i = 0; i < OUTPUT_STREAMS; i++) /* most commands leave one of them empty: no descriptor for nothing */
        if (!process->streams[i].pipe && process->streams[i].output && process->streams[i].output->length == 0)
            process_output_close(&process->streams[i]);
    if (!process->view.terminal)
        return;
    process_output_end(&process->streams[OUTPUT_STDOUT]);
    process_tell_end_of_input(process); /* a sandbox has few terminals */
}
