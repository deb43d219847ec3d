/** remote_metrics.h - what a sandbox uses, by its own node's word: once, or as a stream. Neither wakes a paused one.
 *  Blocks; any thread. */
#pragma once

#include "clients/c/grant.h"

#include "shared/base/error.h"

#include <jansson.h>
#include <stdbool.h>

/** {"cpu": {"limit_milli", "used_ms"}, "memory": {...}, "pids", "disk", "commands", "output", "open_files", "paused",
 *  "started_at", "uptime_ms"}; the caller's. Errors of a use of the grant. */
bool remote_metrics_get(const struct grant *grant, json_t **metrics, struct error *err) MUST_USE;

/** The same every `interval_s` (1..60) until `visit` says false or the stream ends, as it does when the token does:
 * true for both, *seen then (may be NULL) says how many came. */
bool remote_metrics_watch(const struct grant *grant, unsigned interval_s,
                          bool (*visit)(void *cookie, const json_t *metrics), void *cookie, size_t *seen,
                          struct error *err) MUST_USE;
