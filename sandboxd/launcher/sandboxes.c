#include "sandboxd/launcher/sandboxes.h"

#include "shared/base/fd.h"
#include "shared/base/log.h"
#include "shared/base/memory.h"
#include "shared/base/text.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static const uint64_t MS = 1000000;
static const uint64_t DEADLINE_GRACE_NS = 15000 * 1000000ULL;
enum { RETRY_FIRST_MS = 2, RETRY_MAX_MS = 250, STAT_OOM = 5, STAT_BYTES = 1024 };

/* --- the table --- */

static struct sandbox *add(struct sandboxes *all, uint32_t slot)
{
    struct sandbox *sandbox = memory_new(sizeof *sandbox);
    sandbox->record.slot = slot;
    sandbox->handle = ISOLATION_NONE;
    all->by_slot[slot] = sandbox;
    all->count++;
    return sandbox;
}

static void drop(struct sandboxes *all, struct sandbox *sandbox)
{
    all->by_slot[sandbox->record.slot] = NULL;
    all->count--;
    isolation_close(&sandbox->handle);
    free(sandbox);
}

struct sandbox *sandboxes_find(struct sandboxes *all, const char *id)
{
    for (uint32_t slot = 0; slot < SLOTS_COUNT; slot++) {
        struct sandbox *sandbox = all->by_slot[slot];
        if (sandbox && strcmp(sandbox->record.id, id) == 0)
            return sandbox;
    }
    return NULL;
}

const struct sandbox_end *sandboxes_find_end(const struct sandboxes *all, const char *id)
{
    uint64_t first = all->ended_count > SANDBOXES_ENDED_KEPT ? all->ended_count - SANDBOXES_ENDED_KEPT : 0;
    for (uint64_t number = first; number < all->ended_count; number++) {
        const struct sandbox_end *end = &all->ended[number % SANDBOXES_ENDED_KEPT];
        if (strcmp(end->id, id) == 0)
            return end;
    }
    return NULL;
}

static void note_end(struct sandboxes *all, const struct sandbox *sandbox)
{
    log_info("launcher", "sandbox ended sandbox=%s slot=%" PRIu32 " reason=%s",
             sandbox->record.id[0] ? sandbox->record.id : "unknown", sandbox->record.slot, sandbox->reason);
    if (!sandbox->record.id[0])
        return;
    struct sandbox_end *end = &all->ended[all->ended_count++ % SANDBOXES_ENDED_KEPT];
    memcpy(end->id, sandbox->record.id, sizeof end->id);
    memcpy(end->reason, sandbox->reason, sizeof end->reason);
    end->epoch = sandbox->record.epoch;
    end->destroy_request = sandbox->destroy_request;
}

/* --- folders --- */

static char *folder_of(const struct sandboxes *all, uint32_t slot)
{
    return memory_printf("%s/%" PRIu32, all->house.run_folder, slot);
}

static bool make_folder(const char *path, gid_t group, struct error *err)
{
    /* What a crash left is not trusted to be as it should. */
    if (!fd_remove_tree(path, err))
        return false;
    if (mkdir(path, 0700) < 0 || chown(path, 0, group) < 0 || chmod(path, 0710) < 0)
        return error_set_errno(err, ERROR_INTERNAL, "make folder %s", path);
    return true;
}

/* --- ending --- */

static bool is_past_deadline(const struct sandbox *sandbox)
{
    return sandbox->record.deadline_boot_ns && clock_boot_ns() >= sandbox->record.deadline_boot_ns;
}

/* The line "oom_kill N" of v1 memory.oom_control or v2 memory.events. */
static bool was_oom(const struct sandbox *sandbox)
{
    char text[STAT_BYTES];
    int fd = sandbox->handle.stats[STAT_OOM];
    ssize_t size = fd < 0 ? -1 : pread(fd, text, sizeof text - 1, 0);
    text[size > 0 ? size : 0] = '\0';
    const char *line = strstr(text, "oom_kill ");
    return line && strtoull(line + strlen("oom_kill "), NULL, 10) > 0;
}

