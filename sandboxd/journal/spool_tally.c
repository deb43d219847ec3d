/* spool_tally.c - what is counted instead of recorded one by one: reads, and refusals in a flood. A kill of this
 * process loses at most what one second counted. */
#include "sandboxd/journal/spool_internal.h"

#include "shared/base/clock.h"
#include "shared/base/memory.h"

#include <string.h>

struct spool_read_count {
    struct spool_read_count *next; /* in the same row */
    char *action, *jti, *detail;   /* of the first one */
    struct text first;             /* the first one's text without its end, which the count becomes */
    int64_t second;
    uint64_t count;
};

static void free_read(struct spool_read_count *read)
{
    free(read->action);
    free(read->jti);
    free(read->detail);
    text_done(&read->first);
    free(read);
}

void spool_tally_start(struct spool_tally *tally)
{
    pthread_mutex_init(&tally->mutex, NULL);
}

void spool_tally_done(struct spool_tally *tally)
{
    for (size_t row = 0; row < SPOOL_READ_ROWS; row++)
        for (struct spool_read_count *read = tally->reads[row], *next; read; read = next) {
            next = read->next;
            free_read(read);
        }
    pthread_mutex_destroy(&tally->mutex);
}

/* Sums may fill half of the spool: a flood of them must not be what keeps deeds from being done. */
static uint64_t bytes_for_sums(const struct spool *spool)
{
    return spool->options.bytes_max / 2;
}

/* ---- refusals ---- */

/* Whether this one gets its own record. */
static bool take_turn(struct spool_tally *tally, int64_t now_ms)
{
    if (tally->second != now_ms / 1000) {
        tally->second = now_ms / 1000;
        tally->refusals = 0;
    }
    if (tally->refusals >= SPOOL_REFUSALS_MAX)
        return false;
    tally->refusals++;
    return true;
}

void spool_refusal(struct spool *spool, const struct spool_record *record)
{
    if (!spool)
        return;
    struct spool_tally *tally = &spool->tally;
    int64_t now_ms = clock_wall_ms();
    struct error ignored = {0};
    pthread_mutex_lock(&tally->mutex);
    bool own = take_turn(tally, now_ms);
    pthread_mutex_unlock(&tally->mutex);
    if (own) {
        AUTO_TEXT text = {0};
        spool_text_make(&text, record, now_ms);
        if (spool_write(spool, &text, bytes_for_sums(spool), &ignored))
            return;
    }
    pthread_mutex_lock(&tally->mutex);
    if (tally->summed++ == 0)
        tally->summed_from_ms = now_ms;
    tally->summed_to_ms = now_ms;
    pthread_mutex_unlock(&tally->mutex);
    spool_tallied(spool);
}

static void flush_refusals(struct spool *spool, int64_t now_ms, bool all)
{
    struct spool_tally *tally = &spool->tally;
    pthread_mutex_lock(&tally->mutex);
    uint64_t summed = tally->summed;
    int64_t from = tally->summed_from_ms, to = tally->summed_to_ms;
    if (!all && from / 1000 == now_ms / 1000)
        summed = 0;
    if (summed)
        tally->summed = 0;
    pthread_mutex_unlock(&tally->mutex);
    if (!summed)
        return;
    char detail[128], from_text[CLOCK_TEXT_BYTES], to_text[CLOCK_TEXT_BYTES];
    clock_format(from_text, from);
    clock_format(to_text, to);
    snprintf(detail, sizeof detail, "count=%llu from=%s to=%s", (unsigned long long)summed, from_text, to_text);
    struct spool_record record = {.action = "refuse", .outcome = "refused", .detail = detail};
    AUTO_TEXT text = {0};
    struct error ignored = {0};
    spool_text_make(&text, &record, now_ms);
    if (spool_write(spool, &text, bytes_for_sums(spool), &ignored))
        return;
    pthread_mutex_lock(&tally->mutex); /* later, when there is room */
    if (tally->summed == 0)
        tally->summed_to_ms = to;
    tally->summed += summed;
    tally->summed_from_ms = from;
    pthread_mutex_unlock(&tally->mutex);
}

/* ---- reads ---- */

static size_t row_of(const char *action, const char *jti)
{
    uint32_t hash = 2166136261U; /* FNV-1a; ids of tokens whose MAC held: nobody can choose them */
    for (const char *at = action; *at; at++)
        hash = (hash ^ (uint8_t)*at) * 16777619U;
    for (const char *at = jti; *at; at++)
        hash = (hash ^ (uint8_t)*at) * 16777619U;
    return hash & (SPOOL_READ_ROWS - 1);
}

