/** policy.h - what a role, and of it a human or an agent, may have (protocol.md, 2): asked by the rules. Ledger thread,
 *  but where it says otherwise. */
#pragma once

#include "negotiator/leasing/leasing.h"
#include "negotiator/leasing/policy/quota.h"

/** Who asks, as policy sees him. */
struct policy_subject {
    enum role role;
    const char *principal; /* whose things it is about */
    const char *actor;     /* "human", "human:<id>", "agent:<id>" */
};

/** The caller, acting as `actor` (NULL or "": what his key pins, else human). It borrows from both. */
struct policy_subject policy_subject(const struct caller *caller, const char *actor) MUST_USE;

/** What he may have at most in a token. */
void policy_scopes(const struct leasing *leasing, const struct policy_subject *who, struct scope_set *allowed);
/** The longest such a token may be valid, in s. */
int64_t policy_ttl_max(const struct leasing *leasing, const struct policy_subject *who) MUST_USE;

/** Whether he may begin with the template; the refusal says what he may. */
bool policy_check_template(const struct leasing *leasing, const struct policy_subject *who, const char *name,
                           struct error *refusal) MUST_USE;
/** Whether he may let a sandbox reach so much; `network` as a row has it, NULL: nothing. */
bool policy_check_egress(const struct leasing *leasing, const struct policy_subject *who, const json_t *network,
                         struct error *refusal) MUST_USE;
/** Whether sandboxes that he negotiates may run commands as root. */
bool policy_gives_root(const struct leasing *leasing, const struct policy_subject *who) MUST_USE;
