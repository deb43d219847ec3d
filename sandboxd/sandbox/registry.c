/* registry.c - the one table of sandboxes that every loop may read. */
#include "sandboxd/sandbox/registry.h"

#include "shared/base/clock.h"
#include "shared/base/memory.h"
#include "shared/base/text.h"

#include <pthread.h>
#include <stdatomic.h>
#include <string.h>

enum { BUCKETS = 4096, TOLD_MS = 1000 };

struct entry {
    struct entry *next_in_bucket;
    struct entry *next_ended;  /* in the order of their ends; only when ended */
    bool reported;             /* the negotiator knows of its end */
    void *seat;                /* the owning loop's */
    _Atomic int64_t active_ms; /* this and the next are what readers write */
    atomic_uint attached;
    atomic_bool paused;
    _Atomic uint64_t cpu_ms, memory_bytes, disk_bytes, pids;
    struct {
        int64_t active_ms, deadline_ms;
        uint64_t disk_mb;
        uint32_t epoch; /* 0: nothing was told yet */
        bool paused;
    } told; /* the telling thread's */
    struct {
        char *variables, *template_variables; /* as in env.h, without what is behind their end; NULL: none */
        char *workdir;
        uint32_t uid;
    } start;                   /* of its commands; as long as it lives */
    struct registry_view view; /* but for active_ms and paused */
};

/* Invariant: entries with state ENDED are exactly those of the list ended_first..ended_last, oldest first. */
struct registry {
    pthread_rwlock_t lock;
    unsigned loops;
    struct key decoy;
    size_t living, ended;
    struct entry *ended_first, *ended_last;
    struct entry *buckets[BUCKETS];
};

void registry_view_done(struct registry_view *view)
{
    key_done(&view->root);
}

static uint64_t hash_of(const char *id)
{
    uint64_t hash = UINT64_C(0xcbf29ce484222325); /* FNV-1a: ids are random already, and made by the negotiator */
    for (const char *c = id; *c; c++)
        hash = (hash ^ (uint8_t)*c) * UINT64_C(0x100000001b3);
    return hash ^ (hash >> 32);
}

struct registry *registry_new(unsigned loops)
{
    struct registry *registry = memory_new(sizeof *registry);
    pthread_rwlock_init(&registry->lock, NULL);
    registry->loops = loops ? loops : 1;
    key_random(&registry->decoy);
    return registry;
}

static void forget_start(struct entry *entry)
{
    free(TAKE(entry->start.variables));
    free(TAKE(entry->start.template_variables));
    free(TAKE(entry->start.workdir));
}

static void entry_free(struct entry *entry)
{
    forget_start(entry);
    registry_view_done(&entry->view);
    free(entry);
}

void registry_free(struct registry *registry)
{
    if (!registry)
        return;
    for (size_t i = 0; i < BUCKETS; i++)
        for (struct entry *entry = registry->buckets[i], *next; entry; entry = next) {
            next = entry->next_in_bucket;
            entry_free(entry);
        }
    pthread_rwlock_destroy(&registry->lock);
    key_done(&registry->decoy);
    free(registry);
}

unsigned registry_owner(const struct registry *registry, const char *id)
{
    return (unsigned)((hash_of(id) >> 16) % registry->loops);
}

const struct key *registry_decoy(const struct registry *registry)
{
    return &registry->decoy;
}

static struct entry **slot_of(struct registry *registry, const char *id)
{
    struct entry **slot = &registry->buckets[hash_of(id) % BUCKETS];
    while (*slot && strcmp((*slot)->view.id, id) != 0)
        slot = &(*slot)->next_in_bucket;
    return slot;
}

static void drop_oldest_ended(struct registry *registry)
{
    struct entry *oldest = registry->ended_first;
    registry->ended_first = oldest->next_ended;
    if (!registry->ended_first)
        registry->ended_last = NULL;
    registry->ended--;
    struct entry **slot = slot_of(registry, oldest->view.id);
    *slot = oldest->next_in_bucket;
    entry_free(oldest);
}

static void forget_old_ends(struct registry *registry, int64_t now_ms)
{
    while (registry->ended_first && (registry->ended > REGISTRY_ENDED_MAX ||
                                     now_ms - registry->ended_first->view.ended_ms > REGISTRY_ENDED_KEPT_MS))
        drop_oldest_ended(registry);
}