static struct spool_read_count *new_read(const struct spool_record *record, const char *jti, int64_t now_ms)
{
    struct spool_read_count *read = memory_new(sizeof *read);
    struct spool_record without = *record;
    without.detail = NULL;
    read->action = memory_string(record->action);
    read->jti = memory_string(jti);
    read->detail = memory_printf("%.128s", record->detail ? record->detail : "");
    read->second = now_ms / 1000;
    spool_text_make(&read->first, &without, now_ms);
    read->first.data[--read->first.length] = '\0'; /* the closing brace */
    return read;
}

void spool_read(struct spool *spool, const struct spool_record *record)
{
    if (!spool)
        return;
    struct spool_tally *tally = &spool->tally;
    const char *jti = record->jti ? record->jti : "";
    size_t row = row_of(record->action, jti);
    pthread_mutex_lock(&tally->mutex);
    struct spool_read_count *read = tally->reads[row];
    while (read && (strcmp(read->jti, jti) != 0 || strcmp(read->action, record->action) != 0))
        read = read->next;
    bool is_first = !read && tally->read_count < SPOOL_READS_MAX;
    if (is_first) {
        read = new_read(record, jti, clock_wall_ms());
        read->next = tally->reads[row];
        tally->reads[row] = read;
        tally->read_count++;
    }
    if (read)
        read->count++;
    else
        is_first = tally->reads_untold++ == 0;
    pthread_mutex_unlock(&tally->mutex);
    if (is_first)
        spool_tallied(spool);
}

/* Takes out what is of earlier seconds, or all. */
static struct spool_read_count *take_reads(struct spool_tally *tally, int64_t second, bool all)
{
    struct spool_read_count *taken = NULL;
    for (size_t row = 0; row < SPOOL_READ_ROWS && tally->read_count; row++) {
        struct spool_read_count **at = &tally->reads[row];
        while (*at) {
            struct spool_read_count *read = *at;
            if (!all && read->second == second) {
                at = &read->next;
                continue;
            }
            *at = read->next;
            read->next = taken;
            taken = read;
            tally->read_count--;
        }
    }
    return taken;
}

/* What found no room is counted as one sum. */
static uint64_t write_reads(struct spool *spool, struct spool_read_count *reads)
{
    uint64_t untold = 0;
    for (struct spool_read_count *read = reads, *next; read; read = next) {
        next = read->next;
        AUTO_FREE char *detail = memory_printf("count=%llu first=%s", (unsigned long long)read->count, read->detail);
        spool_text_add_detail(&read->first, detail);
        struct error ignored = {0};
        if (!spool_write(spool, &read->first, bytes_for_sums(spool), &ignored))
            untold += read->count;
        free_read(read);
    }
    return untold;
}

static bool write_untold(struct spool *spool, uint64_t untold, int64_t now_ms)
{
    char detail[64];
    snprintf(detail, sizeof detail, "count=%llu of tokens not told", (unsigned long long)untold);
    struct spool_record record = {.action = "read", .outcome = "ok", .detail = detail};
    AUTO_TEXT text = {0};
    struct error ignored = {0};
    spool_text_make(&text, &record, now_ms);
    return spool_write(spool, &text, bytes_for_sums(spool), &ignored);
}

static void flush_reads(struct spool *spool, int64_t now_ms, bool all)
{
    struct spool_tally *tally = &spool->tally;
    pthread_mutex_lock(&tally->mutex);
    struct spool_read_count *reads = take_reads(tally, now_ms / 1000, all);
    uint64_t untold = tally->reads_untold;
    tally->reads_untold = 0;
    pthread_mutex_unlock(&tally->mutex);
    untold += write_reads(spool, reads);
    if (!untold || write_untold(spool, untold, now_ms))
        return;
    pthread_mutex_lock(&tally->mutex);
    tally->reads_untold += untold;
    pthread_mutex_unlock(&tally->mutex);
}

bool spool_tally_flush(struct spool *spool, bool all)
{
    int64_t now_ms = clock_wall_ms();
    flush_refusals(spool, now_ms, all);
    flush_reads(spool, now_ms, all);
    pthread_mutex_lock(&spool->tally.mutex);
    bool more = spool->tally.summed || spool->tally.read_count || spool->tally.reads_untold;
    pthread_mutex_unlock(&spool->tally.mutex);
    return more;
}
