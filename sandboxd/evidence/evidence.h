/** evidence.h - what an incident wants to know of a sandbox from outside: which processes it has, and what differs from
 *  its template on its disk. Runs in a child of the launcher, which may be kept waiting by what it looks at, and whose
 *  every byte is hostile: no link is followed, nothing is opened but folders and files of /proc, all is bounded.
 *
 *  Out come lines of JSON, the last one {"end": true, "part", "next": N or null, "truncated"}. Text that is no UTF-8
 * has its other bytes as \xNN, and `\` doubled. */
#pragma once

#include "shared/base/error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define EVIDENCE_ITEMS_MAX 2000              /* of one page */
#define EVIDENCE_BYTES_MAX (2 * 1024 * 1024) /* likewise, about */
#define EVIDENCE_LOOKS_MAX 1000000           /* files that are looked at for one page */
#define EVIDENCE_DEPTH_MAX 200               /* folders within each other; deeper ones are left out, and that is said */

/** What to look at. */
struct evidence_order {
    int folder;        /* the v2 cgroup its commands are in; or the area (storage.h) */
    int out;           /* a file */
    uint32_t uid_base; /* of its ids on this host: shown as they are inside */
    uint64_t skip;     /* items of the pages before */
};

/** The sandbox's commands and all they started: pid, pid_inside, ppid, uid, name, state, threads, started_at, cpu_ms,
 *  rss_bytes, command, command_cut. */
bool evidence_processes(const struct evidence_order *order, struct error *err) MUST_USE;

/** What it made, changed or deleted: path, type (file, dir, symlink, fifo, socket, char, block, deleted), size, mode,
 *  uid, gid, mtime, target of a symlink; `replaced` of a folder that hides all that its template has there. */
bool evidence_files(const struct evidence_order *order, struct error *err) MUST_USE;

/** Gives up all rights but reading any folder, and its life after 20 s. For the child that calls the above. */
bool evidence_give_up_rights(struct error *err) MUST_USE;
