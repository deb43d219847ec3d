/* terminate.c - see terminate.h. */
#include "sandboxd/init/terminate.h"

#include "sandboxd/init/cgroup.h"
#include "sandboxd/init/command.h"
#include "sandboxd/init/connection.h"
#include "sandboxd/init/deadline.h"
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
    kill(-1, SIGTERM); /* all of this pid namespace but init: kill(2) */
    kill(-1, SIGCONT); /* a stopped process takes SIGTERM only then */
    deadline_consider(init, end);
    reap_children(init);
}

static void kill_all(struct init *init)
{
    cgroup_kill_all(init->run); /* also what is frozen; where the file is not ours, kill(2) does the rest */
    kill(-1, SIGKILL);
}

void terminate_go_on(struct init *init)
{
    if (init->killed_all || init->childless) {
        init->leaving = true;
        return;
    }
    init->killed_all = true;
    init->end_boot_ns = clock_boot_ns() + LAST_WAIT_NS;
    kill_all(init);
}

bool terminate_is_done(const struct init *init)
{
    return init->end_boot_ns != 0 && init->childless && connection_is_told(init);
}

void terminate_clean_up(struct init *init)
{
    for (size_t i = 0; i < init->count; i++) {
        if (init->commands[i]->serial != 0)
            cgroup_remove(init->run, init->commands[i]->serial);
    }
    helpers_clean_up(init);
    if (init->spare.pid != 0)
        cgroup_remove(init->run, init->spare.serial);
}
