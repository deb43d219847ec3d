/* sandbox.c - the life of one sandbox on its loop: told of by the launcher, reached at init, used, ended. */
#include "sandboxd/sandbox/sandbox_internal.h"

#include "sandboxd/sandbox/executions/executions_internal.h"
#include "sandboxd/sandbox/files_pool.h"
#include "sandboxd/sandbox/paused_marks.h"
#include "sandboxd/sandbox/ports/ports_internal.h"
#include "sandboxd/sandbox/programs.h"
#include "sandboxd/sandbox/usage.h"
#include "shared/base/clock.h"
#include "shared/base/log.h"
#include "shared/base/memory.h"

#include <string.h>

enum { TERMINATE_GRACE_MS = 10000, ENTRYPOINT_MS = 60000 };
static const uint64_t SECOND_NS = UINT64_C(1000000000);
static const uint64_t TOUCH_NS = UINT64_C(500000000);

struct sandbox *sandbox_find(struct sandboxes *all, const char *id)
{
    return registry_seat(all->registry, id);
}

void sandbox_touch(struct sandbox *sandbox)
{
    uint64_t now = clock_boot_ns();
    if (now - sandbox->touched_at < TOUCH_NS)
        return;
    sandbox->touched_at = now;
    registry_touch(sandbox->all->registry, sandbox->facts.id, clock_wall_ms());
}

void sandbox_sample(struct sandbox *sandbox)
{
    uint64_t now = clock_boot_ns(), cpu_ms = usage_cpu_ms(sandbox->stats[FL_FD_CPU]);
    uint64_t passed_ms = (now - sandbox->sampled_at) / 1000000, spent_ms = cpu_ms - sandbox->cpu_ms;
    bool busy = sandbox->sampled_at != 0 && cpu_ms > sandbox->cpu_ms && spent_ms * 100 >= passed_ms;
    sandbox->sampled_at = now;
    sandbox->cpu_ms = cpu_ms;
    const struct registry_usage usage = {.cpu_ms = cpu_ms,
                                         .memory_bytes = usage_memory_bytes(sandbox->stats[FL_FD_MEMORY]),
                                         .disk_bytes = sandbox->disk_bytes,
                                         .pids = usage_pids(sandbox->stats[FL_FD_PIDS])};
    registry_used(sandbox->all->registry, sandbox->facts.id, &usage);
    if (busy)
        sandbox_touch(sandbox);
    if (!sandbox->ending && (sandbox->disk_asked_at == 0 || sandbox->touched_at > sandbox->disk_asked_at))
        sandbox_measure_disk(sandbox);
}

void sandbox_count_descriptors(struct sandbox *sandbox, int change)
{
    sandbox->descriptors += change;
    atomic_fetch_add_explicit(&sandbox->all->descriptors, change, memory_order_relaxed);
}

/* ---- the link to init ---- */

static void on_current(struct sandbox *sandbox)
{
    sandbox->current = true;
    kernels_adopt(sandbox);
    execution_orphans_end(sandbox);
    sandbox_run_waiting(sandbox);
}

static uint64_t deadline_boot_ns(const struct sandbox *sandbox)
{
    int64_t left_ms = sandbox->facts.deadline_wall_ms - clock_wall_ms();
    return clock_boot_ns() + (left_ms > 0 ? (uint64_t)left_ms * UINT64_C(1000000) : 1);
}

/* init keeps the hard deadline too, on CLOCK_BOOTTIME. */
static void tell_deadline(struct sandbox *sandbox)
{
    struct front_init_message message = {.type = FI_DEADLINE};
    message.as.deadline.boot_ns = deadline_boot_ns(sandbox);
    struct error err = {0};
    if (!sandbox_send(sandbox, &message, -1, &err))
        log_warn("sandbox", "init was not told its new deadline: %s sandbox=%s", err.message, sandbox->facts.id);
}

/* The front that moved the deadline may have gone before it told init. */
static void on_welcome(struct sandbox *sandbox, const struct fi_welcome *welcome)
{
    uint64_t wanted = deadline_boot_ns(sandbox), has = welcome->deadline_boot_ns;
    if (has > wanted + SECOND_NS || wanted > has + SECOND_NS)
        tell_deadline(sandbox);
}

static void on_message(void *cookie, const struct front_init_message *message, int *fds, size_t fd_count UNUSED)
{
    struct sandbox *sandbox = cookie;
    if (message->type == FI_STARTED)
        process_started(sandbox, &message->as.started, fds);
    else if (message->type == FI_REFUSED)
        process_refused(sandbox, &message->as.refused);
    else if (message->type == FI_EXITED)
        process_exited(sandbox, &message->as.exited);
    else if (message->type == FI_WELCOME)
        on_welcome(sandbox, &message->as.welcome);
    else if (message->type == FI_CURRENT)
        on_current(sandbox);
    else if (message->type == FI_DIALED)
        ports_dialed(sandbox, &message->as.dialed, fds);
    else if (message->type == FI_LISTENERS_IS)
        ports_told_listeners(sandbox, &message->as.listeners, fds);
}

