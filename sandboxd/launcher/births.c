/* births.c - how a sandbox comes to live: a few births at once, each watched, none waited for. */
#include "sandboxd/launcher/sandboxes_internal.h"

#include "shared/base/fd.h"
#include "shared/base/log.h"
#include "shared/base/memory.h"
#include "shared/base/text.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>
#include <sys/stat.h>

static const uint64_t SECOND = 1000000000;
static const uint64_t MIB = 1024 * 1024;
enum { POOL_MEMORY_AREA_MIB = 16, POOL_AREA_MIB = 1024 }; /* quota of an area that nobody has yet */

void birth_free(struct birth *birth)
{
    if (!birth)
        return;
    attachments_close(&birth->volumes);
    explicit_bzero(birth, sizeof *birth); /* an environment may hold secrets */
    free(birth);
}

void birth_unmake(const struct sandboxes *all, const struct birth *birth)
{
    for (size_t i = 0; i < birth->volumes.count; i++) {
        if (!sandboxes_have_volume(all, birth->volumes.list[i].disk_name))
            attachments_unmake(&all->house.volumes, &birth->volumes, i);
    }
}

/* --- the first half: a place to live, for anybody --- */

static bool make_folder(const char *path, gid_t group, struct error *err)
{
    /* What a crash left is not trusted to be as it should. */
    if (!fd_remove_tree(path, err))
        return false;
    if (mkdir(path, 0700) < 0 || chown(path, 0, group) < 0 || chmod(path, 0710) < 0)
        return error_set_errno(err, ERROR_INTERNAL, "make folder %s", path);
    return true;
}

static bool watch(const struct sandboxes *all, enum sandbox_event event, const struct sandbox *sandbox, int fd,
                  struct error *err)
{
    return all->house.watch.add(all->house.watch.context, event, sandbox->record.slot, fd, err);
}

static bool become(struct sandboxes *all, struct sandbox *sandbox, struct error *err);

/* Whose it is to be is known already: it is told what it becomes before it asks. Where that cannot be said yet it is
 * told when it is warm. */
static bool become_at_once(struct sandboxes *all, struct sandbox *sandbox, struct error *err)
{
    struct error why = {0};
    if (become(all, sandbox, &why))
        return true;
    sandbox_enter(all, sandbox, SANDBOX_BORN);
    if (err && why.kind != ERROR_STARTING)
        *err = why;
    return why.kind == ERROR_STARTING;
}

static bool begin(struct sandboxes *all, struct sandbox *sandbox, struct error *err)
{
    const struct sandboxes_house *house = &all->house;
    const struct template *template = &sandbox->template->facts;
    AUTO_FREE char *folder = sandbox_folder(all, sandbox->record.slot);
    AUTO_FREE char *socket_path = memory_printf("%s/init.sock", folder);
    struct isolation_plan plan = {.slot = sandbox->record.slot,
                                  .uid_base = sandbox->record.uid_base,
                                  .lower_root = template->rootfs,
                                  .lower_usr = template->record.kind == TEMPLATE_SKELETON ? "/usr" : NULL,
                                  .area_path = sandbox->area.path[0] ? sandbox->area.path : NULL,
                                  .area_mount = sandbox->area.mount,
                                  .socket_path = socket_path,
                                  .socket_group = house->front_group,
                                  .init_program = house->init_program,
                                  .network = -1};
    AUTO_FD int network = house->networks ? networks_take(house->networks, err) : -1;
    plan.network = network;
    if (house->networks && network < 0)
        return false;
    if (!sandbox->backend->begin(&plan, &sandbox->handle, err))
        return false;
    sandbox->record.init_pid = sandbox->handle.init_pid;
    sandbox->record.init_start = sandbox->handle.init_start;
    sandbox->record.area_device = sandbox->area.device;
    sandbox->due_boot_ns = clock_boot_ns() + SANDBOXES_BIRTH_S * SECOND;
    sandbox_enter(all, sandbox, SANDBOX_BORN);
    return watch(all, SANDBOX_INIT_ENDED, sandbox, sandbox->handle.init, err) &&
           watch(all, SANDBOX_BIRTH, sandbox, sandbox->handle.birth, err) &&
           (!sandbox->birth || become_at_once(all, sandbox, err));
}