static void describe_isolation(char *detail, size_t size, const struct fl_sandbox *sandbox)
{
    static const char *const NAMES[] = {"memory", "pids", "cpu"}; /* enum fl_missing */
    detail[0] = '\0';
    if (sandbox->is_rootless)
        (void)!text_copy(detail, size, "rootless");
    const char *before = "; no limit of ";
    for (size_t i = 0; i < sizeof NAMES / sizeof NAMES[0]; i++) {
        size_t length = strlen(detail);
        if (!(sandbox->missing_limits >> i & 1))
            continue;
        (void)!text_format(detail + length, size - length, "%s%s", before, NAMES[i]);
        before = ", ";
    }
}

/* The launcher's texts were checked for their NUL (front_launcher_check). */
static void fill(struct registry_view *view, const struct fl_sandbox *sandbox)
{
    memcpy(view->id, sandbox->id, sizeof view->id);
    memcpy(view->name, sandbox->hostname, sizeof view->name);
    memcpy(view->template_name, sandbox->template_name, sizeof view->template_name);
    memcpy(view->isolation, sandbox->isolation, sizeof view->isolation);
    memcpy(view->storage, sandbox->storage, sizeof view->storage);
    describe_isolation(view->isolation_detail, sizeof view->isolation_detail, sandbox);
    view->limits = sandbox->limits;
    view->was_warm = sandbox->was_warm != 0;
    view->is_guest = sandbox->is_guest != 0;
    view->created_ms = sandbox->created_wall_ms;
    view->deadline_ms = sandbox->deadline_wall_ms;
    view->root = sandbox->root;
}

/* A living one. */
static struct entry *entry_new(struct registry *registry, const char *id, int64_t now_ms)
{
    struct entry *entry = memory_new(sizeof *entry);
    memcpy(entry->view.id, id, sizeof entry->view.id);
    entry->view.epoch = 1;
    entry->active_ms = now_ms;
    entry->view.owner = registry_owner(registry, id);
    registry->living++;
    return entry;
}

static char *copy_variables(const char *texts)
{
    const char *end = texts;
    while (*end)
        end += strlen(end) + 1;
    return memory_copy(texts, (size_t)(end - texts)); /* and a NUL */
}

static void fill_start(struct entry *entry, const struct fl_sandbox *sandbox)
{
    forget_start(entry);
    entry->start.variables = copy_variables(sandbox->env);
    entry->start.template_variables = copy_variables(sandbox->template_env);
    entry->start.workdir = memory_string(sandbox->workdir);
    entry->start.uid = sandbox->uid;
}

static const char *find_variable(const char *texts, const char *name)
{
    size_t length = strlen(name);
    for (; texts && *texts; texts += strlen(texts) + 1)
        if (strncmp(texts, name, length) == 0 && texts[length] == '=')
            return texts + length + 1;
    return NULL;
}

bool registry_variable(struct registry *registry, const char *id, const char *name, char *to, size_t size)
{
    pthread_rwlock_rdlock(&registry->lock);
    const struct entry *entry = *slot_of(registry, id);
    const char *value = entry ? find_variable(entry->start.variables, name) : NULL;
    if (entry && !value)
        value = find_variable(entry->start.template_variables, name);
    bool is_found = value && text_copy(to, size, value);
    pthread_rwlock_unlock(&registry->lock);
    return is_found;
}

bool registry_start_of(struct registry *registry, const char *id, char workdir[static FRONT_LAUNCHER_PATH_BYTES],
                       uint32_t *uid)
{
    pthread_rwlock_rdlock(&registry->lock);
    const struct entry *entry = *slot_of(registry, id);
    bool is_found =
        entry && entry->start.workdir && text_copy(workdir, FRONT_LAUNCHER_PATH_BYTES, entry->start.workdir);
    *uid = entry ? entry->start.uid : 0;
    pthread_rwlock_unlock(&registry->lock);
    return is_found;
}

bool registry_put(struct registry *registry, const struct fl_sandbox *sandbox, int64_t now_ms)
{
    pthread_rwlock_wrlock(&registry->lock);
    struct entry **slot = slot_of(registry, sandbox->id);
    struct entry *entry = *slot;
    bool alive = !entry || entry->view.state != REGISTRY_ENDED;
    if (!entry)
        entry = *slot = entry_new(registry, sandbox->id, now_ms);
    if (alive) {
        fill(&entry->view, sandbox);
        fill_start(entry, sandbox);
    }
    if (alive && sandbox->epoch > entry->view.epoch)
        entry->view.epoch = sandbox->epoch;
    pthread_rwlock_unlock(&registry->lock);
    return alive;
}

