/** series.h - what the benches of the ledger share: a series of times, and the floor: raw LMDB commits of one put. */
#pragma once

#include "shared/base/clock.h"
#include "shared/base/fd.h"
#include "shared/base/memory.h"

#include <lmdb.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#define SERIES_VALUE_BYTES 400
#define SERIES_MAX         1000000 /* samples kept; more are counted only */

struct series {
    uint64_t *samples; /* ns */
    size_t count, capacity;
    uint64_t done, batches, elapsed_ns;
};

_Noreturn static inline void give_up(const char *what)
{
    fprintf(stderr, "bench: %s\n", what);
    exit(1);
}

static inline int series_compare(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

static inline void series_open(struct series *series)
{
    *series = (struct series){.samples = memory_array(SERIES_MAX, sizeof *series->samples), .capacity = SERIES_MAX};
}

static inline void series_add(struct series *series, uint64_t ns)
{
    series->done++;
    if (series->count < series->capacity)
        series->samples[series->count++] = ns;
}

static inline double series_rate(const struct series *series)
{
    return (double)series->done * 1e9 / (double)series->elapsed_ns;
}

/** Prints rate, ratio to the floor, and percentiles. */
static inline void series_report(struct series *series, const char *name, const struct series *floor)
{
    if (series->count == 0)
        give_up("nothing was measured");
    qsort(series->samples, series->count, sizeof *series->samples, series_compare);
    const double us = 1000;
    double a_batch = series->batches ? (double)series->done / (double)series->batches : 1;
    printf("%-34s %7.0f/s %6.2f x raw  %5.1f a batch  p50 %6.0f us  p95 %6.0f us  p99 %6.0f us\n", name,
           series_rate(series), series_rate(series) / series_rate(floor), a_batch,
           (double)series->samples[series->count / 2] / us, (double)series->samples[series->count * 95 / 100] / us,
           (double)series->samples[series->count * 99 / 100] / us);
}

/** As an id: unordered, 22 bytes. */
static inline void series_key(char to[static 24])
{
    static atomic_uint next;
    unsigned number = atomic_fetch_add(&next, 1);
    unsigned long long mixed = (number + 1) * 0x9e3779b97f4a7c15ULL;
    snprintf(to, 24, "lse_%016llx%02x", mixed, number & 255);
}

/** Commits for run_ns into a store of its own below `folder`. */
static inline void series_run_raw(struct series *series, const char *folder, uint64_t run_ns)
{
    MDB_env *env;
    MDB_txn *txn;
    MDB_dbi table;
    if (!fd_make_folders(folder, 0700, NULL) || mdb_env_create(&env) || mdb_env_set_mapsize(env, (size_t)4 << 30) ||
        mdb_env_open(env, folder, MDB_NOTLS, 0600) || mdb_txn_begin(env, NULL, 0, &txn) ||
        mdb_dbi_open(txn, NULL, 0, &table) || mdb_txn_commit(txn))
        give_up("cannot open the raw store");
    uint64_t start = clock_monotonic_ns(), now = start;
    while (now - start < run_ns) {
        uint64_t before = now;
        char name[24], value[SERIES_VALUE_BYTES] = {0};
        series_key(name);
        MDB_val key = {strlen(name), name}, data = {sizeof value, value};
        if (mdb_txn_begin(env, NULL, 0, &txn) || mdb_put(txn, table, &key, &data, 0) || mdb_txn_commit(txn))
            give_up("a raw commit failed");
        now = clock_monotonic_ns();
        series_add(series, now - before);
    }
    series->elapsed_ns += now - start;
    mdb_env_close(env);
}