static void on_lost(void *cookie)
{
    struct sandbox *sandbox = cookie;
    sandbox->current = false;
    struct error err = {0};
    error_set(&err, ERROR_STARTING,
              "the connection to the sandbox broke; whether the command started will be seen at "
              "its id");
    process_fail_starting(sandbox, sandbox->ending ? &sandbox->gone : &err);
    ports_link_lost(sandbox, sandbox->ending ? &sandbox->gone : &err);
}

static const struct init_link_events LINK_EVENTS = {.message = on_message, .lost = on_lost};

bool sandbox_send(struct sandbox *sandbox, const struct front_init_message *message, int fd, struct error *err)
{
    return init_link_send(sandbox->link, message, &fd, fd >= 0, err);
}

bool sandbox_send_several(struct sandbox *sandbox, const struct front_init_message *message, const int *fds,
                          size_t fd_count, struct error *err)
{
    return init_link_send(sandbox->link, message, fds, fd_count, err);
}

/* ---- beginning ---- */

static void on_hold_over(void *cookie)
{
    struct sandbox *sandbox = cookie;
    sandbox->hold_timer = NULL;
    sandbox->hold_until = 0;
    for (struct process *process = sandbox->processes; process; process = process->next)
        process_output_resume(process);
}

static void take_descriptors(struct sandbox *sandbox, int fds[FL_FDS], size_t fd_count)
{
    for (size_t i = 0; i < FL_FDS; i++)
        sandbox->stats[i] = i < fd_count ? TAKE_FD(fds[i]) : -1;
}

static struct sandbox *sandbox_new(struct sandboxes *all, const struct fl_sandbox *facts, int fds[FL_FDS],
                                   size_t fd_count, bool hold)
{
    struct sandbox *sandbox = memory_new(sizeof *sandbox);
    sandbox->all = all;
    sandbox->loop = loop_current();
    sandbox->facts = *facts;
    key_done(&sandbox->facts.root); /* the registry has it */
    take_descriptors(sandbox, fds, fd_count);
    sandbox_pause_adopt(sandbox);
    if (hold) {
        sandbox->hold_until = clock_boot_ns() + SANDBOX_HOLD_NS;
        sandbox->hold_timer = loop_timer_start(sandbox->loop, sandbox->hold_until, on_hold_over, sandbox);
    }
    struct sandbox **home = &all->homes[loop_index(sandbox->loop)];
    sandbox->next = *home;
    *home = sandbox;
    registry_set_seat(all->registry, facts->id, sandbox);
    sandbox->link = init_link_new(sandbox->loop, all->options.run_folder, facts->socket_path, facts->uid_base,
                                  &LINK_EVENTS, sandbox);
    return sandbox;
}

static void answer_ready(struct sandbox *sandbox, struct verb *verb)
{
    if (verb->command && sandbox->facts.is_guest) {
        struct error err = {0};
        error_set(&err, ERROR_INVALID, "a sandbox of isolation %s cannot have an entrypoint", sandbox->facts.isolation);
        verb_finish(verb, &err);
        sandbox_end(sandbox, "not made");
        return;
    }
    if (verb->command)
        process_start_alone(sandbox, verb);
    verb_finish(verb, NULL);
}

/* One that is no news has its entrypoint, unless the front that made it was killed just then. */
static void drop_entrypoint(const struct fl_sandbox *facts, struct verb *asked)
{
    if (facts->reused && clock_wall_ms() - facts->created_wall_ms > ENTRYPOINT_MS) {
        command_free(asked->command);
        asked->command = NULL;
    }
}

static void refresh(struct sandbox *sandbox, const struct fl_sandbox *facts)
{
    bool moved = sandbox->facts.deadline_wall_ms != facts->deadline_wall_ms;
    sandbox->facts.limits = facts->limits;
    sandbox->facts.deadline_wall_ms = facts->deadline_wall_ms;
    if (moved)
        tell_deadline(sandbox);
}

void sandbox_put(struct sandboxes *all, const struct fl_sandbox *facts, int fds[FL_FDS], size_t fd_count, bool hold,
                 struct verb *asked)
{
    struct sandbox *sandbox = sandbox_find(all, facts->id);
    if (!sandbox && fd_count > 0)
        sandbox = sandbox_new(all, facts, fds, fd_count, hold);
    if (sandbox)
        refresh(sandbox, facts);
    if (!asked)
        return;
    if (!sandbox) {
        struct error err = {0};
        sandboxes_why_gone(all, facts->id, &err);
        verb_finish(asked, &err);
        return;
    }
    drop_entrypoint(facts, asked);
    asked->work = answer_ready;
    sandbox_run(sandbox, asked);
}

