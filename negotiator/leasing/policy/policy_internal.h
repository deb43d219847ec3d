/** policy_internal.h - what the files of this folder share. */
#pragma once

#include "negotiator/leasing/leasing_internal.h"
#include "negotiator/leasing/policy/document.h"
#include "negotiator/leasing/policy/policy.h"

#include <pthread.h>

/** What is in force. Written on the ledger thread under `lock`, read there without it, elsewhere with it. */
struct policies {
    pthread_rwlock_t lock;
    json_t *settings;             /* owned */
    json_t *document;             /* owned; NULL: none */
    int64_t version, set_at;      /* of it; 0 */
    char set_by[PRINCIPAL_BYTES]; /* "" */
};

/** What the document or the settings say of a rule, or of a part of it ("quota", "sandboxes"; NULL: it has none).
 *  Borrowed; NULL: nothing is said, or null. */
json_t *policy_find(const struct policies *policies, const struct policy_subject *who, const char *rule,
                    const char *part, char where[static POLICY_WHERE_BYTES]) MUST_USE;

/** "role user", "role user as agent". */
void policy_subject_text(const struct policy_subject *who, char to[static 32]);

/** Whether the templates that he may have hold this one. */
bool policy_has_template(const struct policies *policies, const struct policy_subject *who, const char *name) MUST_USE;