bool registry_find(struct registry *registry, const char *id, struct registry_view *view)
{
    pthread_rwlock_rdlock(&registry->lock);
    const struct entry *entry = *slot_of(registry, id);
    if (entry) {
        *view = entry->view;
        view->active_ms = entry->active_ms;
        view->paused = entry->paused;
    }
    pthread_rwlock_unlock(&registry->lock);
    return entry != NULL;
}

void registry_set_seat(struct registry *registry, const char *id, void *seat)
{
    pthread_rwlock_wrlock(&registry->lock);
    struct entry *entry = *slot_of(registry, id);
    if (entry)
        entry->seat = seat;
    pthread_rwlock_unlock(&registry->lock);
}

void *registry_seat(struct registry *registry, const char *id)
{
    pthread_rwlock_rdlock(&registry->lock);
    const struct entry *entry = *slot_of(registry, id);
    void *seat = entry ? entry->seat : NULL;
    pthread_rwlock_unlock(&registry->lock);
    return seat;
}

void registry_touch(struct registry *registry, const char *id, int64_t now_ms)
{
    pthread_rwlock_rdlock(&registry->lock);
    struct entry *entry = *slot_of(registry, id);
    if (entry && !entry->paused)
        entry->active_ms = now_ms;
    pthread_rwlock_unlock(&registry->lock);
}

void registry_set_paused(struct registry *registry, const char *id, bool is_paused, int64_t now_ms)
{
    pthread_rwlock_rdlock(&registry->lock);
    struct entry *entry = *slot_of(registry, id);
    if (entry) {
        entry->paused = is_paused;
        if (!is_paused || entry->attached)
            entry->active_ms = now_ms;
    }
    pthread_rwlock_unlock(&registry->lock);
}

void registry_attach(struct registry *registry, const char *id)
{
    pthread_rwlock_rdlock(&registry->lock);
    struct entry *entry = *slot_of(registry, id);
    if (entry)
        entry->attached++;
    pthread_rwlock_unlock(&registry->lock);
}

void registry_detach(struct registry *registry, const char *id, int64_t now_ms)
{
    pthread_rwlock_rdlock(&registry->lock);
    struct entry *entry = *slot_of(registry, id);
    if (entry) {
        if (!entry->paused)
            entry->active_ms = now_ms;
        entry->attached--;
    }
    pthread_rwlock_unlock(&registry->lock);
}

void registry_raise_epoch(struct registry *registry, const char *id, uint32_t epoch)
{
    pthread_rwlock_wrlock(&registry->lock);
    struct entry *entry = *slot_of(registry, id);
    if (entry && epoch > entry->view.epoch)
        entry->view.epoch = epoch;
    pthread_rwlock_unlock(&registry->lock);
}

void registry_used(struct registry *registry, const char *id, const struct registry_usage *usage)
{
    pthread_rwlock_rdlock(&registry->lock);
    struct entry *entry = *slot_of(registry, id);
    if (entry) {
        entry->cpu_ms = usage->cpu_ms;
        entry->memory_bytes = usage->memory_bytes;
        entry->disk_bytes = usage->disk_bytes;
        entry->pids = usage->pids;
    }
    pthread_rwlock_unlock(&registry->lock);
}

void registry_ending(struct registry *registry, const char *id, const char *reason)
{
    pthread_rwlock_wrlock(&registry->lock);
    struct entry *entry = *slot_of(registry, id);
    if (entry && entry->view.state == REGISTRY_LIVE) {
        entry->view.state = REGISTRY_ENDING;
        if (!text_copy(entry->view.reason, sizeof entry->view.reason, reason))
            strcpy(entry->view.reason, "deleted");
    }
    pthread_rwlock_unlock(&registry->lock);
}

bool registry_ended(struct registry *registry, const struct fl_ended *ended, int64_t now_ms)
{
    pthread_rwlock_wrlock(&registry->lock);
    struct entry **slot = slot_of(registry, ended->id);
    struct entry *entry = *slot;
    if (!entry) {
        entry = *slot = entry_new(registry, ended->id, now_ms);
        entry->view.root = ended->root;
        entry->view.epoch = ended->epoch;
    }
    bool ended_now = entry->view.state != REGISTRY_ENDED;
    if (ended_now) {
        if (entry->view.state == REGISTRY_LIVE)
            memcpy(entry->view.reason, ended->reason, sizeof entry->view.reason);
        entry->view.state = REGISTRY_ENDED;
        forget_start(entry);
        entry->view.ended_ms = now_ms;
        if (registry->ended_last)
            registry->ended_last->next_ended = entry;
        else
            registry->ended_first = entry;
        registry->ended_last = entry;
        registry->ended++;
        registry->living--;
        forget_old_ends(registry, now_ms);
    }
    pthread_rwlock_unlock(&registry->lock);
    return ended_now;
}

