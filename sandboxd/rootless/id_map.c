#include "sandboxd/rootless/id_map.h"

#include "shared/base/text.h"

#include <string.h>

uint32_t id_map_room(const struct subordinate_ranges *ranges)
{
    uint32_t slots = 0;
    for (size_t i = 0; i < ranges->count; i++)
        slots += ranges->list[i].count / ID_MAP_SLOT_STEP;
    return slots;
}

void id_map_plan(const struct subordinate_ranges *ranges, uint32_t own, uint32_t slots, struct id_map *map)
{
    uint32_t next = ID_MAP_SLOT_FIRST;
    *map = (struct id_map){.count = 1, .list = {{.inside = 0, .outside = own, .count = 1}}};
    for (size_t i = 0; i < ranges->count && slots > 0; i++) {
        uint32_t here = ranges->list[i].count / ID_MAP_SLOT_STEP;
        here = here < slots ? here : slots;
        if (here == 0)
            continue;
        uint32_t count = here * ID_MAP_SLOT_STEP;
        map->list[map->count++] =
            (struct id_map_extent){.inside = next, .outside = ranges->list[i].first, .count = count};
        next += count;
        slots -= here;
    }
}

/* One number, with the blanks before it. */
static bool take_number(const char **at, uint32_t *number)
{
    uint64_t value = 0;
    const char *digits = *at + strspn(*at, " ");
    size_t length = strspn(digits, "0123456789");
    if (!text_parse_u64(digits, length, UINT32_MAX, &value))
        return false;
    *number = (uint32_t)value;
    *at = digits + length;
    return true;
}

bool id_map_parse(const char *text, struct id_map *map, struct error *err)
{
    struct id_map read = {0};
    for (const char *at = text; *at;) {
        struct id_map_extent extent;
        if (read.count == ID_MAP_EXTENTS_MAX || !take_number(&at, &extent.inside) ||
            !take_number(&at, &extent.outside) || !take_number(&at, &extent.count) || *at != '\n')
            return error_set(err, ERROR_INVALID, "line %zu of a map of ids is not what the kernel writes",
                             read.count + 1);
        at++;
        read.list[read.count++] = extent;
    }
    *map = read;
    return true;
}

bool id_map_is_whole(const struct id_map *map)
{
    const struct id_map_extent *only = &map->list[0];
    return map->count == 1 && only->inside == 0 && only->outside == 0 && only->count == UINT32_MAX;
}

static const struct id_map_extent *extent_of(const struct id_map *map, uint32_t inside)
{
    for (size_t i = 0; i < map->count; i++) {
        if (inside >= map->list[i].inside && inside - map->list[i].inside < map->list[i].count)
            return &map->list[i];
    }
    return NULL;
}

uint32_t id_map_slots(const struct id_map *map, uint32_t max)
{
    uint32_t slots = 0;
    while (slots < max) {
        uint32_t first = ID_MAP_SLOT_FIRST + slots * ID_MAP_SLOT_STEP;
        const struct id_map_extent *extent = extent_of(map, first);
        if (!extent || extent->count - (first - extent->inside) < ID_MAP_SLOT_STEP)
            break;
        slots++;
    }
    return slots;
}

uint32_t id_map_outside(const struct id_map *map, uint32_t inside)
{
    const struct id_map_extent *extent = extent_of(map, inside);
    return extent ? extent->outside + (inside - extent->inside) : UINT32_MAX;
}
