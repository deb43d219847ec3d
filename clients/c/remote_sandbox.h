/** remote_sandbox.h - what is done to a sandbox as a whole, by the negotiator: found, changed, paused, kept as a
 * snapshot. Blocks; any thread. Ids are "sbx_..." and "snp_..."; the server's error kinds: NOT_FOUND also for what is
 * another principal's, FORBIDDEN where a policy says no, QUOTA, GONE, NODE_UNREACHABLE, STARTING (again later). */
#pragma once

#include "clients/c/place.h"

#include "shared/base/error.h"

#include <jansson.h>
#include <stdbool.h>

/** The id of a sandbox, or of the living one of that name. The caller frees; NULL with err. */
char *remote_sandbox_find(const struct place *place, const char *given, struct error *err) MUST_USE;

/** The id of the sandbox that a thread leases. The caller frees; NULL with err. */
char *remote_sandbox_of_thread(const struct place *place, const char *thread, struct error *err) MUST_USE;

/** What the negotiator knows of it: state, resources, threads, node, storage ... The caller owns it; NULL with err. */
json_t *remote_sandbox_show(const struct place *place, const char *id, struct error *err) MUST_USE;

/** Stops everything in it but its clock: nothing of it runs until it is resumed, or used again. *sandbox (may be NULL)
 * as of remote_sandbox_show. */
bool remote_sandbox_pause(const struct place *place, const char *id, json_t **sandbox, struct error *err) MUST_USE;
bool remote_sandbox_resume(const struct place *place, const char *id, json_t **sandbox, struct error *err) MUST_USE;
/** Likewise; `until` is RFC 3339. */
bool remote_sandbox_renew(const struct place *place, const char *id, const char *until, json_t **sandbox,
                          struct error *err) MUST_USE;

/** Changes what `changes` (borrowed) names: {"resources", "on_idle", "metadata", "name"}. *sandbox as above. */
bool remote_sandbox_change(const struct place *place, const char *id, json_t *changes, json_t **sandbox,
                           struct error *err) MUST_USE;

/** Ends it; its files are gone. */
bool remote_sandbox_end(const struct place *place, const char *id, struct error *err) MUST_USE;

/** Keeps its files as they are now, under `name` (NULL: none) of the owner's; processes are not part of it. *reply is
 *  {"snapshot": {"id", ...}, "processes": {"running": N, "included": false}}, the caller's. Where a snapshot is a copy
 *  it takes its time: waits 10 minutes at most. */
bool remote_sandbox_snapshot(const struct place *place, const char *id, const char *name, json_t **reply,
                             struct error *err) MUST_USE;

/** The id of a snapshot, or of the one of that name. The caller frees; NULL with err. */
char *remote_snapshot_find(const struct place *place, const char *given, struct error *err) MUST_USE;

/** Removes it, also while its node is away; sandboxes that began with it live on. */
bool remote_snapshot_drop(const struct place *place, const char *id, struct error *err) MUST_USE;
