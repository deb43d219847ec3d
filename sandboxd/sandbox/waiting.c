/* waiting.c - verbs that wait: for init to be reached, or for the end of a snapshot. */
#include "sandboxd/sandbox/sandbox_internal.h"

#include "sandboxd/sandbox/files_pool.h"
#include "sandboxd/sandbox/ports/ports_internal.h"
#include "shared/base/clock.h"

enum { WAITING_MAX = 256 };
static const uint64_t WAIT_NS = UINT64_C(10) * 1000000000;

static struct verb *take_waiting(struct sandbox *sandbox)
{
    struct verb *verb = sandbox->waiting;
    sandbox->waiting = verb->next;
    if (!sandbox->waiting)
        sandbox->waiting_last = NULL;
    sandbox->waiting_count--;
    verb->next = NULL;
    return verb;
}

void sandbox_fail_waiting(struct sandbox *sandbox, const struct error *err)
{
    while (sandbox->waiting)
        verb_finish(take_waiting(sandbox), err);
}

static void on_waiting_timer(void *cookie)
{
    struct sandbox *sandbox = cookie;
    sandbox->waiting_timer = NULL;
    uint64_t now = clock_boot_ns();
    struct error err = {0};
    error_set(&err, ERROR_STARTING, "the sandbox is not ready yet; try again");
    while (sandbox->waiting && sandbox->waiting->waits_until <= now)
        verb_finish(take_waiting(sandbox), &err);
    if (sandbox->waiting)
        sandbox->waiting_timer =
            loop_timer_start(sandbox->loop, sandbox->waiting->waits_until, on_waiting_timer, sandbox);
}

static void add_waiting(struct sandbox *sandbox, struct verb *verb)
{
    verb->next = NULL;
    if (sandbox->waiting_last)
        sandbox->waiting_last->next = verb;
    else
        sandbox->waiting = verb;
    sandbox->waiting_last = verb;
    sandbox->waiting_count++;
}

void sandbox_wait(struct sandbox *sandbox, struct verb *verb)
{
    if (sandbox->waiting_count >= WAITING_MAX) {
        struct error err = {0};
        error_set(&err, ERROR_STARTING, "the sandbox is not ready yet; try again");
        verb_finish(verb, &err);
        return;
    }
    verb->waits_until = clock_boot_ns() + WAIT_NS;
    add_waiting(sandbox, verb);
    if (!sandbox->waiting_timer)
        sandbox->waiting_timer = loop_timer_start(sandbox->loop, verb->waits_until, on_waiting_timer, sandbox);
}

/* What a client wants done; not what it wants to see, nor what the negotiator asks. */
static bool is_deed(const struct verb *verb)
{
    return verb->work == process_verb_exec || verb->work == process_verb_signal || verb->work == process_verb_kill ||
           verb->work == process_verb_stop || verb->work == process_verb_remove ||
           verb->work == process_verb_input || verb->work == process_verb_resize || verb->work == ports_verb_dial ||
           verb->work == files_pool_lend || kernels_is_deed(verb);
}

static void refuse_waiting(struct sandbox *sandbox)
{
    struct error err = {0};
    error_set(&err, ERROR_STARTING, "the sandbox is not ready yet; try again");
    for (size_t left = sandbox->waiting_count; left > 0; left--) {
        struct verb *verb = take_waiting(sandbox);
        if (is_deed(verb))
            verb_finish(verb, &err);
        else
            add_waiting(sandbox, verb);
    }
}

void sandboxes_refuse_waiting(struct sandboxes *all)
{
    for (struct sandbox *each = all->homes[loop_index(loop_current())]; each; each = each->next)
        refuse_waiting(each);
}

void sandbox_run(struct sandbox *sandbox, struct verb *verb)
{
    if (sandbox->ending)
        verb_finish(verb, &sandbox->gone);
    else if (sandbox->current)
        verb->work(sandbox, verb);
    else
        sandbox_wait(sandbox, verb);
}

void sandbox_run_waiting(struct sandbox *sandbox)
{
    loop_timer_cancel(TAKE(sandbox->waiting_timer));
    struct verb *verb = sandbox->waiting;
    sandbox->waiting = sandbox->waiting_last = NULL;
    sandbox->waiting_count = 0;
    for (struct verb *next; verb; verb = next) {
        next = verb->next;
        verb->next = NULL;
        sandbox_run(sandbox, verb);
    }
}
