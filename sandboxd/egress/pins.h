/** pins.h - which addresses a sandbox was told for which names, for as long as they hold: a connection to an address is
 *  let through only for a name that has it. Time is passed in (CLOCK_BOOTTIME, ns). Not locked: belongs to the loop. */
#pragma once

#include "sandboxd/egress/host_name.h"

#include <stdint.h>

#define PINS_MAX 1024 /* of one sandbox; beyond, the one that ends first makes room */

struct pins;

struct pins *pins_new(void) MUST_USE;
/** NULL is allowed. */
void pins_free(struct pins *pins);

/** Notes that the name (as host_name_read writes it) has the address (network order) until `expires_ns`; never shortens
 *  one that is there. */
void pins_add(struct pins *pins, const char *name, uint32_t address, uint64_t expires_ns, uint64_t now_ns);

/** When that ends; 0 when it is not so now. */
uint64_t pins_expiry(const struct pins *pins, const char *name, uint32_t address, uint64_t now_ns) MUST_USE;

/** Forgets all for which keep(cookie, name) is false, and what has ended. */
void pins_keep(struct pins *pins, bool (*keep)(void *cookie, const char *name), void *cookie, uint64_t now_ns);

/** Calls each(cookie, name, address, expires_ns), a name's one after another. The pins may not change meanwhile. */
void pins_each(struct pins *pins, void (*each)(void *cookie, const char *name, uint32_t address, uint64_t expires_ns),
               void *cookie);
