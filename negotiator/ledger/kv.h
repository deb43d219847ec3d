/** kv.h - the small face of the durable store, shaped like etcd's: get, range, and a transaction of comparisons and
 *  writes, with revisions. Engines: lmdb.c (embedded default), memory.c (tests: fails comparisons at random).
 *  Called on the ledger thread only, except where an engine says more. */
#pragma once

#include "shared/base/error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define KV_KEY_MAX_BYTES   400
#define KV_VALUE_MAX_BYTES ((size_t)256 * 1024)

/** A value as it was read. Embedded; zero is "missing". */
struct kv_value {
    char *data;        /* NUL-terminated, owned; NULL when missing */
    size_t size;       /* bytes without the NUL */
    uint64_t revision; /* of its last write; 0 when missing */
};
void kv_value_done(struct kv_value *value);
#define AUTO_KV_VALUE __attribute__((cleanup(kv_value_done))) struct kv_value

/** What a transaction compares and writes. The builder copies keys and values. A key of 0 or more than
 *  KV_KEY_MAX_BYTES, or a value of more than KV_VALUE_MAX_BYTES, makes kv_apply answer ERROR_INVALID. All comparisons
 *  are made before any write; all writes of one change get the same revision, one no change had before. */
struct kv_change;
struct kv_change *kv_change_new(void) MUST_USE;
void kv_change_free(struct kv_change *change);
DEFINE_AUTO(kv_change)
/** The key must still have this revision (0: must be missing) when the change is applied. */
void kv_change_expect(struct kv_change *change, const char *key, uint64_t revision);
void kv_change_put(struct kv_change *change, const char *key, const void *data, size_t size);
void kv_change_delete(struct kv_change *change, const char *key);

enum kv_outcome {
    KV_APPLIED,
    KV_CONFLICT, /* a comparison failed: nothing was written; read again and retry */
    KV_FAILED    /* err says why */
};

struct kv;

/** Called for each pair in key order; false stops the walk. The pointers are valid during the call. It may read the
 *  store, not change it. */
typedef bool kv_visit(void *cookie, const char *key, const struct kv_value *value);

struct kv_engine {
    bool (*get)(struct kv *kv, const char *key, struct kv_value *value, struct error *err);
    bool (*range)(struct kv *kv, const char *first, const char *end, size_t limit, kv_visit *visit, void *cookie,
                  struct error *err);
    enum kv_outcome (*apply)(struct kv *kv, const struct kv_change *change, struct error *err);
    bool (*batch_begin)(struct kv *kv, struct error *err);
    bool (*batch_end)(struct kv *kv, struct error *err);
    bool (*usage)(struct kv *kv, unsigned *percent, struct error *err);
    void (*free)(struct kv *kv);
};

/** Every engine's struct begins with this. */
struct kv {
    const struct kv_engine *engine;
    bool in_batch; /* private to kv.c; engines may read it */
    bool walking;  /* private to kv.c: a visit is running */
};

/** Opens (and creates, 0600) an LMDB environment in `folder`; `map_bytes` bounds its size. One process at a time: an
 *  exclusive lock on the folder, else ERROR_CONFLICT. No file is opened by path after that. A file that is no store, or
 *  damaged, is ERROR_INTERNAL with a sentence that says so. The sentence of ERROR_DISK_FULL says what to do. Reads may
 *  come from any thread as long as no two calls overlap; a batch begins and ends on one thread. */
struct kv *kv_lmdb_open(const char *folder, size_t map_bytes, struct error *err) MUST_USE;

/** In memory; `conflict_percent` of the changes that compare anything are refused as KV_CONFLICT although they would
 *  hold, in an order given by `seed`. */
struct kv *kv_memory_new(unsigned conflict_percent, uint64_t seed) MUST_USE;

void kv_free(struct kv *kv);
DEFINE_AUTO(kv)

/** Reads one key, seeing what this batch applied before. A missing key is true with revision 0. What `value` held is
 *  freed, so it must be zero or the result of an earlier read. Reading outside a batch is allowed: the last durable
 * state. */
bool kv_get(struct kv *kv, const char *key, struct kv_value *value, struct error *err) MUST_USE;
/** Walks first <= key < end (end NULL: all that begin with `first`), at most `limit` (0: all). */
bool kv_range(struct kv *kv, const char *first, const char *end, size_t limit, kv_visit *visit, void *cookie,
              struct error *err) MUST_USE;
/** Applies a change inside the batch: all of it or nothing. Durable when the batch ended. ERROR_DISK_FULL, and every
 *  other failure to write, breaks the batch: its end fails too. */
enum kv_outcome kv_apply(struct kv *kv, const struct kv_change *change, struct error *err) MUST_USE;
/** How much of the size it may grow to is taken; 0 where nothing bounds it. As of the last durable state. */
bool kv_usage(struct kv *kv, unsigned *percent, struct error *err) MUST_USE;
/** A batch: many changes, one sync. After a failed end nothing of the batch happened. */
bool kv_batch_begin(struct kv *kv, struct error *err) MUST_USE;
bool kv_batch_end(struct kv *kv, struct error *err) MUST_USE;
