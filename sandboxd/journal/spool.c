/* spool.c - writing records, the thread that syncs them, and handing them to who ships. */
#include "sandboxd/journal/spool_internal.h"

#include "shared/base/clock.h"
#include "shared/base/log.h"
#include "shared/base/memory.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

enum {
    SYNC_WAIT_MS = 50, /* from the first unsynced record to the sync; protocol.md, 7 says within 100 */
    SEGMENT_BYTES = 4 << 20,
    SEGMENT_LEAST_BYTES = 64 << 10
};

/* ---- writing ---- */

static uint64_t line_bytes(const struct text *text)
{
    return text->length + JOURNAL_LINE_BYTES;
}

/* With the mutex. */
static bool has_room(const struct spool *spool, const struct text *text, uint64_t bytes_max, struct error *err)
{
    if (spool->broken.kind != ERROR_NONE)
        return error_set(err, ERROR_DISK_FULL,
                         "nothing is done without an audit record, and the node's disk failed: %s",
                         spool->broken.message);
    if (spool->unshipped_bytes + line_bytes(text) <= bytes_max)
        return true;
    return error_set(err, ERROR_DISK_FULL,
                     "nothing is done without an audit record, and %llu MiB of them wait for the negotiator",
                     (unsigned long long)(spool->options.bytes_max >> 20));
}

/* With the mutex. */
static bool append(struct spool *spool, const struct text *text, struct error *err)
{
    if (!journal_file_append(spool->current, text->data, text->length, err))
        return error_prefix(err, "nothing is done without an audit record");
    struct spool_segment *segment = &spool->segments[spool->segment_count - 1];
    segment->count++;
    segment->bytes += line_bytes(text);
    spool->unshipped_bytes += line_bytes(text);
    spool->next++;
    if (!spool->dirty)
        pthread_cond_broadcast(&spool->changed);
    spool->dirty = true;
    return true;
}

/* With the mutex; audit_sync "always". Who waits together is synced together. */
static bool wait_for_sync(struct spool *spool, uint64_t position, struct error *err)
{
    char id[RANDOM_ID_BYTES];
    memcpy(id, spool->id, sizeof id);
    while (spool->synced <= position && spool->broken.kind == ERROR_NONE && strcmp(id, spool->id) == 0)
        pthread_cond_wait(&spool->changed, &spool->mutex);
    return spool->broken.kind == ERROR_NONE || error_set(err, ERROR_DISK_FULL, "%s", spool->broken.message);
}

static bool write_locked(struct spool *spool, const struct text *text, uint64_t bytes_max, struct error *err)
{
    return has_room(spool, text, bytes_max, err) && append(spool, text, err);
}

bool spool_write(struct spool *spool, const struct text *text, uint64_t bytes_max, struct error *err)
{
    pthread_mutex_lock(&spool->mutex);
    bool ok = write_locked(spool, text, bytes_max, err);
    pthread_mutex_unlock(&spool->mutex);
    return ok;
}

/* With the mutex. */
static bool has_share(struct spool *spool, const struct spool_record *record, const struct text *text,
                      struct error *err)
{
    return spool_share_allows(spool, record->sandbox_id, line_bytes(text)) ||
           error_set(err, ERROR_DISK_FULL,
                     "nothing is done without an audit record, and too many of this sandbox wait for the negotiator");
}

/* With the mutex. A full spool, or a broken one, is told as such. */
static bool write_deed(struct spool *spool, const struct spool_record *record, const struct text *text,
                       struct error *err)
{
    if (!has_room(spool, text, spool->options.bytes_max, err) || !has_share(spool, record, text, err) ||
        !append(spool, text, err))
        return false;
    spool_share_take(spool, record->sandbox_id, line_bytes(text));
    return true;
}

bool spool_add(struct spool *spool, const struct spool_record *record, struct error *err)
{
    AUTO_TEXT text = {0};
    if (!spool)
        return true;
    spool_text_make(&text, record, clock_wall_ms());
    struct error why = {0};
    pthread_mutex_lock(&spool->mutex);
    bool ok = write_deed(spool, record, &text, &why) &&
              (!spool->options.sync_always || wait_for_sync(spool, spool->next - 1, &why));
    if (!ok)
        spool->refused_full++;
    pthread_mutex_unlock(&spool->mutex);
    if (ok)
        return true;
    why.kind = ERROR_DISK_FULL; /* whatever it was: the deed is refused for want of a record */
    *err = why;
    return false;
}

