/* looking.c - evidence of a living sandbox, looked for by a child: the launcher's one thread would have to wait for
 * what it looks at. */
#include "sandboxd/launcher/sandboxes_internal.h"

#include "sandboxd/evidence/evidence.h"
#include "shared/base/fd.h"
#include "shared/base/memory.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

struct looking {
    uint64_t request;
    enum fl_evidence_part part;
    struct evidence_order order; /* its descriptors as the child has them */
    struct errand *errand;
    int out; /* a memfd */
};

static bool look(void *context, struct error *err)
{
    const struct looking *looking = context;
    return evidence_give_up_rights(err) &&
           (looking->part == FL_EVIDENCE_PROCESSES ? evidence_processes(&looking->order, err)
                                                   : evidence_files(&looking->order, err));
}

/* The folder that the part is about; -1 with err. */
static int open_folder(const struct sandbox *sandbox, enum fl_evidence_part part, struct error *err)
{
    if (part == FL_EVIDENCE_PROCESSES)
        return sandbox->backend->open_group(sandbox->record.slot, err);
    const struct storage_area *area = &sandbox->area;
    int fd = area->path[0] ? open(area->path, O_RDONLY | O_DIRECTORY | O_CLOEXEC)
                           : openat(area->mount, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0)
        error_set_errno(err, ERROR_INTERNAL, "open the area of a sandbox");
    return fd;
}

static bool judge(const struct sandboxes *all, const struct sandbox *sandbox, struct error *err)
{
    if (sandbox->backend->is_guest || !sandbox->backend->open_group)
        return error_set(err, ERROR_FORBIDDEN,
                         "isolation level %s has no evidence of its own: what is in it is not seen "
                         "from outside",
                         sandbox->backend->name);
    if (sandbox->looking || all->lookings >= SANDBOXES_LOOKINGS_MAX)
        return error_set(err, ERROR_RATE_LIMITED, "evidence is being looked for already; ask again");
    return true;
}

static void looking_free(struct sandboxes *all, struct sandbox *sandbox)
{
    struct looking *looking = TAKE(sandbox->looking);
    fd_drop(looking->out);
    free(looking);
    all->lookings--;
}

static bool begin(struct sandboxes *all, struct sandbox *sandbox, struct error *err)
{
    struct looking *looking = sandbox->looking;
    AUTO_FD int folder = open_folder(sandbox, looking->part, err);
    if (folder < 0)
        return false;
    looking->out = memfd_create("evidence", MFD_CLOEXEC);
    if (looking->out < 0)
        return error_set_errno(err, ERROR_INTERNAL, "memfd_create");
    const int keep[] = {folder, looking->out};
    looking->order.folder = ERRAND_KEPT_FD;
    looking->order.out = ERRAND_KEPT_FD + 1;
    looking->errand = errand_start_keeping(look, looking, keep, 2, err);
    return looking->errand && all->house.watch.add(all->house.watch.context, SANDBOX_LOOKED, sandbox->record.slot,
                                                   errand_fd(looking->errand), err);
}

bool sandboxes_look(struct sandboxes *all, struct sandbox *sandbox, const struct fl_evidence *asked, uint64_t request,
                    struct error *err)
{
    if (!judge(all, sandbox, err))
        return false;
    struct looking *looking = sandbox->looking = memory_new(sizeof *looking);
    all->lookings++;
    *looking = (struct looking){.request = request, .part = asked->part, .out = -1};
    looking->order.uid_base = sandbox->record.uid_base;
    looking->order.skip = asked->skip;
    if (begin(all, sandbox, err))
        return true;
    errand_cancel(TAKE(looking->errand));
    looking_free(all, sandbox);
    return false;
}

void looking_event(struct sandboxes *all, struct sandbox *sandbox)
{
    struct looking *looking = sandbox->looking;
    struct error err = {0};
    bool found = errand_finish(TAKE(looking->errand), &err);
    if (all->listener.looked)
        all->listener.looked(all->listener.context, looking->request, found ? TAKE_FD(looking->out) : -1, &err);
    looking_free(all, sandbox);
}

int looking_fd(const struct sandbox *sandbox)
{
    return sandbox->looking ? errand_fd(sandbox->looking->errand) : -1;
}

void looking_cancel(struct sandboxes *all, struct sandbox *sandbox, const struct error *why)
{
    if (!sandbox->looking)
        return;
    errand_cancel(TAKE(sandbox->looking->errand));
    if (why && all->listener.looked)
        all->listener.looked(all->listener.context, sandbox->looking->request, -1, why);
    looking_free(all, sandbox);
}