static void find_reason(struct sandbox *sandbox)
{
    const char *reason = is_past_deadline(sandbox) ? "max_lifetime" : was_oom(sandbox) ? "oom" : "crashed";
    if (!sandbox->reason[0])
        (void)!text_copy(sandbox->reason, sizeof sandbox->reason, reason);
}

/* An init that we made is our child, and a zombie until we look; one that was adopted is not. */
static bool reap(const struct sandbox *sandbox, struct error *err)
{
    siginfo_t how = {0};
    if (sandbox->handle.init < 0 || waitid(P_PIDFD, (id_t)sandbox->handle.init, &how, WEXITED | WNOHANG) < 0)
        return true;
    return how.si_pid != 0 || error_set(err, ERROR_STARTING, "init still dies");
}

/* Takes away what is left. True when nothing is: then the sandbox was freed. */
static bool try_remove(struct sandboxes *all, struct sandbox *sandbox)
{
    const struct isolation_backend *backend = all->house.backend;
    uint32_t slot = sandbox->record.slot;
    struct error err = {0};
    AUTO_FREE char *folder = folder_of(all, slot);
    if (backend->kill(slot, &err) && reap(sandbox, &err) && backend->remove(slot, &err) &&
        fd_remove_tree(folder, &err)) {
        find_reason(sandbox);
        record_remove(all->house.record_folder, slot);
        slots_release(all->slots, slot);
        note_end(all, sandbox);
        drop(all, sandbox);
        return true;
    }
    if (err.kind != ERROR_STARTING && sandbox->tries == 0)
        log_error("launcher", "sandbox cannot be removed yet sandbox=%s slot=%" PRIu32 ": %s", sandbox->record.id, slot,
                  err.message);
    uint64_t wait_ms = sandbox->tries < 7 ? (uint64_t)RETRY_FIRST_MS << sandbox->tries : RETRY_MAX_MS;
    sandbox->tries++;
    sandbox->retry_boot_ns = clock_boot_ns() + wait_ms * MS;
    return false;
}

void sandboxes_end(struct sandboxes *all, struct sandbox *sandbox, const char *reason)
{
    if (!sandbox->reason[0])
        (void)!text_copy(sandbox->reason, sizeof sandbox->reason, reason);
    if (sandbox->ending)
        return;
    sandbox->ending = true;
    try_remove(all, sandbox);
}

void sandboxes_init_ended(struct sandboxes *all, uint32_t slot)
{
    struct sandbox *sandbox = slot < SLOTS_COUNT ? all->by_slot[slot] : NULL;
    struct pollfd init = {.fd = sandbox ? sandbox->handle.init : -1, .events = POLLIN};
    if (sandbox == NULL || poll(&init, 1, 0) == 0)
        return;           /* an event of who had the slot before */
    find_reason(sandbox); /* before the cgroup that tells is gone */
    sandbox->ending = true;
    try_remove(all, sandbox);
}

/* --- making --- */

static uint64_t boot_of_wall(int64_t wall_ms)
{
    int64_t ahead_ms = wall_ms - clock_wall_ms();
    return clock_boot_ns() + (ahead_ms > 0 ? (uint64_t)ahead_ms * MS : 0);
}

static void fill_record(struct record *record, const struct fl_prepare *prepare, const struct fl_limits *limits)
{
    record->state = RECORD_STARTING;
    record->uid_base = slots_uid(record->slot);
    record->created_wall_ms = clock_wall_ms();
    record->deadline_wall_ms = prepare->deadline_wall_ms;
    record->deadline_boot_ns = boot_of_wall(prepare->deadline_wall_ms);
    record->limits = *limits;
    memcpy(record->id, prepare->id, sizeof record->id);
    memcpy(record->hostname, prepare->hostname, sizeof record->hostname);
    memcpy(record->template_name, prepare->template_name, sizeof record->template_name);
    record->epoch = prepare->epoch;
    memcpy(record->env, prepare->env, sizeof record->env);
}

