/* shedding.c - what is kept of ended commands takes descriptors, of which all sandboxes have one budget: when little of
 * it is left each gives up a part, so that those that keep much leave room to those that begin. */
#include "sandboxd/sandbox/sandbox_internal.h"

#include "shared/base/clock.h"

static const uint64_t PAUSE_NS = 1000000000; /* from one to the next: the loops have done it by then */

/* On each loop. */
static void shed_here(void *cookie)
{
    const struct sandboxes *all = cookie;
    for (struct sandbox *sandbox = all->homes[loop_index(loop_current())]; sandbox; sandbox = sandbox->next)
        process_forget_half(sandbox);
}

void sandboxes_shed(struct sandboxes *all)
{
    uint64_t now = clock_boot_ns(), before = all->shed_at;
    bool is_short = all->descriptors > (int64_t)all->descriptors_max / 4 * 3;
    if (!is_short || (before && now - before < PAUSE_NS) ||
        !atomic_compare_exchange_strong(&all->shed_at, &before, now))
        return;
    for (unsigned i = 0; i < SANDBOXES_LOOPS_MAX; i++) {
        if (all->loops[i])
            sandboxes_post(all, i, shed_here, all);
    }
}
