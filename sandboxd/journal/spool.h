/** spool.h - this node's part of the audit (protocol.md, 7): a record is written before the deed, synced within 100 ms
 *  (or before spool_add returns, with audit_sync always), shipped to the negotiator at least once under (spool id, n),
 *  and forgotten when the negotiator has it durably. */
#pragma once

#include "shared/base/cleanup.h"
#include "shared/base/error.h"

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#define SPOOL_COMMAND_MAX  4096 /* bytes of a command line that a record keeps */
#define SPOOL_DETAIL_MAX   6144 /* of `detail`; other texts 255, links and scope 512 */
#define SPOOL_REFUSALS_MAX 200  /* refusals a second that get a record of their own; the others are summed */

struct spool;

struct spool_options {
    int folder;                   /* of STATE/sandboxd/journal; borrowed */
    bool sync_always;             /* audit_sync: "always", else within 100 ms */
    uint64_t bytes_max;           /* audit_spool_mb: unshipped records kept; beyond, deeds are refused */
    void (*grown)(void *context); /* there is something to ship; any thread, must not block; may be NULL */
    void *context;
};

/** One record; NULL texts are "". They are cut to their bounds and made UTF-8. */
struct spool_record {
    const char *action;  /* "exec", "exec.end", "signal", "kill", "refuse", "read" ... */
    const char *outcome; /* "ok" | "refused" | "failed" */
    int status;          /* HTTP; 0 none */
    const char *principal, *actor, *thread_id, *sandbox_id, *lease, *jti, *links, *scope, *remote, *request_id, *detail;
};

/** Opens or makes the spool; its thread syncs. ERROR_INTERNAL: a damaged spool is set aside under another name, a new
 *  one begun, and the first record says so. */
struct spool *spool_open(const struct spool_options *options, struct error *err) MUST_USE;
/** Syncs and closes; NULL is allowed. */
void spool_free(struct spool *spool);
DEFINE_AUTO(spool)

/* Of the next five: a NULL spool records nothing and never fails. It is a guest's, inside of what records. */

/** Writes one record. False: it could not be (disk or spool full): then the deed must not be done; ERROR_DISK_FULL with
 *  a sentence for the client. With half of bytes_max waiting, one sandbox may not take more of the rest than it leaves:
 *  so that no client keeps the deeds of others from being done. Any thread. */
bool spool_add(struct spool *spool, const struct spool_record *record, struct error *err) MUST_USE;
/** The end of a command, `detail` beginning with "id=<command_id> ": it has happened already, so it may go a sixteenth
 *  beyond bytes_max, and what cannot be written even so is counted and told by one record later. Any thread. */
void spool_end(struct spool *spool, const struct spool_record *record, const char *command_id);
/** Whether that end is recorded, by this process or one before it, in the last 11 minutes. Any thread. */
bool spool_knows_end(struct spool *spool, const char *sandbox_id, const char *command_id) MUST_USE;
/** A refusal: never fails; beyond SPOOL_REFUSALS_MAX in a second, or with half of bytes_max waiting (so that strangers
 *  cannot keep deeds from being done), it is only counted, and one record tells the count. Any thread. */
void spool_refusal(struct spool *spool, const struct spool_record *record);
/** A read: counted by (jti, action) and second; one record a second and token tells how many; within half of bytes_max
 *  as refusals. Any thread. */
void spool_read(struct spool *spool, const struct spool_record *record);

/** The oldest unshipped records, at most `max` and 256 KiB: {"spool": "spl_...", "records": [{"n", "time", ...}]};
 *  NULL when there are none. Only synced ones. The caller owns it. The ship thread. */
json_t *spool_next(struct spool *spool, size_t max) MUST_USE;
/** The negotiator has all up to n of this spool id durably. An n below what it said before, or above what there is,
 * says that its ledger, or this spool, was set back: what is unshipped goes on under a new id, from 1. The ship thread.
 */
void spool_shipped(struct spool *spool, const char *id, uint64_t n);

/** Unshipped records and their bytes, for /metrics and tests. */
struct spool_figures {
    uint64_t records, bytes, refused_full;
};
void spool_figures(struct spool *spool, struct spool_figures *figures);
