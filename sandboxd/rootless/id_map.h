/** id_map.h - the ids of a user namespace that an ordinary user runs sandboxes in (user_namespaces(7)):
 *
 *  inside 0          the user
 *         1 ..       slots, ID_MAP_SLOT_STEP ids each, without gaps between them
 *
 *  Of a slot a sandbox has all but the last (65535, which is nobody's by old custom: (uint16_t)-1); the last one of the
 *  first slot is the front's. So Debian's 65,536 subordinate ids are enough for one sandbox. */
#pragma once

#include "sandboxd/rootless/subordinate.h"
#include "shared/base/error.h"

#include <stdbool.h>

#define ID_MAP_SLOT_FIRST  1
#define ID_MAP_SLOT_STEP   65536
#define ID_MAP_SLOT_IDS    65535
#define ID_MAP_FRONT       (ID_MAP_SLOT_FIRST + ID_MAP_SLOT_IDS)
#define ID_MAP_EXTENTS_MAX (SUBORDINATE_RANGES_MAX + 1)

/** One line of a map. */
struct id_map_extent {
    uint32_t inside, outside, count;
};

struct id_map {
    size_t count;
    struct id_map_extent list[ID_MAP_EXTENTS_MAX];
};

/** How many slots the ranges hold: a slot lies within one range. */
uint32_t id_map_room(const struct subordinate_ranges *ranges) MUST_USE;

/** The map of a user `own` with `slots` slots, at most id_map_room. */
void id_map_plan(const struct subordinate_ranges *ranges, uint32_t own, uint32_t slots, struct id_map *map);

/** What the kernel shows in /proc/PID/uid_map. ERROR_INVALID for what it would not write. */
bool id_map_parse(const char *text, struct id_map *map, struct error *err) MUST_USE;

/** Whether it is that of the first user namespace: each id is itself. */
bool id_map_is_whole(const struct id_map *map) MUST_USE;

/** How many slots, from the first on, lie in it, each within one extent as the kernel wants it; at most `max`. */
uint32_t id_map_slots(const struct id_map *map, uint32_t max) MUST_USE;

/** The host's id of `inside`; UINT32_MAX when it is in no extent. */
uint32_t id_map_outside(const struct id_map *map, uint32_t inside) MUST_USE;
