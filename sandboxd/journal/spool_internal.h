/** spool_internal.h - what the spool's files share. On disk, all in the journal folder: `spool-head` {"spool", "base"};
 *  segments `spool-<first position>` whose records follow each other without a gap; `spool-ends` (spool_ends.c).
 *  A record's position never changes and is never used twice; its number for the negotiator is position - base. The
 * last segment is never deleted, so that positions go on when all was shipped. */
#pragma once

#include "sandboxd/journal/journal_file.h"
#include "sandboxd/journal/spool.h"
#include "shared/base/random.h"
#include "shared/base/text.h"

#include <pthread.h>

#define SPOOL_NAME_BYTES 32
#define SPOOL_ENDS_MAX   262144                    /* ends remembered */
#define SPOOL_ENDS_MS    (INT64_C(11) * 60 * 1000) /* longer than a command is known after its end */
#define SPOOL_READS_MAX  4096                      /* (token, action) pairs counted in one second */
#define SPOOL_SHARES     4096                      /* of sandboxes, by a hash */
#define SPOOL_READ_ROWS  1024                      /* of the table that finds them; a power of two */

struct spool_segment {
    uint64_t first, count; /* positions first .. first + count - 1 */
    uint64_t bytes;
};

/* Commands whose end was recorded lately. */
struct spool_ends {
    struct spool_end_note {
        uint64_t key;
        int64_t at_ms;
    } * notes; /* a ring */
    size_t start, count, capacity;
    bool changed; /* since spool-ends was written */
};

/* What sandboxes took of a spool that is more than half full. */
struct spool_shares {
    uint8_t key[16]; /* of the hash */
    bool some;
    uint64_t taken[SPOOL_SHARES]; /* bytes */
};

/* Reads of one second, and refusals beyond those that got their own record. */
struct spool_tally {
    pthread_mutex_t mutex; /* guards what follows; taken before the spool's, never after */
    int64_t second;        /* of the refusals counted below */
    unsigned refusals;
    uint64_t summed; /* refusals without a record */
    int64_t summed_from_ms, summed_to_ms;
    struct spool_read_count *reads[SPOOL_READ_ROWS];
    size_t read_count;
    uint64_t reads_untold; /* those that found no room */
};

struct spool {
    struct spool_options options;
    uint64_t segment_bytes; /* a segment as large as this gets a successor */
    pthread_mutex_t mutex;  /* guards what follows, but `current` is exchanged by the sync thread alone */
    pthread_cond_t changed; /* of the sync thread and of who waits for a sync */
    char id[RANDOM_ID_BYTES];
    uint64_t base;
    struct journal_file *head, *ends_file;
    struct spool_segment *segments; /* oldest first; at least one */
    size_t segment_count;
    struct journal_file *current; /* the last one */
    uint64_t next;                /* position of the next record */
    uint64_t synced;              /* positions below are synced; ... */
    uint64_t synced_bytes;        /* ... so much of the last segment */
    uint64_t cursor;              /* position of the oldest unshipped record, in the first segment ... */
    uint64_t cursor_offset;       /* ... at this byte; moved by the ship thread alone */
    uint64_t unshipped_bytes, refused_full;
    uint64_t lost; /* records of what has happened that could not be written */
    struct spool_ends ends;
    struct spool_shares shares;
    struct error broken;  /* kind: ERROR_NONE, or a sync failed: nothing is promised any more */
    struct error damaged; /* kind: ERROR_NONE, or what the ship thread read: the sync thread begins a new spool */
    bool dirty, tallied, stopping;
    struct spool_tally tally;
    pthread_t thread;
    bool started;
};

/* ---- spool_text.c ---- */
/** The record as one line of JSON without a number: empty fields left out, others cut and made UTF-8. */
void spool_text_make(struct text *text, const struct spool_record *record, int64_t now_ms);
/** To a text of spool_text_make without detail and without its closing brace: both. */
void spool_text_add_detail(struct text *text, const char *detail);
/** Puts "" where spool_text_make left a field out. */
void spool_text_complete(json_t *record);

/* ---- spool_segments.c ---- */
void spool_segment_name(char name[static SPOOL_NAME_BYTES], uint64_t first);
/** Finds head and segments, or begins; what is damaged is set aside and *damage says why. */
bool spool_segments_open(struct spool *spool, struct error *damage, struct error *err) MUST_USE;
/** Sets all aside under another name and begins anew under a new id. With the mutex, or before there are threads. */
bool spool_segments_begin_anew(struct spool *spool, struct error *err) MUST_USE;
/** A new id from the oldest unshipped record on. With the mutex. */
bool spool_segments_renumber(struct spool *spool, struct error *err) MUST_USE;
/** A successor to a segment that has grown enough. The sync thread, without the mutex. */
bool spool_segments_roll(struct spool *spool, struct error *err) MUST_USE;
void spool_segments_close(struct spool *spool);

/* ---- spool_ends.c: with the mutex ---- */
void spool_ends_add(struct spool_ends *ends, const char *sandbox_id, const char *command_id, int64_t now_ms);
bool spool_ends_has(const struct spool_ends *ends, const char *sandbox_id, const char *command_id,
                    int64_t now_ms) MUST_USE;
/** Of a record on disk, when it is of an end. */
void spool_ends_note(struct spool_ends *ends, const char *text, size_t size);
/** A journal_visit of spool-ends; the cookie is the ends. */
bool spool_ends_load(void *cookie, const char *text, size_t size, struct error *err) MUST_USE;
/** Makes durable what segments that are about to be deleted told. Takes the mutex itself. */
bool spool_ends_save(struct spool *spool, struct error *err) MUST_USE;

/* ---- spool_share.c: with the mutex ---- */
void spool_shares_start(struct spool_shares *shares);
/** Whether a record of that sandbox (NULL: of none) may be added now. */
bool spool_share_allows(struct spool *spool, const char *sandbox_id, uint64_t bytes) MUST_USE;
/** It was added. */
void spool_share_take(struct spool *spool, const char *sandbox_id, uint64_t bytes);

/* ---- spool_tally.c ---- */
void spool_tally_start(struct spool_tally *tally);
/** Writes the sums of what is over; `all`: of this second too. The sync thread. True: something is still counted. */
bool spool_tally_flush(struct spool *spool, bool all);
void spool_tally_done(struct spool_tally *tally);

/* ---- spool.c ---- */
/** Writes a text while less than `bytes_max` wait. DISK_FULL, INTERNAL. Takes the mutex. */
bool spool_write(struct spool *spool, const struct text *text, uint64_t bytes_max, struct error *err) MUST_USE;
/** Sums are there to be written: the sync thread looks at the end of the second. */
void spool_tallied(struct spool *spool);
