/* keeping.c - what can be done with a sandbox that lives: other limits, its usage, a snapshot of it. */
#include "sandboxd/launcher/sandboxes_internal.h"

#include "shared/base/log.h"
#include "shared/base/memory.h"
#include "shared/base/text.h"

#include <inttypes.h>
#include <string.h>

/* --- limits and usage --- */

static bool has_area(const struct sandbox *sandbox, struct error *err)
{
    return sandbox->area.path[0] || sandbox->area.mount >= 0 ||
           error_set(err, ERROR_INVALID, "the disk of this sandbox was made by another storage than this node has now");
}

static bool limit_disk(struct sandboxes *all, const struct sandbox *sandbox, uint64_t from, uint64_t to,
                       struct error *err)
{
    return from == to || (has_area(sandbox, err) && storage_area_limit(all->house.storage, &sandbox->area, to, err));
}

struct isolation_limits sandboxes_kernel_limits(const struct isolation_backend *backend, const struct fl_limits *limits)
{
    uint32_t each = backend->tasks_a_process ? backend->tasks_a_process : 1;
    return (struct isolation_limits){.cpu_milli = limits->cpu_milli,
                                     .pids = limits->pids * each + backend->tasks_of_its_own,
                                     .memory_bytes = limits->memory_bytes};
}

static bool limit_rest(const struct sandbox *sandbox, const struct fl_limits *limits, struct error *err)
{
    const struct fl_limits *now = &sandbox->record.limits;
    struct isolation_limits wanted = sandboxes_kernel_limits(sandbox->backend, limits);
    bool is_same =
        limits->cpu_milli == now->cpu_milli && limits->pids == now->pids && limits->memory_bytes == now->memory_bytes;
    return is_same || sandbox->backend->limit(sandbox->record.slot, &wanted, err);
}

static void put_back(struct sandboxes *all, const struct sandbox *sandbox, uint64_t disk_bytes)
{
    const struct fl_limits *before = &sandbox->record.limits;
    struct isolation_limits rest = sandboxes_kernel_limits(sandbox->backend, before);
    struct error why = {0};
    if (!limit_disk(all, sandbox, disk_bytes, before->disk_bytes, &why) ||
        !sandbox->backend->limit(sandbox->record.slot, &rest, &why))
        log_error("launcher", "limits could not be put back sandbox=%s slot=%" PRIu32 ": %s", sandbox->record.id,
                  sandbox->record.slot, why.message);
}

bool sandboxes_limit(struct sandboxes *all, struct sandbox *sandbox, const struct fl_limits *limits, struct error *err)
{
    struct record limited = sandbox->record;
    limited.limits = *limits;
    if (!limit_disk(all, sandbox, sandbox->record.limits.disk_bytes, limits->disk_bytes, err))
        return false;
    if (!limit_rest(sandbox, limits, err) || !record_write(all->house.record_folder, &limited, err)) {
        put_back(all, sandbox, limits->disk_bytes);
        return false;
    }
    sandbox->record = limited;
    sandbox->area_bytes = limits->disk_bytes;
    return true;
}

bool sandboxes_usage(struct sandboxes *all, const struct sandbox *sandbox, uint64_t *disk_bytes, struct error *err)
{
    return has_area(sandbox, err) && storage_area_usage(all->house.storage, &sandbox->area, disk_bytes, err);
}

bool sandboxes_have_volume(const struct sandboxes *all, const char *disk_name)
{
    for (uint32_t slot = 0; slot < SLOTS_COUNT; slot++) {
        const struct sandbox *sandbox = all->by_slot[slot];
        for (size_t i = 0; sandbox && i < FRONT_LAUNCHER_VOLUMES; i++) {
            if (strcmp(sandbox->record.volumes[i], disk_name) == 0)
                return true;
        }
    }
    for (const struct sandbox *queued = all->queue; queued; queued = queued->next) {
        for (size_t i = 0; i < FRONT_LAUNCHER_VOLUMES; i++) {
            if (strcmp(queued->record.volumes[i], disk_name) == 0)
                return true;
        }
    }
    return false;
}

/* --- snapshots --- */

bool sandboxes_are_filling(const struct sandboxes *all, const char *snapshot)
{
    for (uint32_t slot = 0; slot < SLOTS_COUNT; slot++) {
        const struct sandbox *sandbox = all->by_slot[slot];
        if (sandbox && sandbox->state == SANDBOX_FILLING && strcmp(sandbox->record.snapshot, snapshot) == 0)
            return true;
    }
    for (const struct sandbox *queued = all->queue; queued; queued = queued->next) {
        if (strcmp(queued->record.snapshot, snapshot) == 0)
            return true;
    }
    return false;
}

static void taking_free(struct sandboxes *all, struct sandbox *sandbox)
{
    free(TAKE(sandbox->taking));
    all->takings--;
}

/* Over: storage keeps nothing of one that failed. */
static void finish(struct sandboxes *all, struct sandbox *sandbox, const struct error *why)
{
    const struct taking *taking = sandbox->taking;
    const char *name = taking->record.name;
    struct error err = {0};
    if (why && storage_snapshot_exists(all->house.storage, name) &&
        !storage_snapshot_remove(all->house.storage, name, &err))
        log_error("launcher", "a failed snapshot is left until the next start snapshot=%s: %s", name, err.message);
    if (why)
        log_warn("launcher", "no snapshot was made sandbox=%s snapshot=%s: %s", sandbox->record.id, name, why->message);
    else
        log_info("launcher", "snapshot made sandbox=%s snapshot=%s bytes=%" PRIu64, sandbox->record.id, name,
                 taking->record.size_bytes);
    if (all->listener.kept)
        all->listener.kept(all->listener.context, sandbox, taking, why);
    taking_free(all, sandbox);
}

