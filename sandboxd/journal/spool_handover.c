/* spool_handover.c - what the ship thread does: reads the oldest unshipped records, and lets go of what arrived. */
#include "sandboxd/journal/spool_internal.h"

#include "shared/base/clock.h"
#include "shared/base/log.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>

enum { BATCH_BYTES = 256 << 10 };

/* The part of the first segment that can be shipped. */
struct stretch {
    uint64_t segment, position, offset, until; /* offset..until in bytes */
    uint64_t base;
    bool is_over; /* all shipped, and there is another segment */
    char id[RANDOM_ID_BYTES];
};

static struct stretch find_stretch(struct spool *spool)
{
    struct stretch stretch = {0};
    pthread_mutex_lock(&spool->mutex);
    const struct spool_segment *first = &spool->segments[0];
    if (spool->segment_count) /* none: it is broken */
        stretch = (struct stretch){.segment = first->first,
                                   .position = spool->cursor,
                                   .offset = spool->cursor_offset,
                                   .until = spool->segment_count > 1 ? first->bytes : spool->synced_bytes,
                                   .base = spool->base,
                                   .is_over = spool->segment_count > 1 && spool->cursor_offset == first->bytes};
    memcpy(stretch.id, spool->id, sizeof stretch.id);
    pthread_mutex_unlock(&spool->mutex);
    return stretch;
}

static int open_stretch(const struct spool *spool, const struct stretch *stretch, struct error *err)
{
    char name[SPOOL_NAME_BYTES];
    spool_segment_name(name, stretch->segment);
    int fd = openat(spool->options.folder, name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    if (fd < 0)
        error_set_errno(err, ERROR_INTERNAL, "open %s", name);
    return fd;
}

struct gathering {
    json_t *records;
    size_t max, bytes;
    uint64_t n;
    bool full;
};

static bool gather(void *cookie, const char *text, size_t size, struct error *err)
{
    struct gathering *gathering = cookie;
    size_t count = json_array_size(gathering->records);
    gathering->full = count == gathering->max || (count > 0 && gathering->bytes + size > BATCH_BYTES);
    if (gathering->full)
        return false;
    json_t *record = json_loadb(text, size, 0, NULL);
    if (!record)
        return error_set(err, ERROR_INTERNAL, "a record is no JSON");
    json_object_set_new(record, "n", json_integer((json_int_t)gathering->n++));
    spool_text_complete(record);
    json_array_append_new(gathering->records, record);
    gathering->bytes += size;
    return true;
}

/* What was written whole cannot be read back. */
static void note_damage(struct spool *spool, const struct error *err)
{
    pthread_mutex_lock(&spool->mutex);
    spool->damaged = *err;
    pthread_cond_broadcast(&spool->changed);
    pthread_mutex_unlock(&spool->mutex);
}

/* The first segment is all shipped and not the last: it goes. */
static void drop_first(struct spool *spool)
{
    char name[SPOOL_NAME_BYTES];
    struct error err = {0};
    if (!spool_ends_save(spool, &err)) /* the disk is full, perhaps: then it must go all the more */
        log_warn("audit", "%s", err.message);
    pthread_mutex_lock(&spool->mutex);
    spool_segment_name(name, spool->segments[0].first);
    memmove(spool->segments, spool->segments + 1, --spool->segment_count * sizeof *spool->segments);
    spool->cursor_offset = 0;
    pthread_mutex_unlock(&spool->mutex);
    (void)unlinkat(spool->options.folder, name, 0);
}

json_t *spool_next(struct spool *spool, size_t max)
{
    struct stretch stretch = find_stretch(spool);
    for (; stretch.is_over; stretch = find_stretch(spool))
        drop_first(spool);
    if (stretch.offset >= stretch.until || max == 0)
        return NULL;
    struct error err = {0};
    AUTO_FD int fd = open_stretch(spool, &stretch, &err);
    struct gathering gathering = {.records = json_array(), .max = max, .n = stretch.position - stretch.base};
    uint64_t offset = stretch.offset;
    bool ok = fd >= 0 && (journal_walk(fd, &offset, stretch.until, gather, &gathering, &err) || gathering.full);
    if (!ok)
        note_damage(spool, &err);
    if (!ok || json_array_size(gathering.records) == 0) {
        json_decref(gathering.records);
        return NULL;
    }
    return json_pack("{s:s,s:o}", "spool", stretch.id, "records", gathering.records);
}

/* ---- what was shipped ---- */

struct skipping {
    uint64_t left;
};

static bool skip(void *cookie, const char *text UNUSED, size_t size UNUSED, struct error *err UNUSED)
{
    struct skipping *skipping = cookie;
    if (skipping->left == 0)
        return false;
    skipping->left--;
    return true;
}

/* Moves the cursor within the first segment, at most to its end; true when it got there and there is another one. */
static bool advance(struct spool *spool, uint64_t to)
{
    struct stretch stretch = find_stretch(spool);
    struct error err = {0};
    AUTO_FD int fd = open_stretch(spool, &stretch, &err);
    struct skipping skipping = {.left = to - stretch.position};
    uint64_t offset = stretch.offset;
    if (fd < 0 || (!journal_walk(fd, &offset, stretch.until, skip, &skipping, &err) && skipping.left)) {
        note_damage(spool, &err);
        return false;
    }
    pthread_mutex_lock(&spool->mutex);
    bool same = strcmp(stretch.id, spool->id) == 0; /* else it was set aside meanwhile */
    bool at_end = false;
    if (same) {
        spool->unshipped_bytes -= offset - stretch.offset;
        spool->cursor = to - skipping.left;
        spool->cursor_offset = offset;
        at_end = spool->segment_count > 1 && offset == spool->segments[0].bytes;
    }
    pthread_mutex_unlock(&spool->mutex);
    if (at_end)
        drop_first(spool);
    return at_end;
}

/* The negotiator's ledger or this spool was set back to an earlier state: under the old id the two can no longer agree.
 */
static void renumber(struct spool *spool, uint64_t n)
{
    struct error err = {0};
    char old[RANDOM_ID_BYTES], detail[160];
    pthread_mutex_lock(&spool->mutex);
    memcpy(old, spool->id, sizeof old);
    uint64_t first = spool->cursor - spool->base;
    bool ok = spool_segments_renumber(spool, &err);
    snprintf(detail, sizeof detail, "was %s, of which the negotiator has up to %llu and the node from %llu", old,
             (unsigned long long)n, (unsigned long long)first);
    pthread_mutex_unlock(&spool->mutex);
    if (!ok) {
        log_warn("audit", "renumber the spool: %s", err.message);
        return;
    }
    log_warn("audit", "the spool goes on under a new id: %s", detail);
    struct spool_record record = {.action = "spool.renumbered", .detail = detail};
    AUTO_TEXT text = {0};
    spool_text_make(&text, &record, clock_wall_ms());
    if (!spool_write(spool, &text, UINT64_MAX, &err))
        log_warn("audit", "%s", err.message);
}

void spool_shipped(struct spool *spool, const char *id, uint64_t n)
{
    pthread_mutex_lock(&spool->mutex);
    bool ours = strcmp(id, spool->id) == 0 && spool->damaged.kind == ERROR_NONE;
    uint64_t to = n < UINT64_MAX / 2 ? spool->base + n + 1 : UINT64_MAX;
    bool agrees = to >= spool->cursor && to <= spool->next;
    pthread_mutex_unlock(&spool->mutex);
    if (!ours)
        return;
    if (!agrees) {
        renumber(spool, n);
        return;
    }
    while (advance(spool, to)) {
    }
}
