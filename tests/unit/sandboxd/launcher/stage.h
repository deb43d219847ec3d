/** stage.h - a launcher's half of the dialogue on a stage: a backend of eventfds, storage and templates that are
 * variables, and the front's end of the socket. What storage.h and templates.h declare is defined here, so the real
 * ones are not linked. */
#pragma once

#include "sandboxd/launcher/dialogue.h"

#include "shared/base/fd.h"
#include "shared/base/memory.h"
#include "shared/base/text.h"
#include "tests/unit/check.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/stat.h>

/* --- a backend of eventfds: a slot lives while its eventfd is not readable --- */

static struct {
    int ended[SLOTS_COUNT]; /* -1: nothing in the slot */
    int busy;               /* how often remove says "not yet" */
    bool failing;
    bool no_descriptors;     /* adopt cannot open what it needs, though the slot lives */
    int births[SLOTS_COUNT]; /* the other end of what is_warm and is_ready wait for */
    bool slow;               /* births say nothing until stage_let_on */
    bool ready_fails, become_fails, limit_fails;
    bool needs_warm; /* become cannot be before is_warm, as on hosts with v2 alone */
    bool is_warm[SLOTS_COUNT];
    unsigned begun, become;
    struct isolation_limits limits[SLOTS_COUNT];
    struct isolation_life life; /* the last one given; its texts are gone */
} fake;

static bool fake_fill(struct isolation_sandbox *made, uint32_t slot)
{
    *made = ISOLATION_NONE;
    made->init_pid = (pid_t)(1000 + slot);
    made->init_start = 5;
    made->init = dup(fake.ended[slot]);
    for (size_t i = 0; i < ISOLATION_STATS; i++)
        made->stats[i] = open("/dev/null", O_RDONLY | O_CLOEXEC);
    return true;
}

static bool fake_begin(const struct isolation_plan *plan, struct isolation_sandbox *made, struct error *err)
{
    if (fake.failing)
        return error_set(err, ERROR_INTERNAL, "fake failure");
    CHECK(plan->lower_root[0] == '/' && plan->area_path != NULL && access(plan->socket_path, F_OK) < 0);
    fake.begun++;
    fake.is_warm[plan->slot] = false;
    fake.ended[plan->slot] = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    fake_fill(made, plan->slot);
    made->birth = eventfd(fake.slow ? 0 : 1, EFD_CLOEXEC | EFD_NONBLOCK | EFD_SEMAPHORE);
    fake.births[plan->slot] = made->birth;
    return true;
}

/* One word of init's: it says them one at a time. */
static bool fake_hears(const struct isolation_sandbox *made)
{
    uint64_t one = 0;
    return read(made->birth, &one, sizeof one) == (ssize_t)sizeof one;
}

static UNUSED void fake_speak(uint32_t slot)
{
    uint64_t one = 1;
    CHECK(write(fake.births[slot], &one, sizeof one) == (ssize_t)sizeof one);
}

static int fake_is_warm(uint32_t slot, struct isolation_sandbox *made, struct error *err)
{
    (void)err;
    fake.is_warm[slot] = fake_hears(made);
    return fake.is_warm[slot];
}

static bool fake_become(uint32_t slot, uint32_t uid_base, struct isolation_sandbox *warm,
                        const struct isolation_life *life, struct error *err)
{
    CHECK(uid_base == slots_uid(slot) && warm->birth >= 0);
    if (fake.needs_warm && !fake.is_warm[slot])
        return error_set(err, ERROR_STARTING, "its init is not there yet");
    fake.become++;
    fake.life = *life;
    fake.limits[slot] = life->limits;
    if (fake.become_fails)
        return error_set(err, ERROR_INTERNAL, "fake become failure");
    if (!fake.slow)
        fake_speak(slot);
    return true;
}

