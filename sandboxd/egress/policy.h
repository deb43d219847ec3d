/** policy.h - where one sandbox may go by name. Not locked: belongs to the loop. */
#pragma once

#include "sandboxd/launcher_egress/launcher_egress.h"

struct policy;

#define POLICY_PORTS 66 /* more than a sandbox has rules: each opens one, or the two of the web */

/** Of what EG_SANDBOX says. INVALID when an entry is none. The caller owns it. */
struct policy *policy_new(const struct eg_sandbox *sandbox, struct error *err) MUST_USE;

/** NULL is allowed. */
void policy_free(struct policy *policy);
DEFINE_AUTO(policy)

/** Whether any name may be looked up but denied ones, and none is pinned. */
bool policy_is_public(const struct policy *policy) MUST_USE;

/** Whether it denies a name: then what a name stands for, and which addresses it has, counts. */
bool policy_denies_names(const struct policy *policy) MUST_USE;

/** Whether two deny the same. */
bool policy_denies_alike(const struct policy *a, const struct policy *b) MUST_USE;

/** The TCP ports that rules open for a name (as host_name_read writes it), each once; 0: no rule has the name, or one
 *  that denies it is more specific; and of a public policy, which opens by no rule. */
size_t policy_ports(const struct policy *policy, const char *name, uint16_t ports[static POLICY_PORTS]) MUST_USE;

/** Whether that port of that name may be reached. */
bool policy_allows(const struct policy *policy, const char *name, uint16_t port) MUST_USE;

/** Whether the name may be looked up: some port of it may be reached. */
bool policy_has_name(const struct policy *policy, const char *name) MUST_USE;

/** Whether all ports of the name are denied: then another name that stands for it is none either. */
bool policy_denies_name(const struct policy *policy, const char *name) MUST_USE;

/** Whether the TCP port of an address (host order) is denied; port 0: whether all of its ports are. */
bool policy_denies_address(const struct policy *policy, uint32_t address, uint16_t port) MUST_USE;
