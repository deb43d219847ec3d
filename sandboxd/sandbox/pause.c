/* pause.c - when a sandbox is frozen, and when it goes on. There are two reasons to freeze it: a pause, which has a
 * mark on disk from before it begins until after it is over, and a snapshot, for as long as that takes. */
#include "sandboxd/sandbox/sandbox_internal.h"

#include "sandboxd/sandbox/paused_marks.h"
#include "shared/base/clock.h"
#include "shared/base/log.h"
#include "shared/base/memory.h"

#include <stdio.h>
#include <string.h>

/* ---- the audit ---- */

bool sandbox_tell_change(const struct verb *verb, const char *action, const char *detail, const struct error *why,
                         struct error *err)
{
    struct sandboxes *all = verb->all;
    const struct sandbox_deed deed = {.sandbox_id = verb->sandbox_id,
                                      .action = action,
                                      .detail = detail,
                                      .request_id = verb->request_id,
                                      .why = why};
    return !all->options.sandbox_changes || all->options.sandbox_changes(all->options.context, &deed, err);
}

static bool is_snapshot(const struct verb *verb)
{
    return verb->snapshot[0] != 0;
}

static bool tell(const struct verb *verb, const struct error *why, struct error *err)
{
    char detail[64] = "by=negotiator";
    if (is_snapshot(verb))
        (void)snprintf(detail, sizeof detail, "snapshot=%s", verb->snapshot);
    return sandbox_tell_change(verb, is_snapshot(verb) ? "snapshot" : "pause", detail, why, err);
}

/* It was recorded before. */
static void fail(struct verb *verb, const struct error *why)
{
    struct error ignored = {0};
    (void)!tell(verb, why, &ignored);
    verb_finish(verb, why);
}

/* ---- frozen or not ---- */

static void set_paused(struct sandbox *sandbox, bool is_paused)
{
    sandbox->paused = is_paused;
    registry_set_paused(sandbox->all->registry, sandbox->facts.id, is_paused, clock_wall_ms());
}

static bool go_on(struct sandbox *sandbox, struct error *err)
{
    if (!freezer_go_on(sandbox->freezer, err))
        return false;
    paused_unmark(sandbox->all->options.paused_folder, sandbox->facts.id);
    if (sandbox->paused)
        log_info("sandbox", "goes on sandbox=%s", sandbox->facts.id);
    set_paused(sandbox, false);
    return true;
}

static bool has_snapshot(const struct sandbox *sandbox)
{
    const struct verb *verb = sandbox->stopping;
    while (verb && !is_snapshot(verb))
        verb = verb->next;
    return verb != NULL;
}

static void fail_stopping(struct sandbox *sandbox, const struct error *why)
{
    struct verb *verb = TAKE(sandbox->stopping);
    for (struct verb *next; verb; verb = next) {
        next = verb->next;
        verb->next = NULL;
        fail(verb, why);
    }
}

/* ---- a snapshot ---- */

/* One on its way to the launcher and back: the sandbox may be gone by then. */
struct keeping {
    struct sandboxes *all;
    char sandbox_id[FRONT_LAUNCHER_ID_BYTES];
    struct verb *asked;
};

static void let_go(struct sandbox *sandbox)
{
    struct error err = {0};
    sandbox->keeping = false;
    if (!sandbox->paused && !freezer_go_on(sandbox->freezer, &err))
        log_error("sandbox", "what was frozen for a snapshot cannot go on: %s sandbox=%s", err.message,
                  sandbox->facts.id);
    if (sandbox->ending)
        sandbox_stop(sandbox);
    else
        sandbox_run_waiting(sandbox);
}

static void on_kept(void *cookie, const struct verb_answer *answer)
{
    AUTO_FREE struct keeping *keeping = cookie;
    struct verb *verb = keeping->asked;
    struct sandbox *sandbox = sandbox_find(keeping->all, keeping->sandbox_id);
    unsigned running = verb->kept.running;
    verb->kept = *answer->kept;
    verb->kept.running = running;
    if (sandbox)
        let_go(sandbox);
    if (answer->error.kind == ERROR_NONE)
        verb_finish(verb, NULL);
    else
        fail(verb, &answer->error);
}

/* The loops end. What it is frozen for the next front finds over. */
static void on_kept_dropped(void *cookie)
{
    AUTO_FREE struct keeping *keeping = cookie;
    verb_finish(keeping->asked, NULL);
}

static void keep(struct sandbox *sandbox, struct verb *verb)
{
    struct keeping *keeping = memory_new(sizeof *keeping);
    *keeping = (struct keeping){.all = sandbox->all, .asked = verb};
    memcpy(keeping->sandbox_id, sandbox->facts.id, sizeof keeping->sandbox_id);
    sandbox->keeping = true;
    verb->kept.running = (unsigned)sandbox->running_count;
    struct verb *told = verb_new(sandbox->all, sandbox->facts.id);
    told->done = on_kept;
    told->dropped = on_kept_dropped;
    told->cookie = keeping;
    struct front_launcher_message message = {.type = FL_SNAPSHOT};
    memcpy(message.as.snapshot.id, sandbox->facts.id, sizeof message.as.snapshot.id);
    memcpy(message.as.snapshot.snapshot, verb->snapshot, sizeof message.as.snapshot.snapshot);
    launcher_link_ask(sandbox->all->launcher, &message, told);
}

