/** policy.h - what the launcher lets the front have made: judged against root's own settings, whatever the front says.
 */
#pragma once

#include "sandboxd/front_launcher/front_launcher.h"
#include "sandboxd/launcher/settings.h"

/** Judges a request; *in_force gets the limits with defaults filled in. ERROR_INVALID names the field and what
 *  is allowed. */
bool policy_judge(const struct settings *settings, const struct fl_prepare *prepare, int64_t now_wall_ms,
                  struct fl_limits *in_force, struct error *err) MUST_USE;

/** Judges a new hard deadline of a sandbox made at created_wall_ms. ERROR_INVALID. */
bool policy_judge_deadline(const struct settings *settings, int64_t created_wall_ms, int64_t deadline_wall_ms,
                           struct error *err) MUST_USE;
