/** subordinate.h - which host ids a user was given beside its own: lines of /etc/subuid and /etc/subgid (subuid(5)). */
#pragma once

#include <stddef.h>
#include <stdint.h>

#define SUBORDINATE_RANGES_MAX 64

struct subordinate_range {
    uint32_t first, count; /* first > 0, count > 0, first + count <= UINT32_MAX */
};

struct subordinate_ranges {
    size_t count;
    struct subordinate_range list[SUBORDINATE_RANGES_MAX];
};

/** The ranges that `text` (of `size` bytes) gives to the login `name`, or to the decimal number `id`, in its order. A
 *  line that is not "owner:first:count" in plain decimals is passed over; so is a range that holds 0, `id` itself or
 *  an id of a range before it, for the kernel would not map it, and one beyond SUBORDINATE_RANGES_MAX. */
void subordinate_parse(const char *text, size_t size, const char *name, uint32_t id, struct subordinate_ranges *found);

/** The same of a file; none where it cannot be read. */
void subordinate_read(const char *path, const char *name, uint32_t id, struct subordinate_ranges *found);
