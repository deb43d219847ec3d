/** policy.h - what the launcher lets the front have made: judged against root's own settings, whatever the front says.
 */
#pragma once

#include "sandboxd/front_launcher/front_launcher.h"
#include "sandboxd/isolation/isolation.h"
#include "sandboxd/launcher/settings.h"

/** What it goes by; borrowed. */
struct policy {
    const struct settings *settings;
    const struct isolation_offer *offer;
    bool storage_is_memory; /* what is written counts as memory: a disk must leave some */
};

/** Judges a request; *in_force gets the limits with defaults filled in. ERROR_INVALID names the field and what
 *  is allowed, also what the isolation cannot have. Template, snapshot and volumes are judged by those who have them.
 */
bool policy_judge(const struct policy *policy, const struct fl_prepare *prepare, int64_t now_wall_ms,
                  struct fl_limits *in_force, struct error *err) MUST_USE;

/** Whether a sandbox of that backend may have what the bit of enum isolation_lack stands for: ERROR_INVALID. */
bool policy_judge_lack(const struct isolation_backend *backend, enum isolation_lack asked, struct error *err) MUST_USE;

/** Judges other limits for a living sandbox: a 0 in `asked` leaves that of `now`. */
bool policy_judge_limits(const struct policy *policy, const struct fl_limits *now, const struct fl_limits *asked,
                         struct fl_limits *in_force, struct error *err) MUST_USE;

/** Judges where a sandbox is to go: ERROR_FORBIDDEN beyond egress_max, ERROR_INVALID for what nobody may reach. */
bool policy_judge_network(const struct settings *settings, const struct fl_network *network,
                          struct error *err) MUST_USE;

/** Judges a hard deadline: whoever moves it, and however often, a sandbox ends by itself so soon after the last time.
 *  ERROR_INVALID. */
bool policy_judge_deadline(const struct settings *settings, int64_t now_wall_ms, int64_t deadline_wall_ms,
                           struct error *err) MUST_USE;