/* --- to be replaced: storage makes areas, and births do not block --- */

static int make_area(const struct record *record, struct error *err)
{
    static const char *const FOLDERS[] = {"root", "root/upper", "root/work", "usr", "usr/upper", "usr/work"};
    char size[32];
    char inodes[32];
    snprintf(size, sizeof size, "%" PRIu64, record->limits.disk_bytes);
    snprintf(inodes, sizeof inodes, "%" PRIu64, record->limits.disk_bytes / ISOLATION_BYTES_PER_INODE + 64);
    AUTO_FD int context = fsopen("tmpfs", FSOPEN_CLOEXEC);
    if (context < 0 || fsconfig(context, FSCONFIG_SET_STRING, "size", size, 0) < 0 ||
        fsconfig(context, FSCONFIG_SET_STRING, "nr_inodes", inodes, 0) < 0 ||
        fsconfig(context, FSCONFIG_SET_STRING, "mode", "0755", 0) < 0 ||
        fsconfig(context, FSCONFIG_CMD_CREATE, NULL, NULL, 0) < 0) {
        error_set_errno(err, ERROR_INTERNAL, "make a tmpfs of %s bytes", size);
        return -1;
    }
    AUTO_FD int area = fsmount(context, FSMOUNT_CLOEXEC, MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV);
    bool made = area >= 0 && fchownat(area, "", record->uid_base, record->uid_base, AT_EMPTY_PATH) == 0;
    for (size_t i = 0; made && i < sizeof FOLDERS / sizeof FOLDERS[0]; i++)
        made = mkdirat(area, FOLDERS[i], 0755) == 0 &&
               fchownat(area, FOLDERS[i], record->uid_base, record->uid_base, 0) == 0;
    if (!made)
        error_set_errno(err, ERROR_INTERNAL, "fill a tmpfs");
    return made ? TAKE_FD(area) : -1;
}

static bool wait_birth(const struct sandboxes *all, struct sandbox *sandbox, bool warm, struct error *err)
{
    const struct isolation_backend *backend = all->house.backend;
    struct pollfd birth = {.fd = sandbox->handle.birth, .events = POLLIN};
    for (;;) {
        if (poll(&birth, 1, 10000) == 0)
            return error_set(err, ERROR_TIMEOUT, "init was not ready within 10 s");
        int news = warm ? backend->is_warm(sandbox->record.slot, &sandbox->handle, err)
                        : backend->is_ready(&sandbox->handle, err);
        if (news != 0)
            return news > 0;
    }
}

static bool give_birth(const struct sandboxes *all, struct sandbox *sandbox, const char *socket_path, struct error *err)
{
    const struct record *record = &sandbox->record;
    const struct sandboxes_house *house = &all->house;
    AUTO_FD int area = make_area(record, err);
    struct isolation_plan plan = {.slot = record->slot,
                                  .uid_base = record->uid_base,
                                  .lower_root = house->skeleton,
                                  .lower_usr = "/usr",
                                  .area_mount = area,
                                  .socket_path = socket_path,
                                  .socket_group = house->front_group,
                                  .init_program = house->init_program};
    struct isolation_life life = {.hostname = record->hostname,
                                  .limits = {.cpu_milli = record->limits.cpu_milli,
                                             .pids = record->limits.pids,
                                             .memory_bytes = record->limits.memory_bytes},
                                  .shared_bytes = isolation_shared_bytes(record->limits.memory_bytes),
                                  .deadline_boot_ns = record->deadline_boot_ns,
                                  .uid = 1000,
                                  .gid = 1000,
                                  .open_files = 65536};
    return area >= 0 && house->backend->begin(&plan, &sandbox->handle, err) && wait_birth(all, sandbox, true, err) &&
           house->backend->become(record->slot, record->uid_base, &sandbox->handle, &life, err) &&
           wait_birth(all, sandbox, false, err);
}