/* Begins in the sandbox's slot; its record says whose it is to be, if that is known. */
static bool begin_in_slot(struct sandboxes *all, struct sandbox *sandbox, struct error *err)
{
    struct record *record = &sandbox->record;
    const struct sandboxes_house *house = &all->house;
    AUTO_FREE char *folder = sandbox_folder(all, record->slot);
    record->state = RECORD_STARTING;
    (void)!text_copy(record->isolation, sizeof record->isolation, sandbox->backend->name);
    (void)!text_copy(record->storage, sizeof record->storage, storage_kind(house->storage));
    memcpy(record->template_name, sandbox->template->facts.record.name, sizeof record->template_name);
    memcpy(record->template_version, sandbox->template->facts.version, sizeof record->template_version);
    if (!record_write(house->record_folder, record, err) || !make_folder(folder, house->front_group, err))
        return false;
    if (!record->snapshot[0])
        return storage_area_make(house->storage, record->slot, record->uid_base, sandbox->area_bytes, &sandbox->area,
                                 err) &&
               begin(all, sandbox, err);
    if (!storage_area_restore(house->storage, record->slot, record->uid_base, sandbox->area_bytes, record->snapshot,
                              &sandbox->area, &sandbox->job, err))
        return false;
    if (!sandbox->job)
        return begin(all, sandbox, err);
    sandbox->due_boot_ns = clock_boot_ns() + SANDBOXES_FILLING_S * SECOND;
    sandbox_enter(all, sandbox, SANDBOX_FILLING);
    return watch(all, SANDBOX_JOB, sandbox, storage_job_fd(sandbox->job), err);
}

void birth_filled(struct sandboxes *all, struct sandbox *sandbox)
{
    struct error err = {0};
    if (!sandbox->job)
        return;
    if (!storage_job_finish(TAKE(sandbox->job), &err) || !begin(all, sandbox, &err))
        birth_fail(all, sandbox, &err);
}

/* --- the second half: it becomes somebody's --- */

static void fill_record(struct sandbox *sandbox)
{
    struct record *record = &sandbox->record;
    const struct sandbox_wish *wish = &sandbox->birth->wish;
    const struct fl_prepare *prepare = &wish->prepare;
    record->created_wall_ms = clock_wall_ms();
    record->deadline_wall_ms = prepare->deadline_wall_ms;
    record->deadline_boot_ns = sandbox_boot_of_wall(prepare->deadline_wall_ms);
    record->limits = wish->limits;
    memcpy(record->id, prepare->id, sizeof record->id);
    memcpy(record->hostname, prepare->hostname, sizeof record->hostname);
    memcpy(record->snapshot, prepare->snapshot, sizeof record->snapshot);
    record->uid = wish->template->facts.record.uid;
    record->gid = wish->template->facts.record.gid;
    record->root_allowed = wish->root_allowed;
    record->epoch = prepare->epoch;
    memcpy(record->env, prepare->env, sizeof record->env);
    for (size_t i = 0; i < sandbox->birth->volumes.count; i++)
        memcpy(record->volumes[i], sandbox->birth->volumes.list[i].disk_name, sizeof record->volumes[i]);
}

static bool become(struct sandboxes *all, struct sandbox *sandbox, struct error *err)
{
    const struct record *record = &sandbox->record;
    const struct fl_limits *limits = &record->limits;
    struct isolation_life life = {
        .hostname = record->hostname,
        .limits = sandboxes_kernel_limits(sandbox->backend, limits),
        .shared_bytes = isolation_shared_bytes(limits->memory_bytes),
        .deadline_boot_ns = record->deadline_boot_ns,
        .uid = record->uid,
        .gid = record->gid,
        .open_files = limits->open_files,
        .root_allowed = record->root_allowed != 0};
    attachments_tell(&sandbox->birth->volumes, &life);
    AUTO_GUEST_LETTER letter = sandbox->backend->is_guest ? guest_letter_make(all, sandbox, err) : NULL;
    life.letter = letter;
    if (sandbox->backend->is_guest && !letter)
        return false;
    bool is_other = sandbox->area_bytes != limits->disk_bytes && storage_has_quota(all->house.storage);
    if (is_other && !storage_area_limit(all->house.storage, &sandbox->area, limits->disk_bytes, err))
        return false;
    sandbox->area_bytes = limits->disk_bytes;
    sandbox->due_boot_ns = clock_boot_ns() + SANDBOXES_BIRTH_S * SECOND;
    sandbox_enter(all, sandbox, SANDBOX_BECOMING);
    const struct fl_network *network = &sandbox->birth->wish.prepare.network;
    const struct fl_network *rules = sandbox->network ? network_rules(sandbox->network) : NULL;
    bool has_way = rules && rules->mode == network->mode; /* told once already, too soon for its init */
    return (has_way || sandboxes_wall(all, sandbox, network, err)) &&
           sandbox->backend->become(record->slot, record->uid_base, &sandbox->handle, &life, err);
}

static bool enter_pool(struct sandboxes *all, struct sandbox *sandbox, struct error *err)
{
    sandbox->record.state = RECORD_WARM;
    sandbox->due_boot_ns = 0;
    sandbox_enter(all, sandbox, SANDBOX_WARM);
    if (!record_write(all->house.record_folder, &sandbox->record, err))
        return false;
    warm_note(all, true, clock_boot_ns());
    return true;
}