void spool_end(struct spool *spool, const struct spool_record *record, const char *command_id)
{
    int64_t now_ms = clock_wall_ms();
    if (!spool)
        return;
    uint64_t max = spool->options.bytes_max + spool->options.bytes_max / 16;
    AUTO_TEXT text = {0};
    struct error ignored = {0};
    spool_text_make(&text, record, now_ms);
    pthread_mutex_lock(&spool->mutex);
    if (write_locked(spool, &text, max, &ignored)) {
        spool_share_take(spool, record->sandbox_id, line_bytes(&text));
        spool_ends_add(&spool->ends, record->sandbox_id ? record->sandbox_id : "", command_id, now_ms);
    } else {
        spool->lost++;
    }
    pthread_mutex_unlock(&spool->mutex);
}

bool spool_knows_end(struct spool *spool, const char *sandbox_id, const char *command_id)
{
    if (!spool)
        return false;
    pthread_mutex_lock(&spool->mutex);
    bool known = spool_ends_has(&spool->ends, sandbox_id, command_id, clock_wall_ms());
    pthread_mutex_unlock(&spool->mutex);
    return known;
}

void spool_tallied(struct spool *spool)
{
    pthread_mutex_lock(&spool->mutex);
    if (!spool->tallied)
        pthread_cond_broadcast(&spool->changed);
    spool->tallied = true;
    pthread_mutex_unlock(&spool->mutex);
}

void spool_figures(struct spool *spool, struct spool_figures *figures)
{
    pthread_mutex_lock(&spool->mutex);
    *figures = (struct spool_figures){
        .records = spool->next - spool->cursor, .bytes = spool->unshipped_bytes, .refused_full = spool->refused_full};
    pthread_mutex_unlock(&spool->mutex);
}

/* ---- the thread ---- */

static struct timespec after_ms(unsigned ms)
{
    struct timespec at;
    clock_gettime(CLOCK_MONOTONIC, &at);
    at.tv_nsec += (long)ms * 1000000;
    at.tv_sec += at.tv_nsec / 1000000000;
    at.tv_nsec %= 1000000000;
    return at;
}

/* A sync that failed may have lost what it should have written, and the next one would not say so (fsync(2), "NOTES"):
 * from here on nothing is done, until a restart reads what is there. */
static void note_broken(struct spool *spool, const struct error *err)
{
    log_error("audit", "the spool cannot be synced, deeds are refused until a restart: %s", err->message);
    pthread_mutex_lock(&spool->mutex);
    spool->broken = *err;
    pthread_cond_broadcast(&spool->changed);
    pthread_mutex_unlock(&spool->mutex);
}

/* True: more is synced than before. */
static bool sync_now(struct spool *spool)
{
    pthread_mutex_lock(&spool->mutex);
    bool wanted = spool->dirty && spool->broken.kind == ERROR_NONE;
    uint64_t next = spool->next, bytes = wanted ? spool->segments[spool->segment_count - 1].bytes : 0;
    spool->dirty = false;
    pthread_mutex_unlock(&spool->mutex);
    struct error err = {0};
    if (!wanted)
        return false;
    if (!journal_file_sync(spool->current, &err)) {
        note_broken(spool, &err);
        return false;
    }
    pthread_mutex_lock(&spool->mutex);
    spool->synced = next;
    spool->synced_bytes = bytes;
    pthread_cond_broadcast(&spool->changed);
    pthread_mutex_unlock(&spool->mutex);
    return true;
}

static void roll_when_large(struct spool *spool)
{
    struct error err = {0};
    if (spool->broken.kind != ERROR_NONE || journal_file_bytes(spool->current) < spool->segment_bytes)
        return;
    if (!spool_segments_roll(spool, &err) && err.kind != ERROR_DISK_FULL) /* then this one grows on */
        log_warn("audit", "the spool's next segment: %s", err.message);
}

/* Records that were due and found no room. */
static void tell_lost(struct spool *spool)
{
    pthread_mutex_lock(&spool->mutex);
    uint64_t lost = spool->lost;
    spool->lost = 0;
    pthread_mutex_unlock(&spool->mutex);
    if (!lost)
        return;
    char detail[96];
    snprintf(detail, sizeof detail, "count=%llu ends of commands found no room", (unsigned long long)lost);
    struct spool_record record = {.action = "spool.lost", .outcome = "failed", .detail = detail};
    AUTO_TEXT text = {0};
    struct error ignored = {0};
    spool_text_make(&text, &record, clock_wall_ms());
    if (spool_write(spool, &text, spool->options.bytes_max, &ignored))
        return;
    pthread_mutex_lock(&spool->mutex);
    spool->lost += lost;
    pthread_mutex_unlock(&spool->mutex);
}

static void tell_damage(struct spool *spool, const char *what)
{
    log_error("audit", "a damaged spool was set aside (damaged-* in the journal folder): %s", what);
    struct spool_record record = {.action = "spool.damaged", .outcome = "failed", .detail = what};
    AUTO_TEXT text = {0};
    struct error err = {0};
    spool_text_make(&text, &record, clock_wall_ms());
    if (!spool_write(spool, &text, UINT64_MAX, &err))
        log_error("audit", "%s", err.message);
}