static bool create_in(struct sandboxes *all, struct sandbox *sandbox, struct error *err)
{
    struct record *record = &sandbox->record;
    const struct sandboxes_house *house = &all->house;
    AUTO_FREE char *folder = folder_of(all, record->slot);
    AUTO_FREE char *socket_path = memory_printf("%s/init.sock", folder);
    if (!record_write(house->record_folder, record, err) || !make_folder(folder, house->front_group, err) ||
        !give_birth(all, sandbox, socket_path, err))
        return false;
    record->state = RECORD_LIVE;
    record->init_pid = sandbox->handle.init_pid;
    record->init_start = sandbox->handle.init_start;
    return record_write(house->record_folder, record, err) &&
           house->watch.add(house->watch.context, record->slot, sandbox->handle.init, err);
}

struct sandbox *sandboxes_create(struct sandboxes *all, const struct fl_prepare *prepare,
                                 const struct fl_limits *limits, struct error *err)
{
    uint32_t slot = 0;
    if (all->count >= all->house.max) {
        error_set(err, ERROR_NO_CAPACITY, "all %" PRIu32 " sandboxes of this node are in use (slots_max)",
                  all->house.max);
        return NULL;
    }
    if (!slots_take(all->slots, prepare->id, &slot, err))
        return NULL;
    struct sandbox *sandbox = add(all, slot);
    fill_record(&sandbox->record, prepare, limits);
    (void)!text_copy(sandbox->record.isolation, sizeof sandbox->record.isolation, all->house.backend->name);
    if (create_in(all, sandbox, err)) {
        log_info("launcher", "sandbox made sandbox=%s slot=%" PRIu32 " pid=%d", prepare->id, slot,
                 (int)sandbox->record.init_pid);
        return sandbox;
    }
    /* It never was: no end is told of it. */
    memset(sandbox->record.id, 0, sizeof sandbox->record.id);
    sandboxes_end(all, sandbox, "not made");
    return NULL;
}

bool sandboxes_move_deadline(struct sandboxes *all, struct sandbox *sandbox, int64_t deadline_wall_ms,
                             struct error *err)
{
    struct record moved = sandbox->record;
    moved.deadline_wall_ms = deadline_wall_ms;
    moved.deadline_boot_ns = boot_of_wall(deadline_wall_ms);
    if (!record_write(all->house.record_folder, &moved, err))
        return false;
    sandbox->record = moved;
    return true;
}

bool sandboxes_raise_epoch(struct sandboxes *all, struct sandbox *sandbox, uint32_t epoch, struct error *err)
{
    if (epoch <= sandbox->record.epoch)
        return true;
    struct record raised = sandbox->record;
    raised.epoch = epoch;
    if (!record_write(all->house.record_folder, &raised, err))
        return false;
    sandbox->record = raised;
    return true;
}

bool sandboxes_open_stats(struct sandboxes *all, struct sandbox *sandbox, struct error *err)
{
    if (sandbox->handle.stats[0] >= 0)
        return true;
    struct isolation_sandbox again;
    const struct record *record = &sandbox->record;
    if (!all->house.backend->adopt(record->slot, record->init_pid, record->init_start, &again, err))
        return false;
    close(again.init); /* the loop watches the one we have */
    again.init = sandbox->handle.init;
    sandbox->handle.init = -1;
    isolation_close(&sandbox->handle);
    sandbox->handle = again;
    return true;
}

void sandboxes_close_stats(struct sandbox *sandbox)
{
    for (size_t i = 0; i < STAT_OOM; i++) {
        if (sandbox->handle.stats[i] >= 0)
            close(sandbox->handle.stats[i]);
        sandbox->handle.stats[i] = -1;
    }
}

/* --- time --- */

static uint64_t due(const struct sandbox *sandbox)
{
    if (sandbox->ending)
        return sandbox->retry_boot_ns;
    uint64_t deadline = sandbox->record.deadline_boot_ns;
    return deadline ? deadline + DEADLINE_GRACE_NS : 0;
}