static int fake_is_ready(struct isolation_sandbox *made, struct error *err)
{
    if (!fake_hears(made))
        return 0;
    if (fake.ready_fails) {
        error_set(err, ERROR_INTERNAL, "fake init could not");
        return -1;
    }
    close(made->birth);
    made->birth = -1;
    return 1;
}

static bool fake_limit(uint32_t slot, const struct isolation_limits *limits, struct error *err)
{
    if (fake.limit_fails)
        return error_set(err, ERROR_INVALID, "memory is in use");
    fake.limits[slot] = *limits;
    return true;
}

static bool fake_adopt(uint32_t slot, pid_t pid, uint64_t start, struct isolation_sandbox *found, struct error *err)
{
    if (fake.ended[slot] < 0 || pid != (pid_t)(1000 + slot) || start != 5)
        return error_set(err, ERROR_NOT_FOUND, "gone");
    if (fake.no_descriptors)
        return error_set(err, ERROR_INTERNAL, "too many open files");
    return fake_fill(found, slot);
}

static bool fake_kill(uint32_t slot, struct error *err)
{
    (void)err;
    uint64_t one = 1;
    if (fake.ended[slot] >= 0)
        (void)!write(fake.ended[slot], &one, sizeof one);
    return true;
}

static bool fake_remove(uint32_t slot, struct error *err)
{
    if (fake.busy > 0) {
        fake.busy--;
        return error_set(err, ERROR_STARTING, "still dies");
    }
    if (fake.ended[slot] >= 0)
        close(fake.ended[slot]);
    fake.ended[slot] = -1;
    return true;
}

static size_t fake_list(uint32_t *slots, size_t max)
{
    size_t count = 0;
    for (uint32_t slot = 0; slot < SLOTS_COUNT && count < max; slot++) {
        if (fake.ended[slot] >= 0)
            slots[count++] = slot;
    }
    return count;
}

static const struct isolation_backend BACKEND = {.name = "namespaces",
                                                 .begin = fake_begin,
                                                 .is_warm = fake_is_warm,
                                                 .become = fake_become,
                                                 .is_ready = fake_is_ready,
                                                 .limit = fake_limit,
                                                 .adopt = fake_adopt,
                                                 .kill = fake_kill,
                                                 .remove = fake_remove,
                                                 .list = fake_list};

/* --- storage in variables --- */

enum { FAKE_SNAPSHOTS = 8 };

struct storage {
    bool is_memory;
};

struct storage_job {
    int fd;                        /* readable when it is done */
    char name[STORAGE_NAME_BYTES]; /* of the snapshot it makes; "" none */
};

static struct {
    struct storage storage;
    uint64_t areas[SLOTS_COUNT]; /* quota; 0: none */
    char snapshots[FAKE_SNAPSHOTS][STORAGE_NAME_BYTES];
    char volumes[FAKE_SNAPSHOTS][STORAGE_NAME_BYTES];
    bool slow, limit_fails, job_fails;
    struct storage_job *job; /* the last one */
} disk;

static char *disk_find(char (*names)[STORAGE_NAME_BYTES], const char *name)
{
    for (size_t i = 0; i < FAKE_SNAPSHOTS; i++) {
        if (strcmp(names[i], name) == 0)
            return names[i];
    }
    return NULL;
}

static void disk_put(char (*names)[STORAGE_NAME_BYTES], const char *name)
{
    char *place = disk_find(names, "");
    CHECK(place != NULL && text_copy(place, STORAGE_NAME_BYTES, name));
}

static struct storage_job *disk_job(const char *name)
{
    disk.job = memory_new(sizeof *disk.job);
    disk.job->fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    CHECK(text_copy(disk.job->name, sizeof disk.job->name, name));
    return disk.job;
}

static UNUSED void disk_let_on(void)
{
    uint64_t one = 1;
    CHECK(write(disk.job->fd, &one, sizeof one) == (ssize_t)sizeof one);
}

struct storage *storage_open(const struct storage_options *options, struct error *err)
{
    (void)options;
    (void)err;
    return &disk.storage;
}

