#include "shared/base/memory.h"
#include "negotiator/ledger/kv_internal.h"

#include <stdatomic.h>
#include <string.h>

struct entry {
    char *key, *data; /* owned; data NULL in an undo: the key was missing */
    size_t size;
    uint64_t revision;
};

struct entries {
    struct entry *rows;
    size_t count, capacity;
};

struct kv_memory {
    struct kv kv;
    struct entries entries; /* sorted by key */
    struct entries undo;    /* what each write of this batch replaced, oldest first */
    uint64_t revision, revision_before;
    unsigned conflict_percent;
    uint64_t random;
    atomic_uint failing_ends, percent;
};

static struct kv_memory *self(struct kv *kv)
{
    return (struct kv_memory *)kv;
}

static void entry_done(struct entry *entry)
{
    free(entry->key);
    free(entry->data); /* NOLINT(clang-analyzer-unix.Malloc): it does not follow rows through memmove */
}

static void entries_insert(struct entries *entries, size_t at, struct entry entry)
{
    if (entries->count == entries->capacity) {
        entries->capacity = entries->capacity ? entries->capacity * 2 : 64;
        entries->rows = memory_resize(entries->rows, entries->capacity * sizeof *entries->rows);
    }
    memmove(&entries->rows[at + 1], &entries->rows[at], (entries->count - at) * sizeof entry);
    entries->rows[at] = entry;
    entries->count++;
}

static struct entry entries_remove(struct entries *entries, size_t at)
{
    struct entry entry = entries->rows[at];
    entries->count--;
    memmove(&entries->rows[at], &entries->rows[at + 1], (entries->count - at) * sizeof entry);
    return entry;
}

static void entries_done(struct entries *entries)
{
    for (size_t i = 0; i < entries->count; i++)
        entry_done(&entries->rows[i]);
    free(entries->rows);
    *entries = (struct entries){0};
}

/* The first row whose key is not below `key`. */
static size_t lower_bound(const struct entries *entries, const char *key)
{
    size_t low = 0, high = entries->count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (strcmp(entries->rows[middle].key, key) < 0)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static bool is_at(const struct entries *entries, size_t at, const char *key)
{
    return at < entries->count && strcmp(entries->rows[at].key, key) == 0;
}

static bool memory_get(struct kv *kv, const char *key, struct kv_value *value, struct error *err UNUSED)
{
    const struct entries *entries = &self(kv)->entries;
    size_t at = lower_bound(entries, key);
    if (!is_at(entries, at, key))
        return true;
    const struct entry *row = &entries->rows[at];
    *value = (struct kv_value){memory_copy(row->data, row->size), row->size, row->revision};
    return true;
}

static bool memory_range(struct kv *kv, const char *first, const char *end, size_t limit, kv_visit *visit, void *cookie,
                         struct error *err UNUSED)
{
    const struct entries *entries = &self(kv)->entries;
    size_t start = lower_bound(entries, first);
    for (size_t at = start; at < entries->count && (limit == 0 || at - start < limit); at++) {
        const struct entry *row = &entries->rows[at];
        if (end ? strcmp(row->key, end) >= 0 : strncmp(row->key, first, strlen(first)) != 0)
            break;
        struct kv_value value = {row->data, row->size, row->revision};
        if (!visit(cookie, row->key, &value))
            break;
    }
    return true;
}

/* splitmix64: any seed will do. */
static uint64_t next_random(struct kv_memory *memory)
{
    uint64_t z = memory->random += 0x9e3779b97f4a7c15;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9;
    z = (z ^ z >> 27) * 0x94d049bb133111eb;
    return z ^ z >> 31;
}

static bool holds(const struct entries *entries, const struct kv_step *step)
{
    size_t at = lower_bound(entries, step->key);
    uint64_t revision = is_at(entries, at, step->key) ? entries->rows[at].revision : 0;
    return revision == step->revision;
}

/* Sets or removes (data NULL) a key; returns what was there, which the caller owns. */
static struct entry replace(struct entries *entries, struct entry entry)
{
    size_t at = lower_bound(entries, entry.key);
    struct entry before = {.key = NULL};
    if (is_at(entries, at, entry.key))
        before = entries_remove(entries, at);
    else
        before.key = memory_string(entry.key);
    if (entry.data)
        entries_insert(entries, at, entry);
    else
        free(entry.key);
    return before;
}

static enum kv_outcome memory_apply(struct kv *kv, const struct kv_change *change, struct error *err UNUSED)
{
    struct kv_memory *memory = self(kv);
    size_t comparisons = 0;
    for (size_t i = 0; i < change->count; i++) {
        if (change->steps[i].kind != KV_STEP_EXPECT)
            continue;
        comparisons++;
        if (!holds(&memory->entries, &change->steps[i]))
            return KV_CONFLICT;
    }
    if (comparisons > 0 && next_random(memory) % 100 < memory->conflict_percent)
        return KV_CONFLICT;
    if (change->count > comparisons)
        memory->revision++;
    for (size_t i = 0; i < change->count; i++) {
        const struct kv_step *step = &change->steps[i];
        if (step->kind == KV_STEP_EXPECT)
            continue;
        struct entry after = {.key = memory_string(step->key), .revision = memory->revision};
        if (step->kind == KV_STEP_PUT) {
            after.data = memory_copy(step->data, step->size);
            after.size = step->size;
        }
        entries_insert(&memory->undo, memory->undo.count, replace(&memory->entries, after));
    }
    return KV_APPLIED;
}

static bool memory_batch_begin(struct kv *kv, struct error *err UNUSED)
{
    self(kv)->revision_before = self(kv)->revision;
    return true;
}

static void roll_back(struct kv_memory *memory)
{
    while (memory->undo.count > 0) {
        struct entry dropped = replace(&memory->entries, memory->undo.rows[--memory->undo.count]);
        entry_done(&dropped);
    }
    memory->revision = memory->revision_before;
}

static bool memory_batch_end(struct kv *kv, struct error *err)
{
    struct kv_memory *memory = self(kv);
    if (atomic_load(&memory->failing_ends) > 0) {
        atomic_fetch_sub(&memory->failing_ends, 1);
        roll_back(memory);
        return error_set(err, ERROR_DISK_FULL, "the batch failed at its end, as it was told to");
    }
    entries_done(&memory->undo);
    return true;
}

void kv_memory_fail_ends(struct kv *kv, unsigned ends)
{
    atomic_store(&self(kv)->failing_ends, ends);
}

void kv_memory_set_usage(struct kv *kv, unsigned percent)
{
    atomic_store(&self(kv)->percent, percent);
}

static bool memory_usage(struct kv *kv, unsigned *percent, struct error *err UNUSED)
{
    *percent = atomic_load(&self(kv)->percent);
    return true;
}

static void memory_free(struct kv *kv)
{
    entries_done(&self(kv)->entries);
    entries_done(&self(kv)->undo);
    free(kv);
}

struct kv *kv_memory_new(unsigned conflict_percent, uint64_t seed)
{
    static const struct kv_engine ENGINE = {
        .get = memory_get,
        .range = memory_range,
        .apply = memory_apply,
        .batch_begin = memory_batch_begin,
        .batch_end = memory_batch_end,
        .usage = memory_usage,
        .free = memory_free,
    };
    struct kv_memory *memory = memory_new(sizeof *memory);
    memory->kv.engine = &ENGINE;
    memory->conflict_percent = conflict_percent;
    memory->random = seed;
    return &memory->kv;
}