static bool begin_to_live(struct sandboxes *all, struct sandbox *sandbox, struct error *err)
{
    sandbox->record.state = RECORD_LIVE;
    if (!record_write(all->house.record_folder, &sandbox->record, err))
        return false;
    sandbox->due_boot_ns = 0;
    sandbox_enter(all, sandbox, SANDBOX_LIVE);
    AUTO(birth) *birth UNUSED = TAKE(sandbox->birth);
    log_info("launcher", "sandbox made sandbox=%s slot=%" PRIu32 " pid=%d template=%s warm=%" PRIu32,
             sandbox->record.id, sandbox->record.slot, (int)sandbox->record.init_pid, sandbox->record.template_version,
             sandbox->record.was_warm);
    if (all->listener.born)
        all->listener.born(all->listener.context, sandbox);
    return true;
}

/* --- from one to the other --- */

/* What the dialogue with init has come to: true unless it has failed. */
static bool go_on(struct sandboxes *all, struct sandbox *sandbox, struct error *err)
{
    const struct isolation_backend *backend = sandbox->backend;
    if (sandbox->state == SANDBOX_BORN) {
        int is_warm = backend->is_warm(sandbox->record.slot, &sandbox->handle, err);
        if (is_warm <= 0)
            return is_warm == 0;
        return sandbox->birth ? become(all, sandbox, err) : enter_pool(all, sandbox, err);
    }
    int is_ready = sandbox->state == SANDBOX_BECOMING ? backend->is_ready(&sandbox->handle, err) : 0;
    return is_ready > 0 ? begin_to_live(all, sandbox, err) : is_ready == 0;
}

void birth_event(struct sandboxes *all, struct sandbox *sandbox)
{
    struct error err = {0};
    int birth = sandbox->handle.birth;
    if (birth < 0 || sandbox->state == SANDBOX_ENDING)
        return;
    bool goes_on = go_on(all, sandbox, &err);
    /* One that is warm says nothing more: should its init end, the pidfd tells. */
    bool is_watched = sandbox->handle.birth == birth && sandbox->state != SANDBOX_WARM;
    if (goes_on && is_watched)
        goes_on = all->house.watch.again(all->house.watch.context, SANDBOX_BIRTH, sandbox->record.slot, birth, &err);
    if (!goes_on)
        birth_fail(all, sandbox, &err);
}

void birth_init_ended(struct sandboxes *all, struct sandbox *sandbox)
{
    struct error err = {0};
    uint32_t slot = sandbox->record.slot;
    birth_event(all, sandbox); /* what it said before */
    if (all->by_slot[slot] != sandbox || sandbox->state == SANDBOX_ENDING)
        return;
    error_set(&err, ERROR_INTERNAL, "the sandbox's init ended before it was ready");
    birth_fail(all, sandbox, &err);
}

/* A warm one is not needed for what a cold one can do as well. */
static void begin_again(struct sandboxes *all, struct sandbox *sandbox, const struct error *why)
{
    struct birth *birth = TAKE(sandbox->birth);
    log_warn("launcher", "a warm sandbox failed, the next is born cold sandbox=%s slot=%" PRIu32 ": %s",
             sandbox->record.id, sandbox->record.slot, why->message);
    birth_queue(all, birth, true);
}

void birth_fail(struct sandboxes *all, struct sandbox *sandbox, const struct error *why)
{
    char id[FRONT_LAUNCHER_ID_BYTES];
    memcpy(id, sandbox->record.id, sizeof id);
    if (sandbox->is_pool) {
        log_warn("launcher", "a birth of the pool failed template=%s slot=%" PRIu32 ": %s",
                 sandbox->record.template_version, sandbox->record.slot, why->message);
        warm_note(all, false, clock_boot_ns());
    } else if (sandbox->record.was_warm && sandbox->birth) {
        begin_again(all, sandbox, why);
    } else if (all->listener.not_born) {
        all->listener.not_born(all->listener.context, id, why);
    }
    sandbox_forget(sandbox); /* it never was: no end is told of it */
    sandboxes_end(all, sandbox, "not made");
}

/* --- the queue --- */

void birth_queue(struct sandboxes *all, struct birth *birth, bool is_first)
{
    struct sandbox *sandbox = sandbox_new(all, false);
    sandbox->birth = birth;
    sandbox->backend = birth->wish.backend ? birth->wish.backend : sandbox->backend;
    sandbox->template = catalog_keep(birth->wish.template);
    sandbox->area_bytes = birth->wish.limits.disk_bytes;
    sandbox->due_boot_ns = clock_boot_ns() + SANDBOXES_QUEUED_S * SECOND;
    fill_record(sandbox);
    sandbox_enter(all, sandbox, SANDBOX_QUEUED);
    struct sandbox **at = &all->queue;
    while (!is_first && *at)
        at = &(*at)->next;
    sandbox->next = *at;
    *at = sandbox;
}