void storage_close(struct storage *storage)
{
    (void)storage;
}

const char *storage_kind(const struct storage *storage)
{
    return storage->is_memory ? "tmpfs" : "btrfs";
}

bool storage_is_memory(const struct storage *storage)
{
    return storage->is_memory;
}

bool storage_has_quota(const struct storage *storage)
{
    return storage != NULL;
}

bool storage_probe(const struct storage_options *options, char *detail, size_t size)
{
    (void)options;
    return text_copy(detail, size, "a stage");
}

void storage_area_close(struct storage_area *area)
{
    *area = STORAGE_AREA_NONE;
}

bool storage_area_make(struct storage *storage, uint32_t slot, uint32_t uid_base, uint64_t disk_bytes,
                       struct storage_area *area, struct error *err)
{
    (void)storage;
    (void)err;
    disk.areas[slot] = disk_bytes;
    *area = (struct storage_area){.slot = slot, .uid_base = uid_base, .path = "/area", .mount = -1};
    return true;
}

bool storage_area_restore(struct storage *storage, uint32_t slot, uint32_t uid_base, uint64_t disk_bytes,
                          const char *snapshot, struct storage_area *area, struct storage_job **job, struct error *err)
{
    if (!disk_find(disk.snapshots, snapshot))
        return error_set(err, ERROR_NOT_FOUND, "no snapshot %s", snapshot);
    *job = disk.slow ? disk_job("") : NULL;
    return storage_area_make(storage, slot, uid_base, disk_bytes, area, err);
}

bool storage_area_adopt(struct storage *storage, uint32_t slot, uint32_t uid_base, int init_pidfd, uint64_t device,
                        struct storage_area *area, struct error *err)
{
    CHECK(init_pidfd >= 0 && device == 0 && disk.areas[slot] > 0);
    return storage_area_make(storage, slot, uid_base, disk.areas[slot], area, err);
}

bool storage_area_limit(struct storage *storage, const struct storage_area *area, uint64_t disk_bytes,
                        struct error *err)
{
    (void)storage;
    if (disk.limit_fails)
        return error_set(err, ERROR_INVALID, "disk is in use");
    disk.areas[area->slot] = disk_bytes;
    return true;
}

bool storage_area_usage(struct storage *storage, const struct storage_area *area, uint64_t *bytes, struct error *err)
{
    (void)storage;
    (void)err;
    *bytes = 4096 + area->slot;
    return true;
}

bool storage_area_remove(struct storage *storage, uint32_t slot, struct error *err)
{
    (void)storage;
    (void)err;
    disk.areas[slot] = 0;
    return true;
}

bool storage_snapshot_take(struct storage *storage, const struct storage_area *area, const char *name,
                           struct storage_job **job, struct error *err)
{
    (void)storage;
    CHECK(area->path[0]);
    if (disk_find(disk.snapshots, name))
        return error_set(err, ERROR_CONFLICT, "there");
    *job = disk.slow ? disk_job(name) : NULL;
    if (!disk.slow)
        disk_put(disk.snapshots, name);
    return true;
}

bool storage_snapshot_exists(struct storage *storage, const char *name)
{
    (void)storage;
    return disk_find(disk.snapshots, name) != NULL;
}

bool storage_snapshot_size(struct storage *storage, const char *name, uint64_t *bytes, struct error *err)
{
    (void)storage;
    *bytes = 12345;
    return disk_find(disk.snapshots, name) || error_set(err, ERROR_NOT_FOUND, "no %s", name);
}

bool storage_snapshot_remove(struct storage *storage, const char *name, struct error *err)
{
    (void)storage;
    char *found = disk_find(disk.snapshots, name);
    if (!found)
        return error_set(err, ERROR_NOT_FOUND, "no %s", name);
    memset(found, 0, STORAGE_NAME_BYTES);
    return true;
}