/* ---- stopping ---- */

static void on_stopped(void *cookie, const struct error *err)
{
    struct sandbox *sandbox = cookie;
    if (err) {
        paused_unmark(sandbox->all->options.paused_folder, sandbox->facts.id);
        fail_stopping(sandbox, err);
        sandbox_run_waiting(sandbox);
        return;
    }
    struct verb *verb = TAKE(sandbox->stopping);
    for (struct verb *next; verb; verb = next) {
        next = verb->next;
        verb->next = NULL;
        if (is_snapshot(verb)) {
            keep(sandbox, verb);
            continue;
        }
        set_paused(sandbox, true);
        log_info("sandbox", "is paused sandbox=%s", sandbox->facts.id);
        verb_finish(verb, NULL);
    }
}

/* Goes on as `then` once nothing of it runs. */
static void stop_for(struct sandbox *sandbox, struct verb *verb)
{
    bool is_first = !sandbox->stopping;
    verb->next = sandbox->stopping;
    sandbox->stopping = verb;
    if (is_first)
        freezer_stop(sandbox->freezer, on_stopped, sandbox);
}

void sandbox_verb_pause(struct sandbox *sandbox, struct verb *verb)
{
    struct error err = {0};
    if (sandbox->paused) {
        verb_finish(verb, NULL);
        return;
    }
    if (!tell(verb, NULL, &err)) {
        verb_finish(verb, &err);
        return;
    }
    if (!paused_mark(sandbox->all->options.paused_folder, sandbox->facts.id, &err)) {
        fail(verb, &err);
        return;
    }
    if (!sandbox->keeping) {
        stop_for(sandbox, verb);
        return;
    }
    set_paused(sandbox, true); /* it is frozen as it is */
    verb_finish(verb, NULL);
}

void sandbox_verb_snapshot(struct sandbox *sandbox, struct verb *verb)
{
    struct error err = {0};
    if (sandbox->keeping || has_snapshot(sandbox))
        error_set(&err, ERROR_CONFLICT, "a snapshot of this sandbox is being made; try again when it is there");
    else
        (void)!tell(verb, NULL, &err);
    if (err.kind != ERROR_NONE)
        verb_finish(verb, &err);
    else if (sandbox->paused)
        keep(sandbox, verb);
    else
        stop_for(sandbox, verb);
}

/* ---- going on ---- */

/* False: the verb is dealt with. */
static bool wake(struct sandbox *sandbox, struct verb *verb, const char *by)
{
    struct error err = {0}, used = {0};
    if (sandbox->keeping || has_snapshot(sandbox)) {
        sandbox_wait(sandbox, verb);
        return false;
    }
    if (!sandbox->paused && !sandbox->stopping)
        return true;
    if (!sandbox_tell_change(verb, "resume", by, NULL, &err) || !go_on(sandbox, &err)) {
        verb_finish(verb, &err);
        return false;
    }
    error_set(&used, ERROR_CONFLICT, "the sandbox was used before all of it had stopped; it goes on");
    fail_stopping(sandbox, &used);
    return true;
}

bool sandbox_wake(struct sandbox *sandbox, struct verb *verb)
{
    return wake(sandbox, verb, "by=use");
}

void sandbox_verb_resume(struct sandbox *sandbox, struct verb *verb)
{
    if (wake(sandbox, verb, "by=negotiator"))
        verb_finish(verb, NULL);
}

/* ---- beginning and end ---- */

void sandbox_pause_adopt(struct sandbox *sandbox)
{
    int folder = sandbox->all->options.paused_folder;
    bool is_marked = paused_is_marked(folder, sandbox->facts.id);
    struct error err = {0};
    sandbox->freezer = freezer_new(sandbox->loop, sandbox->stats[FL_FD_FREEZE], sandbox->stats[FL_FD_EVENTS]);
    if (!freezer_is_set(sandbox->freezer)) {
        if (is_marked) {
            paused_unmark(folder, sandbox->facts.id);
            set_paused(sandbox, false);
        }
        return;
    }
    if (is_marked) {
        set_paused(sandbox, true);
        return;
    }
    bool goes_on = freezer_go_on(sandbox->freezer, &err);
    log_warn("sandbox", "was frozen by a front that is gone, and not paused: %s%s sandbox=%s",
             goes_on ? "it goes on" : "it cannot go on: ", err.message, sandbox->facts.id);
}

void sandbox_pause_ending(struct sandbox *sandbox)
{
    struct error err = {0};
    if (!sandbox->stopping)
        return;
    if (!freezer_go_on(sandbox->freezer, &err))
        log_error("sandbox", "%s sandbox=%s", err.message, sandbox->facts.id);
    fail_stopping(sandbox, &sandbox->gone);
}

void sandbox_pause_free(struct sandbox *sandbox, const struct error *err)
{
    freezer_free(TAKE(sandbox->freezer));
    struct verb *verb = TAKE(sandbox->stopping);
    for (struct verb *next; verb; verb = next) {
        next = verb->next;
        verb_finish(verb, err);
    }
}
