/** kv_internal.h - what the engines and the audit see of a change, and the memory engine's test hooks. Private to this
 *  folder and its tests. */
#pragma once

#include "negotiator/ledger/kv.h"

enum kv_step_kind { KV_STEP_EXPECT, KV_STEP_PUT, KV_STEP_DELETE };

struct kv_step {
    enum kv_step_kind kind;
    uint64_t revision; /* EXPECT */
    size_t size;       /* PUT: bytes of data without its NUL */
    char *key;         /* owned, 1..KV_KEY_MAX_BYTES bytes */
    char *data;        /* PUT: owned, NUL-terminated */
};

struct kv_change {
    struct kv_step *steps; /* in the order they were added */
    size_t count, capacity;
    struct error invalid; /* the first key or value that was refused; ERROR_NONE */
};

/** The last write of `key` in this change when it is a put, else NULL. */
const struct kv_step *kv_change_pending(const struct kv_change *change, const char *key) MUST_USE;

/** The next `ends` batches of a memory store fail at their end, as ERROR_DISK_FULL. Any thread. */
void kv_memory_fail_ends(struct kv *kv, unsigned ends);
/** What kv_usage says of a memory store; 0 at first. Any thread. */
void kv_memory_set_usage(struct kv *kv, unsigned percent);
