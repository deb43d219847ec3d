/* metrics.c - what a sandbox uses: the kernel's counters are read here, what it has on disk is asked of the launcher.
 */
#include "sandboxd/sandbox/sandbox_internal.h"

#include "sandboxd/sandbox/usage.h"
#include "shared/base/clock.h"
#include "shared/base/memory.h"

#include <string.h>

static const uint64_t ASKED_AGAIN_NS = UINT64_C(1000000000);
static const uint64_t PATIENCE_NS = UINT64_C(2000000000); /* then what was told before does */

/* ---- the disk ---- */

struct measuring {
    struct sandboxes *all;
    char sandbox_id[FRONT_LAUNCHER_ID_BYTES];
};

static void answer_all(struct sandbox *sandbox);

static void on_used(void *cookie, const struct verb_answer *answer)
{
    AUTO_FREE struct measuring *measuring = cookie;
    struct sandbox *sandbox = sandbox_find(measuring->all, measuring->sandbox_id);
    if (!sandbox)
        return;
    sandbox->disk_asking = false;
    if (answer->error.kind == ERROR_NONE)
        sandbox->disk_bytes = answer->disk_bytes;
    answer_all(sandbox);
}

void sandbox_measure_disk(struct sandbox *sandbox)
{
    uint64_t now = clock_boot_ns();
    if (sandbox->disk_asking || (sandbox->disk_asked_at && now - sandbox->disk_asked_at < ASKED_AGAIN_NS))
        return;
    sandbox->disk_asking = true;
    sandbox->disk_asked_at = now;
    struct measuring *measuring = memory_new(sizeof *measuring);
    measuring->all = sandbox->all;
    memcpy(measuring->sandbox_id, sandbox->facts.id, sizeof measuring->sandbox_id);
    struct verb *verb = verb_new(sandbox->all, sandbox->facts.id);
    verb->done = on_used;
    verb->dropped = free;
    verb->cookie = measuring;
    struct front_launcher_message message = {.type = FL_USAGE};
    memcpy(message.as.name.id, sandbox->facts.id, sizeof message.as.name.id);
    launcher_link_ask(sandbox->all->launcher, &message, verb);
}

/* ---- the verb ---- */

static struct fl_limits limits_in_force(const struct sandbox *sandbox)
{
    struct fl_limits limits = sandbox->facts.limits;
    limits.commands = process_commands_max(sandbox);
    limits.output_bytes = process_kept_max(sandbox);
    return limits;
}

static void answer(const struct sandbox *sandbox, struct verb *verb)
{
    verb->metrics = (struct sandbox_metrics){
        .limits = limits_in_force(sandbox),
        .cpu_used_ms = usage_cpu_ms(sandbox->stats[FL_FD_CPU]),
        .memory_used_bytes = usage_memory_bytes(sandbox->stats[FL_FD_MEMORY]),
        .oom_kills = usage_oom_kills(sandbox->stats[FL_FD_OOM]),
        .pids_used = usage_pids(sandbox->stats[FL_FD_PIDS]),
        .disk_used_bytes = sandbox->disk_bytes,
        .kept_bytes = sandbox->kept_bytes,
        .commands_running = (unsigned)sandbox->running_count,
        .paused = sandbox->paused,
        .started_ms = sandbox->facts.created_wall_ms,
    };
    memcpy(verb->metrics.storage, sandbox->facts.storage, sizeof verb->metrics.storage);
    verb_finish(verb, NULL);
}

static void answer_all(struct sandbox *sandbox)
{
    loop_timer_cancel(TAKE(sandbox->measuring_timer));
    struct verb *verb = TAKE(sandbox->measuring);
    for (struct verb *next; verb; verb = next) {
        next = verb->next;
        verb->next = NULL;
        answer(sandbox, verb);
    }
}

static void on_patience_over(void *cookie)
{
    struct sandbox *sandbox = cookie;
    sandbox->measuring_timer = NULL;
    answer_all(sandbox);
}

void sandbox_verb_metrics(struct sandbox *sandbox, struct verb *verb)
{
    sandbox_measure_disk(sandbox);
    if (!sandbox->disk_asking) {
        answer(sandbox, verb);
        return;
    }
    verb->next = sandbox->measuring;
    sandbox->measuring = verb;
    if (!sandbox->measuring_timer)
        sandbox->measuring_timer =
            loop_timer_start(sandbox->loop, clock_boot_ns() + PATIENCE_NS, on_patience_over, sandbox);
}

void sandbox_metrics_free(struct sandbox *sandbox, const struct error *err)
{
    loop_timer_cancel(TAKE(sandbox->measuring_timer));
    struct verb *verb = TAKE(sandbox->measuring);
    for (struct verb *next; verb; verb = next) {
        next = verb->next;
        verb_finish(verb, err);
    }
}