size_t storage_snapshot_list(struct storage *storage, char (*names)[STORAGE_NAME_BYTES], size_t max)
{
    (void)storage;
    size_t count = 0;
    for (size_t i = 0; i < FAKE_SNAPSHOTS && count < max; i++) {
        if (disk.snapshots[i][0])
            memcpy(names[count++], disk.snapshots[i], STORAGE_NAME_BYTES);
    }
    return count;
}

bool storage_volume_open(struct storage *storage, const char *name, uint64_t bytes,
                         char path[static STORAGE_PATH_BYTES], struct error *err)
{
    (void)storage;
    (void)err;
    CHECK(bytes > 0);
    if (!disk_find(disk.volumes, name))
        disk_put(disk.volumes, name);
    return text_copy(path, STORAGE_PATH_BYTES, "/tmp");
}

bool storage_volume_exists(const struct storage *storage, const char *name)
{
    (void)storage;
    return disk_find(disk.volumes, name) != NULL;
}

bool storage_volume_remove(struct storage *storage, const char *name, struct error *err)
{
    (void)storage;
    char *found = disk_find(disk.volumes, name);
    if (!found)
        return error_set(err, ERROR_NOT_FOUND, "no %s", name);
    memset(found, 0, STORAGE_NAME_BYTES);
    return true;
}

int storage_job_fd(const struct storage_job *job)
{
    return job->fd;
}

bool storage_job_finish(struct storage_job *job, struct error *err)
{
    if (job->name[0] && !disk.job_fails)
        disk_put(disk.snapshots, job->name);
    close(job->fd);
    free(job);
    return !disk.job_fails || error_set(err, ERROR_DISK_FULL, "fake disk is full");
}

void storage_job_cancel(struct storage_job *job)
{
    close(job->fd);
    free(job);
}

uint64_t storage_next_wake(const struct storage *storage)
{
    (void)storage;
    return 0;
}

void storage_wake(struct storage *storage, uint64_t now_boot_ns)
{
    (void)storage;
    (void)now_boot_ns;
}

/* --- templates in variables: "base", and "tool" of a version that changes --- */

static struct {
    unsigned tool; /* number of its version; 0: there is none */
    unsigned cleaned;
    bool tool_was_used;
} shelf;

static void shelf_fill(struct template *template, const char *name, unsigned number)
{
    *template =
        (struct template){.record = {.kind = TEMPLATE_WHOLE, .uid = 1000, .gid = 1000, .workdir = "/workspace"}};
    snprintf(template->version, sizeof template->version, "%s-%u", name, number);
    snprintf(template->rootfs, sizeof template->rootfs, "/templates/%s-%u/rootfs", name, number);
    snprintf(template->record.name, sizeof template->record.name, "%s", name);
    memcpy(template->record.env, "OF=template", 11);
}

size_t templates_list(const char *folder, size_t max, struct template **list)
{
    (void)folder;
    size_t count = shelf.tool ? 2 : 1;
    *list = memory_array(count, sizeof **list);
    CHECK(count <= max);
    shelf_fill(&(*list)[0], "base", 1);
    if (shelf.tool)
        shelf_fill(&(*list)[1], "tool", shelf.tool);
    return count;
}

bool templates_find_version(const char *folder, const char *version, struct template *found, struct error *err)
{
    (void)folder;
    unsigned number = 0;
    if (sscanf(version, "tool-%u", &number) != 1)
        return error_set(err, ERROR_NOT_FOUND, "no %s", version);
    shelf_fill(found, "tool", number);
    return true;
}

void templates_clean(const char *folder, bool (*is_used)(void *context, const char *version), void *context)
{
    (void)folder;
    shelf.cleaned++;
    shelf.tool_was_used = is_used(context, "tool-1");
}

/* --- the launcher's half and the front's end --- */