/* What the ship thread could not read. */
static void replace_damaged(struct spool *spool)
{
    pthread_mutex_lock(&spool->mutex);
    struct error damaged = spool->damaged, err = {0};
    bool ok = damaged.kind == ERROR_NONE || spool_segments_begin_anew(spool, &err);
    if (damaged.kind != ERROR_NONE) {
        spool->synced = spool->next;
        spool->damaged = (struct error){0};
        pthread_cond_broadcast(&spool->changed);
    }
    pthread_mutex_unlock(&spool->mutex);
    if (!ok)
        note_broken(spool, &err); /* there is no file to write to */
    else if (damaged.kind != ERROR_NONE)
        tell_damage(spool, damaged.message);
}

/* With the mutex. Until there is something to sync, and then a moment longer for what comes with it. */
static void wait_for_work(struct spool *spool)
{
    struct timespec second = after_ms(1000), soon;
    int waited = 0;
    while (!spool->stopping && !spool->dirty && spool->damaged.kind == ERROR_NONE && waited == 0)
        waited = spool->tallied || spool->lost ? pthread_cond_timedwait(&spool->changed, &spool->mutex, &second)
                                               : pthread_cond_wait(&spool->changed, &spool->mutex);
    soon = after_ms(SYNC_WAIT_MS);
    waited = 0;
    while (!spool->stopping && spool->dirty && !spool->options.sync_always && waited == 0)
        waited = pthread_cond_timedwait(&spool->changed, &spool->mutex, &soon);
}

static void *run(void *cookie)
{
    struct spool *spool = cookie;
    for (bool stop = false; !stop;) {
        pthread_mutex_lock(&spool->mutex);
        wait_for_work(spool);
        stop = spool->stopping;
        bool tallied = spool->tallied;
        spool->tallied = false;
        pthread_mutex_unlock(&spool->mutex);
        replace_damaged(spool);
        tell_lost(spool);
        if ((tallied || stop) && spool_tally_flush(spool, stop))
            spool_tallied(spool);
        bool more = sync_now(spool);
        roll_when_large(spool);
        if (more && spool->options.grown && !stop)
            spool->options.grown(spool->options.context);
    }
    return NULL;
}

/* ---- opening and closing ---- */

static void prepare_locks(struct spool *spool)
{
    pthread_condattr_t attributes;
    pthread_condattr_init(&attributes);
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    pthread_cond_init(&spool->changed, &attributes);
    pthread_condattr_destroy(&attributes);
    pthread_mutex_init(&spool->mutex, NULL);
    spool_tally_start(&spool->tally);
    spool_shares_start(&spool->shares);
}

static bool start_thread(struct spool *spool, struct error *err)
{
    int failed = pthread_create(&spool->thread, NULL, run, spool);
    if (failed)
        return error_set(err, ERROR_INTERNAL, "start the audit spool's thread: %s", strerror(failed));
    spool->started = true;
    return true;
}

struct spool *spool_open(const struct spool_options *options, struct error *err)
{
    AUTO(spool) *spool = memory_new(sizeof *spool);
    spool->options = *options;
    uint64_t eighth = options->bytes_max / 8;
    spool->segment_bytes = eighth < SEGMENT_LEAST_BYTES ? SEGMENT_LEAST_BYTES
                           : eighth < SEGMENT_BYTES     ? eighth
                                                        : SEGMENT_BYTES;
    prepare_locks(spool);
    struct error damage = {0};
    if (!spool_segments_open(spool, &damage, err)) {
        error_prefix(err, "audit spool");
        return NULL;
    }
    /* What a killed process wrote is in the page cache, not surely on the disk. */
    if (!journal_file_sync(spool->current, err))
        return NULL;
    spool->synced = spool->next;
    spool->synced_bytes = spool->segments[spool->segment_count - 1].bytes;
    spool->dirty = true; /* so that what is there is shipped */
    if (damage.kind != ERROR_NONE)
        tell_damage(spool, damage.message);
    if (!start_thread(spool, err))
        return NULL;
    return TAKE(spool);
}

void spool_free(struct spool *spool)
{
    if (!spool)
        return;
    if (spool->started) {
        pthread_mutex_lock(&spool->mutex);
        spool->stopping = true;
        pthread_cond_broadcast(&spool->changed);
        pthread_mutex_unlock(&spool->mutex);
        pthread_join(spool->thread, NULL);
    }
    spool_segments_close(spool);
    spool_tally_done(&spool->tally);
    pthread_cond_destroy(&spool->changed);
    pthread_mutex_destroy(&spool->mutex);
    free(spool);
}