static bool write_record(void *context, struct error *err)
{
    struct taking *taking = context;
    return snapshot_write(taking->folder, &taking->record, err);
}

static bool watch_job(const struct sandboxes *all, const struct sandbox *sandbox, int fd, struct error *err)
{
    return all->house.watch.add(all->house.watch.context, SANDBOX_JOB, sandbox->record.slot, fd, err);
}

/* Storage has it: now it is written down, by another process, for that waits for the disk. */
static bool begin_record(struct sandboxes *all, struct sandbox *sandbox, struct error *err)
{
    struct taking *taking = sandbox->taking;
    if (!storage_snapshot_size(all->house.storage, taking->record.name, &taking->record.size_bytes, err))
        return false;
    taking->errand = errand_start(write_record, taking, err);
    return taking->errand && watch_job(all, sandbox, errand_fd(taking->errand), err);
}

void taking_event(struct sandboxes *all, struct sandbox *sandbox)
{
    struct taking *taking = sandbox->taking;
    struct error err = {0};
    if (!taking)
        return;
    if (taking->job) {
        if (!storage_job_finish(TAKE(taking->job), &err) || !begin_record(all, sandbox, &err))
            finish(all, sandbox, &err);
        return;
    }
    if (!taking->errand)
        return;
    bool is_written = errand_finish(TAKE(taking->errand), &err);
    if (is_written)
        snapshots_add(all->house.snapshots, &taking->record);
    finish(all, sandbox, is_written ? NULL : &err);
}

void taking_cancel(struct sandboxes *all, struct sandbox *sandbox, const struct error *why)
{
    struct taking *taking = sandbox->taking;
    if (!taking)
        return;
    if (taking->job)
        storage_job_cancel(TAKE(taking->job));
    errand_cancel(TAKE(taking->errand));
    /* The errand may have written the record already: remove both halves. */
    snapshots_add(all->house.snapshots, &taking->record);
    if (!snapshots_remove(all->house.snapshots, taking->record.name, NULL))
        log_error("launcher", "a snapshot that was given up is left snapshot=%s", taking->record.name);
    if (why && all->listener.kept)
        all->listener.kept(all->listener.context, sandbox, taking, why);
    taking_free(all, sandbox);
}

/* The sandbox of which that snapshot is being made; NULL. */
static struct sandbox *find_taken(const struct sandboxes *all, const char *name)
{
    for (uint32_t slot = 0; slot < SLOTS_COUNT; slot++) {
        struct sandbox *sandbox = all->by_slot[slot];
        if (sandbox && sandbox->taking && strcmp(sandbox->taking->record.name, name) == 0)
            return sandbox;
    }
    return NULL;
}

void sandboxes_stop_keeping(struct sandboxes *all, const char *name)
{
    struct error why = {0};
    struct sandbox *sandbox = find_taken(all, name);
    if (!sandbox)
        return;
    error_set(&why, ERROR_CONFLICT, "snapshot %s was deleted while it was being made", name);
    taking_cancel(all, sandbox, &why);
}

static bool judge(const struct sandboxes *all, const struct sandbox *sandbox, const char *name, struct error *err)
{
    if (!has_area(sandbox, err) || !snapshots_judge(all->house.snapshots, name, all->takings, err))
        return false;
    if (sandbox->taking || find_taken(all, name))
        return error_set(err, ERROR_CONFLICT, "a snapshot of this sandbox, or of this name, is being made");
    if (!sandbox->template)
        return error_set(err, ERROR_INVALID, "the template that this sandbox was made of is lost");
    return all->takings < SANDBOXES_TAKINGS_MAX ||
           error_set(err, ERROR_NO_CAPACITY, "%d snapshots are being made on this node", SANDBOXES_TAKINGS_MAX);
}

bool sandboxes_keep(struct sandboxes *all, struct sandbox *sandbox, const char *name, uint64_t request,
                    struct error *err)
{
    struct error why = {0};
    if (!judge(all, sandbox, name, err))
        return false;
    struct taking *taking = sandbox->taking = memory_new(sizeof *taking);
    all->takings++;
    taking->request = request;
    taking->folder = all->house.snapshots->folder;
    taking->record.created_wall_ms = clock_wall_ms();
    (void)!text_copy(taking->record.name, sizeof taking->record.name, name);
    memcpy(taking->record.template_name, sandbox->record.template_name, sizeof taking->record.template_name);
    memcpy(taking->record.template_version, sandbox->record.template_version, sizeof taking->record.template_version);
    memcpy(taking->record.storage, sandbox->record.storage, sizeof taking->record.storage);
    bool is_begun = storage_snapshot_take(all->house.storage, &sandbox->area, name, &taking->job, &why);
    if (!is_begun) { /* what is there under that name, if anything, is not ours */
        taking_free(all, sandbox);
        if (err)
            *err = why;
        return false;
    }
    is_begun =
        taking->job ? watch_job(all, sandbox, storage_job_fd(taking->job), &why) : begin_record(all, sandbox, &why);
    if (!is_begun)
        finish(all, sandbox, &why);
    return true;
}