/* Looks at all: some thousands at most, and only when something changed. */
uint64_t sandboxes_next_wake(const struct sandboxes *all)
{
    uint64_t next = 0;
    for (uint32_t slot = 0; slot < SLOTS_COUNT; slot++) {
        uint64_t here = all->by_slot[slot] ? due(all->by_slot[slot]) : 0;
        if (here && (next == 0 || here < next))
            next = here;
    }
    return next;
}

void sandboxes_wake(struct sandboxes *all, uint64_t now_boot_ns)
{
    for (uint32_t slot = 0; slot < SLOTS_COUNT; slot++) {
        struct sandbox *sandbox = all->by_slot[slot];
        uint64_t here = sandbox ? due(sandbox) : 0;
        if (here == 0 || here > now_boot_ns)
            continue;
        if (sandbox->ending)
            try_remove(all, sandbox);
        else
            sandboxes_end(all, sandbox, "max_lifetime");
    }
}

/* --- starting --- */

static bool adopt(struct sandboxes *all, struct sandbox *sandbox, struct error *err)
{
    const struct record *record = &sandbox->record;
    if (record->state != RECORD_LIVE)
        return error_set(err, ERROR_NOT_FOUND, "it was never finished");
    if (!slots_claim(all->slots, record->slot, record->id, err) ||
        !all->house.backend->adopt(record->slot, record->init_pid, record->init_start, &sandbox->handle, err))
        return false;
    sandboxes_close_stats(sandbox);
    return all->house.watch.add(all->house.watch.context, record->slot, sandbox->handle.init, err);
}

/* Takes up what an earlier launcher wrote of one slot. */
static bool take_up(struct sandboxes *all, uint32_t slot, struct error *err)
{
    struct error why = {0};
    struct record record = {0};
    bool known = record_read(all->house.record_folder, slot, &record, &why);
    struct sandbox *sandbox = add(all, slot);
    if (known) {
        sandbox->record = record;
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
            memset(sandbox->record.id, 0, sizeof sandbox->record.id);
    }
    log_warn("launcher", "remains of a sandbox are removed sandbox=%s slot=%" PRIu32 ": %s",
             sandbox->record.id[0] ? sandbox->record.id : "unknown", slot, why.message);
    find_reason(sandbox);
    sandboxes_end(all, sandbox, "crashed");
    return true;
}

static void take_up_orphans(struct sandboxes *all, const uint32_t *slots, size_t count, const char *what)
{
    for (size_t i = 0; i < count; i++) {
        if (slots[i] >= SLOTS_COUNT || all->by_slot[slots[i]])
            continue;
        log_warn("launcher", "a %s without a record is removed slot=%" PRIu32, what, slots[i]);
        sandboxes_end(all, add(all, slots[i]), "crashed");
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
    if (!house->backend->begin || house->max == 0)
        return error_set(err, ERROR_INVALID, "no backend");
    all->house = *house;
    all->slots = slots;
    AUTO_FREE uint32_t *found = memory_array(SLOTS_COUNT, sizeof *found);
    size_t count = record_list(house->record_folder, found, SLOTS_COUNT);
    for (size_t i = 0; i < count; i++)
        if (!take_up(all, found[i], err))
            return false;
    count = house->backend->list(found, SLOTS_COUNT);
    take_up_orphans(all, found, count, "cgroup");
    count = list_folders(house->run_folder, found, SLOTS_COUNT);
    take_up_orphans(all, found, count, "folder");
    /* What is still dying keeps its slot locked. */
    for (uint32_t slot = 0; slot < SLOTS_COUNT; slot++)
        slots->held[slot] = slots->held[slot] || all->by_slot[slot];
    slots_release_stale(slots);
    return true;
}

void sandboxes_done(struct sandboxes *all)
{
    for (uint32_t slot = 0; slot < SLOTS_COUNT; slot++) {
        if (all->by_slot[slot])
            drop(all, all->by_slot[slot]);
    }
}
