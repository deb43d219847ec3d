/** clock.h - the times we use. Wall time is for what is stored and shown, boot time for every timer. */
#pragma once

#include "shared/base/cleanup.h"

#include <stdbool.h>
#include <stdint.h>

/** CLOCK_REALTIME, milliseconds since 1970 UTC. */
int64_t clock_wall_ms(void) MUST_USE;

/** CLOCK_BOOTTIME, ns: goes on while the machine sleeps, is never set back. */
uint64_t clock_boot_ns(void) MUST_USE;

/** CLOCK_MONOTONIC, ns: for measuring. */
uint64_t clock_monotonic_ns(void) MUST_USE;

#define CLOCK_TEXT_BYTES 25

/** RFC 3339 UTC with milliseconds, "2026-11-22T01:02:03.004Z" and a NUL. Years 1970..9999. */
void clock_format(char to[static CLOCK_TEXT_BYTES], int64_t wall_ms);

/** RFC 3339 as clock_format writes it (milliseconds may be missing); false when it is not. */
bool clock_parse(const char *text, int64_t *wall_ms) MUST_USE;

/** The kernel's boot id (proc(5), /proc/sys/kernel/random/boot_id): 36 characters and a NUL; "" when unreadable. */
#define CLOCK_BOOT_ID_BYTES 37
void clock_boot_id(char to[static CLOCK_BOOT_ID_BYTES]);
