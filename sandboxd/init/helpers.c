/* helpers.c - see helpers.h. */
#include "sandboxd/init/helpers.h"

#include "sandboxd/front_files/front_files.h"
#include "sandboxd/init/family.h"
#include "sandboxd/init/orders.h"
#include "sandboxd/init/spare.h"
#include "shared/base/fd.h"

void helpers_refuse(int socket, const struct error *why)
{
    struct files_packet packet = {.size = 0};
    const struct files_record record = {.kind = FILES_ERROR, .error = *why};
    struct error ignored;
    /* The front can be told or not; it must never be waited for. */
    if (!front_files_packet_add(&packet, &record) || !fd_set_nonblocking(socket, &ignored) ||
        !fd_send_message(socket, packet.data, packet.size, NULL, 0, &ignored))
        return;
}

static struct init_helper *find(struct init *init, pid_t pid)
{
    for (size_t i = 0; i < INIT_HELPERS; i++) {
        if (init->helpers[i].serial != 0 && init->helpers[i].pid == pid)
            return &init->helpers[i];
    }
    return NULL;
}

static struct init_helper *find_free(struct init *init)
{
    for (size_t i = 0; i < INIT_HELPERS; i++) {
        if (init->helpers[i].serial == 0)
            return &init->helpers[i];
    }
    return NULL;
}

pid_t helpers_clone(struct init *init, uint64_t *serial, struct error *err)
{
    struct init_helper *helper = find_free(init);
    if (init->end_boot_ns != 0)
        return error_set(err, ERROR_GONE, "the sandbox is ending"), -1;
    if (helper == NULL)
        return error_set(err, ERROR_NO_CAPACITY, "%d file operations and zygotes are under way", INIT_HELPERS), -1;
    pid_t pid = family_clone(init, serial, err);
    if (pid <= 0)
        return pid;
    *helper = (struct init_helper){.pid = pid, .serial = *serial};
    init->childless = false;
    return pid;
}

void helpers_start(struct init *init, int socket)
{
    struct error err = {0};
    uint64_t serial;
    pid_t pid = helpers_clone(init, &serial, &err);
    if (pid == 0) {
        struct child_plan plan = child_plan_of(init, NULL);
        plan.mark = family_mark(init, serial);
        child_help(&plan, socket);
    }
    if (pid < 0)
        helpers_refuse(socket, &err);
}

bool helpers_has(struct init *init, pid_t pid)
{
    return find(init, pid) != NULL;
}

/* What a helper started (tar) dies with it, but is not gone at once: then its own reaping comes by here. */
static void sweep(struct init *init)
{
    for (size_t i = 0; i < INIT_HELPERS; i++) {
        struct init_helper *helper = &init->helpers[i];
        if (helper->serial != 0 && helper->pid == 0 && family_remove(init, helper->serial))
            *helper = (struct init_helper){0};
    }
}

bool helpers_reaped(struct init *init, pid_t pid)
{
    struct init_helper *helper = find(init, pid);
    if (helper != NULL) {
        helper->pid = 0;
        if (!orders_are_with(init, helper->serial)) /* else a child of it is about to be moved out */
            family_kill(init, helper->serial);
    }
    sweep(init);
    return helper != NULL;
}

void helpers_clean_up(struct init *init)
{
    for (size_t i = 0; i < INIT_HELPERS; i++) {
        if (init->helpers[i].serial != 0)
            family_remove(init, init->helpers[i].serial);
    }
}
