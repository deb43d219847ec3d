/** grant_cache.h - grants.json: one object of grants by key, changed under a lock and replaced whole. Inside libparley.
 */
#pragma once

#include "clients/c/grant.h"

/** A key that names deployment, principal, thread, hint, scopes, ttl and wishes without holding the API key. The caller
 * frees.
 */
char *grant_cache_key(const struct place *place, const struct grant_request *request) MUST_USE;

/** Takes the lock of the file, for all processes that use it: held from reading to writing, also while a grant is
 *  refreshed in between. close() gives it back, and so does the end of its holder (flock(2)). Waits `wait_ms`, 0 not at
 *  all; false when somebody else holds it for longer. True with *lock -1: no file can be kept here, and nothing shared.
 */
bool grant_cache_lock(int *lock, unsigned wait_ms) MUST_USE;

/** The entry; NULL when there is none or the file is unreadable (a cache may always be lost). The caller owns it. */
json_t *grant_cache_find(const char *key) MUST_USE;

/** Puts an entry (borrowed), or removes it when NULL; spent ones go along. `lock`: the one held; -1: it takes it for as
 *  long. Failure is silent and leaves no file: it costs negotiations. */
void grant_cache_store(int lock, const char *key, json_t *entry);

/** Removes all entries whose sandbox is `sandbox_id`. */
void grant_cache_drop_sandbox(const char *sandbox_id);

/** How long past its end a token can still be refreshed (protocol.md, 2). */
#define GRANT_REFRESHABLE_MS 60000