static char top[] = "/tmp/parley-dialogue-XXXXXX";
static char *state, *locks, *records, *run, *node_file, *templates, *snapshot_records;
static struct settings settings = {.max_lifetime = 3600,
                                   .cpu_milli_max = 2000,
                                   .memory_mb_max = 1024,
                                   .disk_mb_max = 1024,
                                   .pids_max = 500,
                                   .slots_max = 3,
                                   .open_files_max = 4096,
                                   .commands_max = 100,
                                   .output_mb = 16,
                                   .root_user = (char[]){"never"}};
static struct identity identity = {.node = "n1", .deployment = "dep", .negotiator_url = "http://127.0.0.1:8700"};
static struct warm_rules warm_rules; /* none unless a test says so */

enum { WATCHED_MAX = 256 };

struct side {
    struct slots slots;
    struct catalog catalog;
    struct snapshots snapshots;
    struct sandboxes sandboxes;
    struct dialogue dialogue;
    int pair[2]; /* [0] the launcher's */
    struct watched {
        enum sandbox_event event; /* 0: free */
        uint32_t slot;
        int fd;
    } watched[WATCHED_MAX];
};

/* As epoll with EPOLLONESHOT. */
static bool stage_watch(void *context, enum sandbox_event event, uint32_t slot, int fd, struct error *err)
{
    struct side *side = context;
    (void)err;
    for (size_t i = 0; i < WATCHED_MAX; i++) {
        if (side->watched[i].event)
            continue;
        side->watched[i] = (struct watched){.event = event, .slot = slot, .fd = fd};
        return fd >= 0;
    }
    return false;
}

/* A closed descriptor is no longer watched, as with epoll. */
static void stage_forget_closed(struct side *side)
{
    for (size_t i = 0; i < WATCHED_MAX; i++) {
        if (side->watched[i].event && fcntl(side->watched[i].fd, F_GETFD) < 0)
            side->watched[i].event = 0;
    }
}

static UNUSED bool stage_event(struct side *side)
{
    stage_forget_closed(side);
    for (size_t i = 0; i < WATCHED_MAX; i++) {
        struct watched fired = side->watched[i];
        struct pollfd at = {.fd = fired.fd, .events = POLLIN};
        if (!fired.event || poll(&at, 1, 0) == 0)
            continue;
        side->watched[i].event = 0;
        sandboxes_event(&side->sandboxes, fired.event, fired.slot);
        return true;
    }
    return false;
}

static UNUSED void connect_front(struct side *side, uint64_t incarnation)
{
    CHECK(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, side->pair) == 0);
    dialogue_begin(&side->dialogue, side->pair[0], incarnation);
}

static UNUSED void disconnect_front(struct side *side)
{
    dialogue_end(&side->dialogue);
    close(side->pair[0]);
    close(side->pair[1]);
}

static bool is_kept_by_snapshot(void *context, const char *version)
{
    return snapshots_are_of(context, version);
}

static UNUSED bool start_side(struct side *side, struct error *err)
{
    struct sandboxes_house house = {
        .offer = {.list = {&BACKEND}, .count = 1},
        .run_folder = run,
        .record_folder = records,
        .front_group = getgid(),
        .init_program = -1,
        .max = (uint32_t)settings.slots_max,
        .storage = &disk.storage,
        .catalog = &side->catalog,
        .snapshots = &side->snapshots,
        .volumes = {.hosts = settings.volume_hosts, .state = state, .storage = &disk.storage, .default_bytes = 1 << 30},
        .warm = warm_rules,
        .watch = {.add = stage_watch, .again = stage_watch, .context = side}};
    struct catalog_users users = {.is_used = is_kept_by_snapshot, .context = &side->snapshots};
    CHECK(slots_start(&side->slots, locks, state, top, err));
    CHECK(snapshots_open(&side->snapshots, snapshot_records, &disk.storage, 4, err));
    CHECK(catalog_open(&side->catalog, templates, users, err));
    return sandboxes_start(&side->sandboxes, &house, &side->slots, err);
}

static UNUSED struct side *open_side(void)
{
    struct error err = {0};
    struct side *side = memory_new(sizeof *side);
    CHECK(start_side(side, &err));
    dialogue_init(&side->dialogue, &settings, &identity, node_file, &side->sandboxes);
    return side;
}

