/* adoption.c - what an earlier launcher left: what lives is taken up, the rest is ended. */
#include "sandboxd/launcher/sandboxes_internal.h"

#include "shared/base/log.h"
#include "shared/base/memory.h"
#include "shared/base/text.h"

#include <dirent.h>
#include <inttypes.h>
#include <string.h>

/* Without its area it lives on, but cannot be measured, limited or kept. */
static void adopt_area(struct sandboxes *all, struct sandbox *sandbox)
{
    const struct record *record = &sandbox->record;
    struct storage *storage = all->house.storage;
    struct error why = {0};
    sandbox->area_bytes = record->limits.disk_bytes;
    if (strcmp(record->storage, storage_kind(storage)) != 0)
        error_set(&why, ERROR_INVALID, "it has storage %s, and this node has %s now", record->storage,
                  storage_kind(storage));
    else if (storage_area_adopt(storage, record->slot, record->uid_base, sandbox->handle.init, record->area_device,
                                &sandbox->area, &why))
        return;
    sandbox->area = STORAGE_AREA_NONE;
    log_warn("launcher", "the disk of a sandbox cannot be found sandbox=%s slot=%" PRIu32 ": %s", record->id,
             record->slot, why.message);
}

static void adopt_template(struct sandboxes *all, struct sandbox *sandbox)
{
    const struct record *record = &sandbox->record;
    struct error why = {0};
    struct catalog_version *version = catalog_find_version(all->house.catalog, record->template_version, &why);
    if (version)
        sandbox->template = catalog_keep(version);
    else
        log_warn("launcher", "the template of a sandbox cannot be read sandbox=%s slot=%" PRIu32 ": %s", record->id,
                 record->slot, why.message);
}

static struct sandbox *add(struct sandboxes *all, uint32_t slot, bool is_pool)
{
    struct sandbox *sandbox = sandbox_new(all, is_pool);
    sandbox_place(all, sandbox, slot);
    return sandbox;
}

/* Its level may not be offered any more: to find, limit and end it the cgroups are enough. */
static const struct isolation_backend *backend_of(const struct sandboxes *all, const struct record *record)
{
    for (size_t i = 0; i < all->house.offer.count; i++) {
        if (strcmp(all->house.offer.list[i]->name, record->isolation) == 0)
            return all->house.offer.list[i];
    }
    const struct isolation_backend *known = isolation_find(record->isolation);
    return known ? known : all->house.offer.list[0];
}

static bool adopt(struct sandboxes *all, struct sandbox *sandbox, struct error *err)
{
    const struct record *record = &sandbox->record;
    if (record->state != RECORD_LIVE)
        return error_set(err, ERROR_NOT_FOUND, "it was never finished");
    if (!slots_claim(all->slots, record->slot, record->id, err) ||
        !sandbox->backend->adopt(record->slot, record->init_pid, record->init_start, &sandbox->handle, err))
        return false;
    sandboxes_close_stats(sandbox);
    if (!all->house.watch.add(all->house.watch.context, SANDBOX_INIT_ENDED, record->slot, sandbox->handle.init, err))
        return false;
    adopt_area(all, sandbox);
    adopt_template(all, sandbox);
    ways_adopt(all, sandbox);
    sandbox_enter(all, sandbox, SANDBOX_LIVE);
    return true;
}

/* Takes up what an earlier launcher wrote of one slot. */
static bool take_up(struct sandboxes *all, uint32_t slot, struct error *err)
{
    struct error why = {0};
    struct record record = {0};
    bool known = record_read(all->house.record_folder, slot, &record, &why);
    bool is_pool = known && !record.id[0]; /* warm ones end with their launcher: nothing to tell of */
    struct sandbox *sandbox = add(all, slot, is_pool);
    if (known) {
        sandbox->record = record;
        sandbox->backend = backend_of(all, &record);
        if (adopt(all, sandbox, &why)) {
            log_info("launcher", "sandbox adopted sandbox=%s slot=%" PRIu32 " pid=%d", record.id, slot,
                     (int)record.init_pid);
            return true;
        }
        if (why.kind != ERROR_NOT_FOUND && why.kind != ERROR_CONFLICT) { /* it lives: the next launcher may adopt it */
            *err = why;
            return error_prefix(err, "adopt sandbox %s", record.id);
        }
        if (record.state != RECORD_LIVE)
            sandbox_forget(sandbox);
    }
    log_write(is_pool ? LOG_DEBUG : LOG_WARN, "launcher",
              "remains of a sandbox are removed sandbox=%s slot=%" PRIu32 ": %s",
              sandbox->record.id[0] ? sandbox->record.id : "unknown", slot, why.message);
    sandbox_find_reason(sandbox);
    sandboxes_end(all, sandbox, "crashed");
    return true;
}

static void take_up_orphans(struct sandboxes *all, const uint32_t *slots, size_t count, const char *what)
{
    for (size_t i = 0; i < count; i++) {
        if (slots[i] >= SLOTS_COUNT || all->by_slot[slots[i]])
            continue;
        log_warn("launcher", "a %s without a record is removed slot=%" PRIu32, what, slots[i]);
        sandboxes_end(all, add(all, slots[i], false), "crashed");
    }
}

/* Folders below run/ that are named as slots are. */
static size_t list_folders(const char *path, uint32_t *slots, size_t max)
{
    size_t count = 0;
    DIR *folder = opendir(path);
    for (const struct dirent *entry = folder ? readdir(folder) : NULL; entry && count < max; entry = readdir(folder)) {
        uint64_t slot = 0;
        if (text_parse_u64(entry->d_name, strlen(entry->d_name), SLOTS_COUNT - 1, &slot))
            slots[count++] = (uint32_t)slot;
    }
    if (folder)
        closedir(folder);
    return count;
}

bool sandboxes_start(struct sandboxes *all, const struct sandboxes_house *house, struct slots *slots, struct error *err)
{
    if (house->offer.count == 0 || house->max == 0)
        return error_set(err, ERROR_INVALID, "no isolation backend");
    all->house = *house;
    all->slots = slots;
    AUTO_FREE uint32_t *found = memory_array(SLOTS_COUNT, sizeof *found);
    size_t count = record_list(house->record_folder, found, SLOTS_COUNT);
    for (size_t i = 0; i < count; i++)
        if (!take_up(all, found[i], err))
            return false;
    count = house->offer.list[0]->list(found, SLOTS_COUNT);
    take_up_orphans(all, found, count, "cgroup");
    count = list_folders(house->run_folder, found, SLOTS_COUNT);
    take_up_orphans(all, found, count, "folder");
    /* What is still dying keeps its slot locked. */
    for (uint32_t slot = 0; slot < SLOTS_COUNT; slot++)
        slots->held[slot] = slots->held[slot] || all->by_slot[slot];
    slots_release_stale(slots);
    return true;
}
