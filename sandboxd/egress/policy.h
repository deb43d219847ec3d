/** policy.h - where one sandbox may go by name. Not locked: belongs to the loop. */
#pragma once

#include "sandboxd/launcher_egress/launcher_egress.h"

struct policy;

#define POLICY_PORTS 66 /* more than a sandbox has rules: each opens one, or the two of the web */

/** Of what EG_SANDBOX says. INVALID when an entry is no rule of a name. The caller owns it. */
struct policy *policy_new(const struct eg_sandbox *sandbox, struct error *err) MUST_USE;

/** NULL is allowed. */
void policy_free(struct policy *policy);
DEFINE_AUTO(policy)

/** Whether any name may be looked up, and none is pinned. */
bool policy_is_public(const struct policy *policy) MUST_USE;

/** The TCP ports that rules open for a name (as host_name_read writes it), each once; 0: no rule has the name. */
size_t policy_ports(const struct policy *policy, const char *name, uint16_t ports[static POLICY_PORTS]) MUST_USE;

/** Whether a rule opens that port of that name. */
bool policy_allows(const struct policy *policy, const char *name, uint16_t port) MUST_USE;
