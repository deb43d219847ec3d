/* spool_segments.c - the files of a spool: found again, continued, exchanged, set aside. */
#include "sandboxd/journal/spool_internal.h"

#include "shared/base/clock.h"
#include "shared/base/log.h"
#include "shared/base/memory.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define HEAD_NAME "spool-head"
#define ENDS_NAME "spool-ends"
#define NEXT_NAME "spool-next" /* a segment that is not in use yet */
#define PREFIX    "spool-"

enum { POSITION_HEX = 16 };

void spool_segment_name(char name[static SPOOL_NAME_BYTES], uint64_t first)
{
    snprintf(name, SPOOL_NAME_BYTES, PREFIX "%016llx", (unsigned long long)first);
}

static void push_segment(struct spool *spool, uint64_t first)
{
    spool->segments = memory_resize(spool->segments, (spool->segment_count + 1) * sizeof *spool->segments);
    spool->segments[spool->segment_count++] = (struct spool_segment){.first = first};
}

/* ---- the head ---- */

static bool read_head(void *cookie, const char *text, size_t size, struct error *err)
{
    struct spool *spool = cookie;
    json_t *head = json_loadb(text, size, 0, NULL);
    const char *id = json_string_value(json_object_get(head, "spool"));
    const json_t *base = json_object_get(head, "base");
    bool ok = id && random_is_id(id, "spl") && json_is_integer(base) && json_integer_value(base) >= 0;
    if (ok) {
        memcpy(spool->id, id, sizeof spool->id);
        spool->base = (uint64_t)json_integer_value(base);
    }
    json_decref(head);
    return ok || error_set(err, ERROR_INTERNAL, "not a head");
}

static bool write_head(struct spool *spool, const char *id, uint64_t base, struct error *err)
{
    AUTO_FREE char *text = memory_printf("{\"spool\":\"%s\",\"base\":%llu}", id, (unsigned long long)base);
    const char *const texts[] = {text};
    if (!journal_file_replace(spool->head, texts, 1, err))
        return false;
    memcpy(spool->id, id, sizeof spool->id);
    spool->base = base;
    return true;
}

/* ---- finding ---- */

static int by_position(const void *a, const void *b)
{
    uint64_t one = ((const struct spool_segment *)a)->first, other = ((const struct spool_segment *)b)->first;
    return one < other ? -1 : one > other;
}

static DIR *list_folder(int folder, struct error *err)
{
    int fd = openat(folder, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC); /* `folder` may be O_PATH */
    DIR *list = fd < 0 ? NULL : fdopendir(fd);
    if (list)
        return list;
    error_set_errno(err, ERROR_INTERNAL, "list the journal folder");
    if (fd >= 0)
        close(fd);
    return NULL;
}

static bool find_segments(struct spool *spool, struct error *err)
{
    DIR *list = list_folder(spool->options.folder, err);
    if (!list)
        return false;
    for (const struct dirent *entry; (entry = readdir(list));) { /* NOLINT(concurrency-mt-unsafe): our own list */
        uint8_t bytes[POSITION_HEX / 2];
        const char *name = entry->d_name;
        if (!text_starts_with(name, PREFIX) || strlen(name) != strlen(PREFIX) + POSITION_HEX ||
            !text_hex_decode(bytes, sizeof bytes, name + strlen(PREFIX), POSITION_HEX))
            continue;
        uint64_t first = 0;
        for (size_t i = 0; i < sizeof bytes; i++)
            first = first << 8 | bytes[i];
        push_segment(spool, first);
    }
    closedir(list);
    if (spool->segment_count)
        qsort(spool->segments, spool->segment_count, sizeof *spool->segments, by_position);
    return true;
}

/* ---- reading what is there ---- */

struct counting {
    struct spool *spool;
    struct spool_segment *segment;
    uint64_t first_unshipped; /* by the head: of an earlier id, or shipped, before it */
};

