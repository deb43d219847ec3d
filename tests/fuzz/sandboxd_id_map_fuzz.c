/* sandboxd_id_map_fuzz.c - /etc/subuid as anybody may have written it, and a map as /proc shows it: ranges apart from
 * each other and from the user's own id, slots within them, and a map that the kernel would take. Input: a map's text,
 * NUL, the file. */
#include "sandboxd/rootless/id_map.h"
#include "shared/base/memory.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { OWN = 1000 };

static void require(bool holds)
{
    if (!holds)
        abort();
}

static void check_ranges(const struct subordinate_ranges *ranges)
{
    require(ranges->count <= SUBORDINATE_RANGES_MAX);
    for (size_t i = 0; i < ranges->count; i++) {
        const struct subordinate_range *one = &ranges->list[i];
        require(one->first > 0 && one->count > 0 && (uint64_t)one->first + one->count <= UINT32_MAX);
        require(OWN < one->first || OWN >= one->first + one->count);
        for (size_t j = 0; j < i; j++) {
            const struct subordinate_range *other = &ranges->list[j];
            require(one->first + one->count <= other->first || other->first + other->count <= one->first);
        }
    }
}

/* No id of either side twice: each slot's ids lead to ids that are the user's. */
static void check_map(const struct id_map *map, uint32_t slots)
{
    require(map->count >= 1 && map->count <= ID_MAP_EXTENTS_MAX && map->list[0].inside == 0);
    for (size_t i = 0; i < map->count; i++)
        for (size_t j = 0; j < i; j++) {
            const struct id_map_extent *a = &map->list[i], *b = &map->list[j];
            require(a->inside + a->count <= b->inside || b->inside + b->count <= a->inside);
            require((uint64_t)a->outside + a->count <= b->outside || (uint64_t)b->outside + b->count <= a->outside);
        }
    require(id_map_slots(map, slots) == slots);
    for (uint32_t slot = 0; slot < slots && slot < 8; slot++) {
        uint32_t first = ID_MAP_SLOT_FIRST + slot * ID_MAP_SLOT_STEP;
        uint32_t outside = id_map_outside(map, first);
        require(outside != UINT32_MAX && outside != OWN && outside != 0);
        require(id_map_outside(map, first + ID_MAP_SLOT_IDS - 1) == outside + ID_MAP_SLOT_IDS - 1);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const uint8_t *end = size ? memchr(data, '\0', size) : NULL;
    size_t length = end ? (size_t)(end - data) : size;
    AUTO_FREE char *text = memory_copy(data, length);
    struct id_map seen, planned;
    struct error err = {0};
    if (id_map_parse(text, &seen, &err)) {
        require(seen.count <= ID_MAP_EXTENTS_MAX);
        (void)id_map_is_whole(&seen);
        (void)id_map_slots(&seen, 100);
        (void)id_map_outside(&seen, ID_MAP_FRONT);
    } else {
        require(err.kind == ERROR_INVALID);
    }
    if (!end)
        return 0;
    struct subordinate_ranges ranges = {.count = 0};
    AUTO_FREE char *file = memory_copy(end + 1, size - length - 1);
    subordinate_parse(file, size - length - 1, "ada", OWN, &ranges);
    check_ranges(&ranges);
    uint32_t room = id_map_room(&ranges), slots = room < 100 ? room : 100;
    if (slots == 0)
        return 0;
    id_map_plan(&ranges, OWN, slots, &planned);
    check_map(&planned, slots);
    return 0;
}