static UNUSED void close_side(struct side *side)
{
    sandboxes_done(&side->sandboxes);
    catalog_close(&side->catalog);
    snapshots_close(&side->snapshots);
    slots_done(&side->slots);
    free(side);
}

/* As the launcher's loop, until nothing more happens. */
static UNUSED void turn(struct side *side)
{
    struct error err = {0};
    do {
        CHECK(dialogue_receive(&side->dialogue, &err));
        sandboxes_turn(&side->sandboxes);
        CHECK(dialogue_send(&side->dialogue, &err));
    } while (stage_event(side));
}

static UNUSED bool ask(struct side *side, const struct front_launcher_message *message)
{
    struct error err = {0};
    bool sent = front_launcher_send(side->pair[1], message, NULL, 0, &err);
    turn(side);
    return sent;
}
/* The next message at the front's end; type 0 when there is none. */
static UNUSED struct front_launcher_message heard(const struct side *side, size_t *fd_count)
{
    struct error err = {0};
    struct front_launcher_message message = {0};
    int fds[FL_FDS];
    size_t count = 0;
    if (front_launcher_receive(side->pair[1], &message, FL_FROM_LAUNCHER, fds, &count, &err) != 1) {
        CHECK(err.system_errno == EAGAIN);
        message.type = 0;
    }
    for (size_t i = 0; i < count; i++)
        close(fds[i]);
    if (fd_count)
        *fd_count = count;
    return message;
}

static UNUSED struct front_launcher_message prepare(char last)
{
    struct front_launcher_message message = {.type = FL_PREPARE, .request = (uint64_t)last};
    struct fl_prepare *as = &message.as.prepare;
    memcpy(as->id, "sbx_0123456789abcdefghi", 24);
    as->id[23] = last;
    memcpy(as->hostname, "box", 4);
    memcpy(as->template_name, "base", 5);
    memcpy(as->isolation, "auto", 5);
    as->limits = (struct fl_limits){.cpu_milli = 1000, .pids = 64, .memory_bytes = 64 << 20};
    as->deadline_wall_ms = clock_wall_ms() + 60000;
    as->epoch = 2;
    memcpy(as->env, "LETTER=?", 9);
    as->env[7] = last;
    return message;
}

static UNUSED struct front_launcher_message destroy(char last, const char *reason)
{
    struct front_launcher_message message = {.type = FL_DESTROY, .request = 100U + (uint64_t)last};
    memcpy(message.as.destroy.id, prepare(last).as.prepare.id, 32);
    memcpy(message.as.destroy.reason, reason, strlen(reason));
    return message;
}

static UNUSED struct sandbox *find(struct side *side, char last)
{
    return sandboxes_find(&side->sandboxes, prepare(last).as.prepare.id);
}

static UNUSED void make_stage(void)
{
    if (geteuid() != 0)
        check_skip("needs root (folders are given to root)");
    keys_start();
    memset(fake.ended, 0xff, sizeof fake.ended);
    CHECK(mkdtemp(top) != NULL);
    char **paths[] = {&state, &locks, &records, &run, &templates, &snapshot_records, &node_file};
    const char *names[] = {"state", "locks", "records", "run", "templates", "snapshots", "node.json"};
    for (size_t i = 0; i < sizeof paths / sizeof *paths; i++)
        *paths[i] = memory_printf("%s/%s", top, names[i]);
    CHECK(mkdir(state, 0700) == 0 && mkdir(records, 0700) == 0 && mkdir(run, 0711) == 0);
    CHECK(mkdir(templates, 0700) == 0 && mkdir(snapshot_records, 0700) == 0);
}

static UNUSED void strike_stage(void)
{
    CHECK(fd_remove_tree(top, NULL));
    char *texts[] = {state, locks, records, run, templates, snapshot_records, node_file};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
        free(texts[i]);
}
