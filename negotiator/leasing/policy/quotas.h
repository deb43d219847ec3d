/** quotas.h - how much each principal, and all of them, have: counted in rows, in the change that makes, changes or
 * ends a sandbox, so that nothing is scanned and no two can both have the last one.
 *
 *    used/<principal>, meta/used    {"sandboxes", "cpu_milli", "memory_mb", "disk_mb", "paced_until_us"}
 *
 *  A sandbox counts from its row on until it has ended, also paused, and while it is being taken down. A start counts
 *  anew. What a change of limits asks its node for is held meanwhile in memory. Ledger thread. */
#pragma once

#include "negotiator/leasing/policy/policy.h"
#include "negotiator/leasing/store.h"

/** What is asked for and not yet in the rows. Embedded; zero is nothing. Private. */
struct quota_reservation {
    struct quota_reservation *next;
    bool is_held;
    char principal[PRINCIPAL_BYTES];
    struct resources more; /* only what becomes more */
};

/** Counts a new sandbox in. QUOTA when the principal's, the key's or the deployment's quota has no room for it, with
 *  *retry_after_s when waiting alone helps (else 0). False with no refusal: the store failed. */
bool quota_take(struct work *work, const struct policy_subject *who, const struct sandbox *sandbox,
                unsigned *retry_after_s, struct error *refusal) MUST_USE;
/** It has other resources now. */
bool quota_adjust(struct work *work, const struct sandbox *sandbox, const struct resources *before) MUST_USE;
/** It has ended. */
bool quota_release(struct work *work, const struct sandbox *sandbox) MUST_USE;

/** Holds what `asked` (0: as it is) is more than the sandbox has, until quota_unreserve; what this reservation held
 *  before goes first. QUOTA as above. */
bool quota_reserve(struct work *work, const struct policy_subject *who, const struct sandbox *sandbox,
                   const struct resources *asked, struct quota_reservation *reservation,
                   struct error *refusal) MUST_USE;
/** Nothing held is fine. */
void quota_unreserve(struct leasing *leasing, struct quota_reservation *reservation);

/** The disk of a sandbox that asked for none, in MiB: under a quota of disks it has to be known, 0: it need not. */
int64_t quota_disk_mb(const struct leasing *leasing, const struct policy_subject *who) MUST_USE;

/** Counts all that lives anew; once a start. */
bool quotas_recount(struct work *work) MUST_USE;

/** As policy_explain, of a new sandbox of these resources; `used` is what there is already. */
bool quota_explain(struct work *work, const struct policy_subject *who, const struct resources *asked,
                   void (*told)(void *cookie, const struct policy_finding *finding, int64_t used),
                   void *cookie) MUST_USE;
