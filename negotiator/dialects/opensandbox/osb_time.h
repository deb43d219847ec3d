/** osb_time.h - RFC 3339 as clients of all languages write it. Private to this folder. */
#pragma once

#include "shared/base/cleanup.h"

#include <stdbool.h>
#include <stdint.h>

/** "2026-01-01T00:00:00.123456+02:00", with any number of decimals or none, and Z or an offset; in ms since 1970 UTC,
 *  what is beyond them cut. Years 1970 to 9999. */
bool osb_time_parse(const char *text, int64_t *wall_ms) MUST_USE;