static bool count_record(void *cookie, const char *text, size_t size, struct error *err UNUSED)
{
    const struct counting *counting = cookie;
    struct spool_segment *segment = counting->segment;
    uint64_t line = size + JOURNAL_LINE_BYTES;
    if (segment->first + segment->count < counting->first_unshipped)
        counting->spool->cursor_offset = segment->bytes + line;
    else
        counting->spool->unshipped_bytes += line;
    segment->count++;
    segment->bytes += line;
    spool_ends_note(&counting->spool->ends, text, size);
    return true;
}

static bool load_segment(struct spool *spool, struct spool_segment *segment, struct error *err)
{
    struct counting counting = {.spool = spool, .segment = segment, .first_unshipped = spool->base + 1};
    char name[SPOOL_NAME_BYTES];
    spool_segment_name(name, segment->first);
    AUTO(journal_file) *file = journal_file_open(spool->options.folder, name, count_record, &counting, err);
    if (!file)
        return false;
    bool is_last = segment == &spool->segments[spool->segment_count - 1];
    if (!is_last && segment->first + segment->count != segment[1].first)
        return error_set(err, ERROR_INTERNAL, "%s ends early", name);
    if (is_last)
        spool->current = TAKE(file);
    return true;
}

/* Segments wholly before the head's base: shipped, but not deleted before the end. */
static void drop_old(struct spool *spool)
{
    while (spool->segment_count > 1 && spool->segments[1].first <= spool->base + 1) {
        char name[SPOOL_NAME_BYTES];
        spool_segment_name(name, spool->segments[0].first);
        (void)unlinkat(spool->options.folder, name, 0);
        memmove(spool->segments, spool->segments + 1, --spool->segment_count * sizeof *spool->segments);
    }
}

static bool load(struct spool *spool, struct error *err)
{
    if (!spool->id[0] || spool->segment_count == 0)
        return error_set(err, ERROR_INTERNAL, "%s is missing", spool->id[0] ? "every segment" : HEAD_NAME);
    drop_old(spool);
    for (size_t i = 0; i < spool->segment_count; i++)
        if (!load_segment(spool, &spool->segments[i], err))
            return false;
    const struct spool_segment *first = spool->segments, *last = &first[spool->segment_count - 1];
    spool->next = last->first + last->count;
    spool->cursor = spool->base + 1 > first->first ? spool->base + 1 : first->first;
    if (spool->cursor > first->first + first->count || first->first == 0)
        return error_set(err, ERROR_INTERNAL, HEAD_NAME " is not of these segments");
    return true;
}

/* ---- beginning ---- */

/* The head last: with a head and no segment something is lost, without a head an empty one is a beginning. */
static bool begin(struct spool *spool, struct error *err)
{
    char id[RANDOM_ID_BYTES], name[SPOOL_NAME_BYTES];
    random_id(id, "spl");
    spool_segment_name(name, 1);
    spool->current = journal_file_open(spool->options.folder, name, NULL, NULL, err);
    if (!spool->head)
        spool->head = journal_file_open(spool->options.folder, HEAD_NAME, NULL, NULL, err);
    if (!spool->current || !spool->head || !write_head(spool, id, 0, err))
        return false;
    spool->segment_count = 0;
    push_segment(spool, 1);
    spool->next = spool->cursor = 1;
    return true;
}

/* Nothing is there, or what a kill left of the first beginning. */
static bool is_new(const struct spool *spool)
{
    char name[SPOOL_NAME_BYTES];
    struct stat status;
    if (!spool->head || spool->id[0] || spool->segment_count > 1)
        return false;
    spool_segment_name(name, 1);
    return spool->segment_count == 0 ||
           (spool->segments[0].first == 1 && fstatat(spool->options.folder, name, &status, AT_SYMLINK_NOFOLLOW) == 0 &&
            status.st_size == 0);
}

static void forget_all(struct spool *spool)
{
    journal_file_free(TAKE(spool->current));
    journal_file_free(TAKE(spool->head));
    free(TAKE(spool->segments));
    spool->segment_count = 0;
    spool->id[0] = '\0';
    spool->base = spool->next = spool->synced = spool->cursor = 0;
    spool->synced_bytes = spool->cursor_offset = spool->unshipped_bytes = 0;
}

