/* execution_orphans.c - executions of a front that is gone: nobody waits for their answers any more. */
#include "sandboxd/sandbox/executions/executions_internal.h"

#include "sandboxd/sandbox/sandbox_internal.h"
#include "shared/base/log.h"

#include <string.h>

static bool is_orphan(const struct process *process)
{
    return !process->hash_known && text_starts_with(process->view.id, EXECUTION_COMMAND);
}

static void kill_orphan(struct sandbox *sandbox, const struct process *process)
{
    struct front_init_message message = {.type = FI_KILL};
    struct error err = {0};
    memcpy(message.as.name.id, process->view.id, sizeof message.as.name.id);
    if (!sandbox_send(sandbox, &message, -1, &err))
        log_warn("sandbox", "a program that nobody waits for was not killed: %s sandbox=%s", err.message,
                 sandbox->facts.id);
}

void execution_orphans_end(struct sandbox *sandbox)
{
    bool is_any = false;
    for (const struct process *process = sandbox->processes; process; process = process->next) {
        if (!is_orphan(process))
            continue;
        is_any = true;
        kill_orphan(sandbox, process); /* also of one that has ended: what it left behind */
    }
    if (is_any && !sandbox->paused) /* else the next execution sees to it */
        execution_sweep(sandbox->all, sandbox->facts.id);
}
