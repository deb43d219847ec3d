/* terminate.c - see terminate.h. */
#include "sandboxd/init/terminate.h"

#include "sandboxd/init/command.h"
#include "sandboxd/init/connection.h"
#include "sandboxd/init/deadline.h"
#include "sandboxd/init/family.h"
#include "sandboxd/init/helpers.h"
#include "sandboxd/init/reap.h"
#include "sandboxd/init/zygotes.h"
#include "shared/base/clock.h"

#include <signal.h>

static const uint64_t LAST_WAIT_NS = 2000000000; /* for killed processes to go; a frozen or stuck one may not */

static uint64_t after(uint64_t now, uint64_t grace_ms)
{
    return grace_ms > (UINT64_MAX - now) / 1000000 ? UINT64_MAX : now + grace_ms * 1000000;
}

void terminate_begin(struct init *init, uint64_t grace_ms, int exit_code)
{
    uint64_t end = after(clock_boot_ns(), grace_ms);
    if (init->end_boot_ns != 0) {
        if (!init->killed_all && end < init->end_boot_ns)
            init->end_boot_ns = end;
        deadline_consider(init, init->end_boot_ns);
        return;
    }
    init->end_boot_ns = end;
    init->exit_code = exit_code;
    zygotes_end_all(init);
    for (size_t i = 0; i < init->count; i++) {
        if (init->commands[i]->state == COMMAND_STARTING || init->commands[i]->state == COMMAND_RUNNING)
            init->commands[i]->killed = true;
    }
    family_signal_all(init, SIGTERM);
    family_signal_all(init, SIGCONT); /* a stopped process takes SIGTERM only then */
    deadline_consider(init, end);
    reap_children(init);
}

void terminate_go_on(struct init *init)
{
    if (init->killed_all || init->childless) {
        init->leaving = true;
        return;
    }
    init->killed_all = true;
    init->end_boot_ns = clock_boot_ns() + LAST_WAIT_NS;
    family_signal_all(init, SIGKILL);
}

bool terminate_is_done(const struct init *init)
{
    return init->end_boot_ns != 0 && init->childless && connection_is_told(init);
}

void terminate_clean_up(struct init *init)
{
    for (size_t i = 0; i < init->count; i++) {
        if (init->commands[i]->serial != 0)
            family_remove(init, init->commands[i]->serial);
    }
    helpers_clean_up(init);
    if (init->spare.pid != 0)
        family_remove(init, init->spare.serial);
}