/* Renamed within the folder: whoever wants to know can still read them. */
static bool set_aside(int folder, struct error *err)
{
    int64_t now_ms = clock_wall_ms();
    DIR *list = list_folder(folder, err);
    if (!list)
        return false;
    bool ok = true;
    for (const struct dirent *entry; ok && (entry = readdir(list));) { /* NOLINT(concurrency-mt-unsafe) */
        if (!text_starts_with(entry->d_name, PREFIX) || strcmp(entry->d_name, ENDS_NAME) == 0)
            continue;
        AUTO_FREE char *aside = memory_printf("damaged-%lld-%s", (long long)now_ms, entry->d_name);
        if (renameat(folder, entry->d_name, folder, aside) != 0)
            ok = error_set_errno(err, ERROR_INTERNAL, "rename %s", entry->d_name);
    }
    closedir(list);
    return ok;
}

bool spool_segments_begin_anew(struct spool *spool, struct error *err)
{
    forget_all(spool);
    return set_aside(spool->options.folder, err) && begin(spool, err);
}

static bool open_ends(struct spool *spool, struct error *err)
{
    struct error damaged = {0};
    spool->ends_file = journal_file_open(spool->options.folder, ENDS_NAME, spool_ends_load, &spool->ends, &damaged);
    if (spool->ends_file)
        return true;
    /* Without it an end may be recorded twice after a restart; no reason to stop. */
    log_warn("audit", "%s; begun anew", damaged.message);
    (void)unlinkat(spool->options.folder, ENDS_NAME, 0);
    spool->ends_file = journal_file_open(spool->options.folder, ENDS_NAME, NULL, NULL, err);
    return spool->ends_file != NULL;
}

bool spool_segments_open(struct spool *spool, struct error *damage, struct error *err)
{
    int folder = spool->options.folder;
    (void)unlinkat(folder, NEXT_NAME, 0);
    if (!open_ends(spool, err) || !find_segments(spool, err))
        return false;
    spool->head = journal_file_open(folder, HEAD_NAME, read_head, spool, damage);
    if (is_new(spool))
        return begin(spool, err);
    if (spool->head && load(spool, damage))
        return true;
    return spool_segments_begin_anew(spool, err);
}

void spool_segments_close(struct spool *spool)
{
    forget_all(spool);
    journal_file_free(TAKE(spool->ends_file));
    free(TAKE(spool->ends.notes));
}

/* ---- going on ---- */

bool spool_segments_renumber(struct spool *spool, struct error *err)
{
    char id[RANDOM_ID_BYTES];
    random_id(id, "spl");
    return write_head(spool, id, spool->cursor - 1, err);
}

/* Under the mutex, for a moment: what was written since the last sync, synced; then the successor takes its name. */
static bool exchange(struct spool *spool, struct journal_file **file, struct error *err)
{
    char name[SPOOL_NAME_BYTES];
    spool_segment_name(name, spool->next);
    if (!journal_file_sync(spool->current, err)) {
        spool->broken = *err;
        return false;
    }
    if (renameat(spool->options.folder, NEXT_NAME, spool->options.folder, name) != 0)
        return error_set_errno(err, ERROR_INTERNAL, "rename " NEXT_NAME);
    push_segment(spool, spool->next);
    journal_file_free(spool->current);
    spool->current = TAKE(*file);
    spool->synced = spool->next;
    spool->synced_bytes = 0;
    return true;
}

bool spool_segments_roll(struct spool *spool, struct error *err)
{
    AUTO(journal_file) *file = journal_file_open(spool->options.folder, NEXT_NAME, NULL, NULL, err);
    if (!file || !journal_file_sync(spool->current, err)) /* most of it, while others go on writing */
        return false;
    pthread_mutex_lock(&spool->mutex);
    bool ok = exchange(spool, &file, err);
    pthread_mutex_unlock(&spool->mutex);
    /* Until its new name is durable nothing in it is called synced: the caller syncs both. */
    return ok && journal_folder_sync(spool->options.folder, err);
}
