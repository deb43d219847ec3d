/** stores.h - the stores that the ledger's tests run on: LMDB in a folder of its own, memory without and with
 * conflicts. */
#pragma once

#include "negotiator/ledger/kv.h"
#include "shared/base/fd.h"
#include "tests/unit/check.h"

#include <stdio.h>

enum stores_engine { STORES_LMDB, STORES_MEMORY, STORES_CONFLICTING, STORES_ENGINES };

static const char *const STORES_NAMES[STORES_ENGINES] = {"lmdb", "memory", "memory with 40 % conflicts"};

/** Makes a folder below TMPDIR; the test ends when it cannot. */
static inline void stores_make_folder(char folder[static 4096])
{
    const char *parent = getenv("TMPDIR");
    snprintf(folder, 4096, "%s/parley-ledger-XXXXXX", parent ? parent : "/tmp");
    if (mkdtemp(folder) == NULL) {
        perror(folder);
        exit(1);
    }
}

static inline void stores_remove_folder(const char *folder)
{
    CHECK(fd_remove_tree(folder, NULL));
}

/** A new store; `folder` is used by LMDB only. */
static inline struct kv *stores_open(enum stores_engine engine, const char *folder)
{
    struct error err = {0};
    struct kv *kv = engine == STORES_LMDB ? kv_lmdb_open(folder, (size_t)64 << 20, &err)
                                          : kv_memory_new(engine == STORES_CONFLICTING ? 40 : 0, 7);
    if (kv == NULL) {
        fprintf(stderr, "%s: %s\n", STORES_NAMES[engine], err.message);
        exit(1);
    }
    return kv;
}