/* ---- end ---- */

static void tell_launcher(struct sandbox *sandbox, enum front_launcher_type type)
{
    struct front_launcher_message message = {.type = type};
    memcpy(message.as.destroy.id, sandbox->facts.id, sizeof message.as.destroy.id);
    AUTO_REGISTRY_VIEW view = {0};
    if (registry_find(sandbox->all->registry, sandbox->facts.id, &view))
        memcpy(message.as.destroy.reason, view.reason, sizeof message.as.destroy.reason);
    if (!message.as.destroy.reason[0])
        strcpy(message.as.destroy.reason, "deleted");
    launcher_link_ask(sandbox->all->launcher, &message, NULL);
}

static void ask_launcher(struct sandbox *sandbox)
{
    loop_timer_cancel(TAKE(sandbox->ending_timer));
    if (sandbox->init_watch) { /* its descriptor is watched no more, but stays open */
        loop_watch_readable(sandbox->init_watch, NULL, NULL);
    }
    tell_launcher(sandbox, FL_DESTROY);
}

static void on_ending_timer(void *cookie)
{
    struct sandbox *sandbox = cookie;
    sandbox->ending_timer = NULL;
    ask_launcher(sandbox);
}

static void on_init_ended(void *cookie)
{
    ask_launcher(cookie);
}

/* init stops all it runs and goes; its pidfd tells that at once, and the launcher then finds nothing to wait for. */
static bool terminate_by_init(struct sandbox *sandbox)
{
    struct front_init_message message = {.type = FI_TERMINATE};
    message.as.terminate.grace_ms = TERMINATE_GRACE_MS;
    memcpy(message.as.terminate.reason, "ending", sizeof "ending");
    struct error err = {0};
    if (!sandbox->current)
        return false;
    tell_launcher(sandbox, FL_ENDING); /* it sees init's end as soon as we do, and cannot tell it from a crash */
    if (!sandbox_send(sandbox, &message, -1, &err))
        return false;
    if (sandbox->stats[FL_FD_INIT] >= 0) {
        sandbox->init_watch = loop_watch_new(sandbox->loop, TAKE_FD(sandbox->stats[FL_FD_INIT]));
        loop_watch_readable(sandbox->init_watch, on_init_ended, sandbox);
    }
    uint64_t until = clock_boot_ns() + TERMINATE_GRACE_MS / 1000 * SECOND_NS + SECOND_NS;
    sandbox->ending_timer = loop_timer_start(sandbox->loop, until, on_ending_timer, sandbox);
    return true;
}

/* What is paused is killed as it is: to be asked to end it would have to run. */
void sandbox_stop(struct sandbox *sandbox)
{
    if (sandbox->paused || !terminate_by_init(sandbox))
        ask_launcher(sandbox);
}

void sandbox_end(struct sandbox *sandbox, const char *reason)
{
    if (sandbox->ending)
        return;
    sandbox->ending = true;
    registry_ending(sandbox->all->registry, sandbox->facts.id, reason);
    sandboxes_why_gone(sandbox->all, sandbox->facts.id, &sandbox->gone);
    sandbox_fail_waiting(sandbox, &sandbox->gone);
    sandbox_pause_ending(sandbox);
    if (!sandbox->keeping)
        sandbox_stop(sandbox);
}

void sandbox_free(struct sandbox *sandbox, const struct error *err)
{
    struct sandbox **at = &sandbox->all->homes[loop_index(sandbox->loop)];
    while (*at != sandbox)
        at = &(*at)->next;
    *at = sandbox->next;
    registry_set_seat(sandbox->all->registry, sandbox->facts.id, NULL);
    sandbox_fail_waiting(sandbox, err);
    sandbox_pause_free(sandbox, err);
    sandbox_metrics_free(sandbox, err);
    kernels_free(sandbox, err);
    process_free_all(sandbox, err);
    artifacts_drop(sandbox->all, sandbox->facts.id);
    files_pool_free(sandbox);
    ports_free(sandbox, err);
    programs_free(sandbox);
    init_link_free(sandbox->link);
    loop_watch_free(sandbox->init_watch);
    loop_timer_cancel(sandbox->ending_timer);
    loop_timer_cancel(sandbox->waiting_timer);
    loop_timer_cancel(sandbox->hold_timer);
    for (size_t i = 0; i < FL_FDS; i++)
        if (sandbox->stats[i] >= 0)
            close(sandbox->stats[i]);
    free(sandbox);
}

void sandbox_gone(struct sandboxes *all, const char *id)
{
    paused_unmark(all->options.paused_folder, id);
    struct sandbox *sandbox = sandbox_find(all, id);
    if (!sandbox)
        return;
    struct error err = {0};
    sandboxes_why_gone(all, id, &err);
    process_tell_gone(sandbox, &err);
    sandbox_free(sandbox, &err);
}
