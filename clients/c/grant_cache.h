/** grant_cache.h - grants.json: one object of grants by key, changed under a lock and replaced whole. Inside libparley.
 */
#pragma once

#include "clients/c/grant.h"

/** A key that names deployment, principal, thread, hint and scopes without holding the API key. The caller frees. */
char *grant_cache_key(const struct place *place, const struct grant_request *request) MUST_USE;

/** The entry; NULL when there is none or the file is unreadable (a cache may always be lost). The caller owns it. */
json_t *grant_cache_find(const char *key) MUST_USE;

/** Puts an entry (borrowed), or removes it when NULL; expired ones go along. Failure is silent: it costs a negotiation.
 */
void grant_cache_store(const char *key, json_t *entry);

/** Removes all entries whose sandbox is `sandbox_id`. */
void grant_cache_drop_sandbox(const char *sandbox_id);
