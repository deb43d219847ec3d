/* spare.c - see spare.h. */
#include "sandboxd/init/spare.h"

#include "sandboxd/init/family.h"

#include <sys/socket.h>

struct child_plan child_plan_of(const struct init *init, const struct fi_start *start)
{
    struct child_plan plan = {.join = init->join,
                              .join_count = init->join_count,
                              .filter = &init->filter,
                              .files = init->files,
                              .uid = init->uid,
                              .gid = init->gid};
    if (start && start->open_files != 0) {
        plan.files.rlim_cur = start->open_files < init->files_most ? start->open_files : init->files_most;
        plan.files.rlim_max = plan.files.rlim_cur;
    }
    if (start && start->as_root) {
        plan.as_root = true;
        plan.uid = plan.gid = 0;
    }
    return plan;
}

/* Into its family, `ends[1]` the child's. */
static bool clone_spare(struct init *init, const int ends[static 2])
{
    struct error ignored = {0};
    uint64_t serial = 0;
    pid_t pid = family_clone(init, &serial, &ignored);
    if (pid == 0) {
        struct child_plan plan = child_plan_of(init, NULL);
        plan.files = init->spare_files;
        plan.mark = family_mark(init, serial);
        child_wait(&plan, ends[1]);
    }
    if (pid < 0)
        return false;
    init->spare = (struct spare){.pid = pid, .serial = serial, .files = init->spare_files.rlim_cur, .socket = ends[0]};
    init->childless = false;
    return true;
}

void spare_make(struct init *init)
{
    int ends[2];
    if (init->spare.pid != 0 || init->end_boot_ns != 0 || init->count == FRONT_INIT_COMMANDS)
        return;
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) < 0)
        return;
    if (!clone_spare(init, ends))
        close(ends[0]);
    close(ends[1]);
}

/* Its limits were set when it was made. A front that asks for others asks for the same next time. */
static bool is_fit(struct init *init, const struct child_plan *plan)
{
    struct spare *spare = &init->spare;
    if (spare->pid == 0 || spare->socket < 0 || plan->as_root)
        return false;
    if (spare->files == plan->files.rlim_cur)
        return true;
    init->spare_files = plan->files;
    close(spare->socket); /* it leaves, and is reaped */
    spare->socket = -1;
    return false;
}

bool spare_take(struct init *init, struct command *command, const struct child_plan *plan,
                const struct child_order *order, int memory)
{
    struct spare *spare = &init->spare;
    if (!is_fit(init, plan))
        return false;
    AUTO_FD int socket = TAKE_FD(spare->socket);
    /* When it is gone, it waits to be reaped, which removes its cgroup. */
    if (!child_send_order(socket, order, memory))
        return false;
    command->pid = spare->pid;
    command->serial = spare->serial;
    *spare = (struct spare){.socket = -1};
    return true;
}

bool spare_reaped(struct init *init, pid_t pid)
{
    struct spare *spare = &init->spare;
    if (spare->pid != pid)
        return false; /* an orphan of a command */
    family_remove(init, spare->serial);
    if (spare->socket >= 0)
        close(spare->socket);
    *spare = (struct spare){.socket = -1};
    return true;
}