size_t registry_count(struct registry *registry)
{
    pthread_rwlock_rdlock(&registry->lock);
    size_t count = registry->living;
    pthread_rwlock_unlock(&registry->lock);
    return count;
}

void registry_counts(struct registry *registry, struct registry_counts *counts)
{
    *counts = (struct registry_counts){0};
    pthread_rwlock_rdlock(&registry->lock);
    for (size_t i = 0; i < BUCKETS; i++)
        for (const struct entry *entry = registry->buckets[i]; entry; entry = entry->next_in_bucket) {
            counts->running += entry->view.state == REGISTRY_LIVE && !entry->paused;
            counts->paused += entry->view.state == REGISTRY_LIVE && entry->paused;
            counts->ending += entry->view.state == REGISTRY_ENDING;
        }
    counts->ended = registry->ended;
    pthread_rwlock_unlock(&registry->lock);
}

static void copy_line(struct registry_line *line, const struct entry *entry)
{
    const struct registry_view *view = &entry->view;
    memcpy(line->id, view->id, sizeof line->id);
    memcpy(line->reason, view->reason, sizeof line->reason);
    line->paused = entry->paused;
    line->active_ms = entry->attached && !line->paused ? clock_wall_ms() : entry->active_ms;
    line->deadline_ms = view->deadline_ms;
    line->ended_ms = view->ended_ms;
    line->epoch = view->epoch;
    line->usage = (struct registry_usage){.cpu_ms = entry->cpu_ms,
                                          .memory_bytes = entry->memory_bytes,
                                          .disk_bytes = entry->disk_bytes,
                                          .pids = entry->pids};
}

static bool is_told(const struct entry *entry, const struct registry_line *line)
{
    int64_t moved_ms = line->active_ms - entry->told.active_ms;
    return entry->told.epoch == line->epoch && entry->told.deadline_ms == line->deadline_ms &&
           entry->told.paused == line->paused && entry->told.disk_mb == line->usage.disk_bytes >> 20 &&
           moved_ms < TOLD_MS && moved_ms > -TOLD_MS;
}

static size_t copy_living(struct registry *registry, bool only_changed, size_t max, struct registry_line *lines)
{
    size_t count = 0;
    for (size_t i = 0; i < BUCKETS; i++)
        for (const struct entry *entry = registry->buckets[i]; entry && count < max; entry = entry->next_in_bucket) {
            if (entry->view.state == REGISTRY_ENDED)
                continue;
            copy_line(&lines[count], entry);
            if (!only_changed || !is_told(entry, &lines[count]))
                count++;
        }
    return count;
}

static size_t copy_unreported(struct registry *registry, size_t max, struct registry_line *lines)
{
    size_t count = 0;
    for (const struct entry *entry = registry->ended_first; entry && count < max; entry = entry->next_ended)
        if (!entry->reported)
            copy_line(&lines[count++], entry);
    return count;
}

size_t registry_lines(struct registry *registry, enum registry_lines_of which, size_t max, struct registry_line **lines)
{
    pthread_rwlock_rdlock(&registry->lock);
    size_t room = which == REGISTRY_UNREPORTED ? registry->ended : registry->living;
    if (room > max)
        room = max;
    *lines = memory_array(room + 1, sizeof **lines);
    size_t count = which == REGISTRY_UNREPORTED ? copy_unreported(registry, room, *lines)
                                                : copy_living(registry, which == REGISTRY_CHANGED, room, *lines);
    pthread_rwlock_unlock(&registry->lock);
    return count;
}

void registry_told(struct registry *registry, const struct registry_line *lines, size_t count)
{
    pthread_rwlock_rdlock(&registry->lock); /* no other thread looks at what was told */
    for (size_t i = 0; i < count; i++) {
        struct entry *entry = *slot_of(registry, lines[i].id);
        if (!entry)
            continue;
        entry->told.active_ms = lines[i].active_ms;
        entry->told.deadline_ms = lines[i].deadline_ms;
        entry->told.epoch = lines[i].epoch;
        entry->told.paused = lines[i].paused;
        entry->told.disk_mb = lines[i].usage.disk_bytes >> 20;
    }
    pthread_rwlock_unlock(&registry->lock);
}

void registry_reported(struct registry *registry, const char *id)
{
    pthread_rwlock_wrlock(&registry->lock);
    struct entry *entry = *slot_of(registry, id);
    if (entry && entry->view.state == REGISTRY_ENDED)
        entry->reported = true;
    pthread_rwlock_unlock(&registry->lock);
}