/* True: it was begun, or failed for good. False: it has to wait for a slot. */
static bool begin_first(struct sandboxes *all)
{
    struct error err = {0};
    struct sandbox *sandbox = all->queue;
    uint32_t slot = 0;
    if (!slots_take(all->slots, sandbox->record.id, &slot, &err)) {
        all->no_slot = true; /* until one is dropped, perhaps at once */
        if (err.kind == ERROR_NO_CAPACITY && warm_give_up_one(all))
            return !all->no_slot;
        birth_fail(all, sandbox, &err);
        return true;
    }
    all->queue = sandbox->next;
    sandbox_place(all, sandbox, slot);
    sandbox_enter(all, sandbox, SANDBOX_BORN);
    if (!begin_in_slot(all, sandbox, &err))
        birth_fail(all, sandbox, &err);
    return true;
}

void sandboxes_turn(struct sandboxes *all)
{
    while (all->queue && !all->no_slot && all->births < SANDBOXES_BIRTHS_MAX && begin_first(all)) {
    }
    catalog_clean(all->house.catalog);
}

/* --- who asks for one --- */

/* Gives a warm one to the wish; false when there is none, or it failed: then the wish is as it was. */
static bool give_warm(struct sandboxes *all, struct birth *birth, uint64_t now_boot_ns)
{
    struct error err = {0};
    const struct isolation_backend *of_pool = all->house.offer.list[0];
    bool is_of_pool = !birth->wish.backend || birth->wish.backend == of_pool;
    struct sandbox *sandbox = !is_of_pool ? NULL : warm_find(all, birth->wish.template, now_boot_ns);
    if (!sandbox)
        return false;
    sandbox->is_pool = false;
    all->pool_count--;
    sandbox->birth = birth;
    sandbox->record.was_warm = true;
    fill_record(sandbox);
    if (!become(all, sandbox, &err) || !all->house.watch.again(all->house.watch.context, SANDBOX_BIRTH,
                                                               sandbox->record.slot, sandbox->handle.birth, &err))
        birth_fail(all, sandbox, &err); /* which queues it anew */
    return true;
}

bool sandboxes_create(struct sandboxes *all, const struct sandbox_wish *wish, struct error *err)
{
    uint64_t now = clock_boot_ns();
    if (all->count - all->pool_count >= all->house.max)
        return error_set(err, ERROR_NO_CAPACITY, "all %" PRIu32 " sandboxes of this node are in use (slots_max)",
                         all->house.max);
    AUTO(birth) *birth = memory_new(sizeof *birth);
    birth->wish = *wish;
    if (!attachments_open(&all->house.volumes, &wish->prepare, &birth->volumes, err))
        return false;
    warm_stand_back(all, now);
    struct birth *mine = TAKE(birth);
    if (wish->prepare.snapshot[0] || !give_warm(all, mine, now))
        birth_queue(all, mine, false);
    sandboxes_turn(all);
    return true;
}

void birth_begin_pool(struct sandboxes *all, struct catalog_version *template)
{
    uint32_t slot = 0;
    struct error err = {0};
    uint64_t area_mib = storage_is_memory(all->house.storage) ? POOL_MEMORY_AREA_MIB : POOL_AREA_MIB;
    if (!slots_take(all->slots, "warm", &slot, &err)) {
        warm_note(all, false, clock_boot_ns());
        return;
    }
    struct sandbox *sandbox = sandbox_new(all, true);
    sandbox_place(all, sandbox, slot);
    sandbox->template = catalog_keep(template);
    sandbox->area_bytes = area_mib * MIB;
    sandbox_enter(all, sandbox, SANDBOX_BORN);
    if (!begin_in_slot(all, sandbox, &err))
        birth_fail(all, sandbox, &err);
}

static void give_up(struct sandboxes *all, struct sandbox *sandbox)
{
    bool is_asked_for = sandbox->state < SANDBOX_LIVE && !sandbox->is_pool;
    if (!is_asked_for) {
        taking_cancel(all, sandbox, NULL);
        looking_cancel(all, sandbox, NULL);
        return;
    }
    sandbox_forget(sandbox);
    sandboxes_end(all, sandbox, "who asked for it is gone");
}

void sandboxes_give_up(struct sandboxes *all)
{
    while (all->queue)
        give_up(all, all->queue);
    for (uint32_t slot = 0; slot < SLOTS_COUNT; slot++) {
        if (all->by_slot[slot])
            give_up(all, all->by_slot[slot]);
    }
}
