/** document.h - the policy document: which fields it may have, and what the settings make of it where it says nothing.
 *  Pure; any thread.
 *
 *   {"roles": {"user": {RULES}, "user:agent": {RULES}, "admin": {RULES}, ...},
 *    "principals": {"ada": {RULES, "human": {RULES}, "agent": {RULES}}, ...},
 *    "deployment": {"quota": {...}}}
 *
 *  RULES: scopes, ttl_max, templates, isolation, egress, egress_hosts, volumes {host, named, max_mb}, root,
 * lifetime_max, idle_max, long, quota {sandboxes, cpu_milli, memory_mb, disk_mb, creates_per_minute}; each may be
 * missing. An amount that is null is not limited. */
#pragma once

#include "negotiator/leasing/leasing.h"

#define POLICY_DOCUMENT_BYTES (128 * 1024) /* of its one spelling */
#define POLICY_DIGEST_BYTES   65           /* hex of a BLAKE2b-256, with NUL */

/** Whether it is one. INVALID names the field by its path and what is allowed; TOO_LARGE. */
bool policy_document_check(json_t *document, struct error *err) MUST_USE;

/** Its one spelling: no blanks, names sorted. The caller frees. */
char *policy_document_text(const json_t *document) MUST_USE;
/** The hash of that. */
void policy_document_digest(const json_t *document, char to[static POLICY_DIGEST_BYTES]);

/** What holds where nothing is said, as a document: of the settings; the caller owns it. */
json_t *policy_document_of(const struct leasing_options *options) MUST_USE;
