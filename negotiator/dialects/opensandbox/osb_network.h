/** osb_network.h - OpenSandbox's egress policy, {"defaultAction", "egress": [{"action", "target"}]}, and `network` of
 * the core (egress_rule.h): one in terms of the other. Pure.
 *
 *  A policy is a list where the first rule that has a name decides, and what none has goes by the default. A later rule
 *  whose names an earlier one has all is never asked: it is left out. Of those that stay the most specific that has a
 *  name is also the first, which is how the core decides; so both say the same. The core keeps no order: a policy is
 *  shown with the most specific rules first.
 *
 *      defaultAction allow      "public": TCP 80, 443 and 53 and UDP 53 of public addresses; the rules that allow are
 *                               exceptions of those that deny
 *      defaultAction deny       "allow" with both lists; "none" without rules
 *
 *  A target is a name, "*.name", or what else an entry of the core may be (IPv4 addresses, networks, with a port). */
#pragma once

#include "shared/base/error.h"

#include <jansson.h>

/** `network` of a policy (NULL and null are {}: deny all). The caller owns it; NULL: INVALID names what is wrong. */
json_t *osb_network_read(const json_t *policy, struct error *err) MUST_USE;

/** The policy that a sandbox's `network` is (NULL: "none"). The caller owns it. */
json_t *osb_network_shown(const json_t *network) MUST_USE;

/** "deny_all", "allow_all" or "enforcing", of a `network`; static. */
const char *osb_network_mode(const json_t *network) MUST_USE;

/** `network` (NULL: "none") with [{"action", "target"}] before its own rules; of a target the first of the list counts,
 *  and nothing that was said of it before. At least one. The caller owns it; NULL: INVALID. */
json_t *osb_network_merge(const json_t *network, const json_t *rules, struct error *err) MUST_USE;

/** `network` without the rules of these targets, ["target", ...], at least one; one without a rule is fine. */
json_t *osb_network_remove(const json_t *network, const json_t *targets, struct error *err) MUST_USE;
