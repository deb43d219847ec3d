/* The map of an ordinary user: whole slots without gaps inside, each within one range outside, as the kernel wants it.
 */
#include "sandboxd/rootless/id_map.h"

#include "shared/base/text.h"
#include "tests/unit/check.h"

#include <string.h>

static void test_plan(void)
{
    const struct subordinate_ranges ranges = {
        .count = 4, .list = {{100000, 65535}, {200000, 65536}, {300000, 200000}, {600000, 65536}}};
    struct id_map map;
    CHECK(id_map_room(&ranges) == 1 + 3 + 1); /* the first is one id too small */
    id_map_plan(&ranges, 1001, 5, &map);
    CHECK(map.count == 4);
    CHECK(map.list[0].inside == 0 && map.list[0].outside == 1001 && map.list[0].count == 1);
    CHECK(map.list[1].inside == 1 && map.list[1].outside == 200000 && map.list[1].count == 65536);
    CHECK(map.list[2].inside == 65537 && map.list[2].outside == 300000 && map.list[2].count == 3 * 65536);
    CHECK(map.list[3].inside == 1 + 4 * 65536 && map.list[3].outside == 600000);
    CHECK(id_map_slots(&map, 4000) == 5 && id_map_slots(&map, 3) == 3);
    CHECK(id_map_outside(&map, 0) == 1001 && id_map_outside(&map, 65536) == 265535);
    CHECK(id_map_outside(&map, 1 + 5 * 65536) == UINT32_MAX);
    id_map_plan(&ranges, 1001, 2, &map);
    CHECK(map.count == 3 && map.list[2].count == 65536 && id_map_slots(&map, 4000) == 2);
    CHECK(!id_map_is_whole(&map));
}

/* Nobody in a sandbox is the user, the front, or somebody of another sandbox. */
static void test_slots_are_apart(void)
{
    const struct subordinate_ranges ranges = {.count = 1, .list = {{100000, 3 * 65536}}};
    struct id_map map;
    id_map_plan(&ranges, 1001, 3, &map);
    for (uint32_t slot = 0; slot < 3; slot++) {
        uint32_t first = ID_MAP_SLOT_FIRST + slot * ID_MAP_SLOT_STEP;
        uint32_t last = first + ID_MAP_SLOT_IDS - 1;
        CHECK(first > 0 && (ID_MAP_FRONT < first || ID_MAP_FRONT > last));
        CHECK(last < ID_MAP_SLOT_FIRST + (slot + 1) * ID_MAP_SLOT_STEP);
        CHECK(id_map_outside(&map, last) - id_map_outside(&map, first) == ID_MAP_SLOT_IDS - 1);
    }
    CHECK(id_map_outside(&map, ID_MAP_FRONT) == 100000 + 65535);
}

static void test_what_the_kernel_shows(void)
{
    struct id_map map;
    struct error err = {0};
    CHECK(id_map_parse("         0          0 4294967295\n", &map, &err) && id_map_is_whole(&map));
    CHECK(id_map_slots(&map, 4000) == 4000);
    CHECK(id_map_parse("         0       1001          1\n         1     100000      65536\n", &map, &err));
    CHECK(map.count == 2 && !id_map_is_whole(&map) && id_map_slots(&map, 4000) == 1);
    CHECK(id_map_parse("0 100000 65536\n", &map, &err) && id_map_slots(&map, 4000) == 0); /* a container's */
    CHECK(id_map_parse("0 100000 65537\n", &map, &err) && id_map_slots(&map, 4000) == 1);
    /* One slot's ids in two extents: no child could be mapped to them by one line. */
    CHECK(id_map_parse("0 1001 1\n1 100000 32768\n32769 200000 32768\n", &map, &err) && id_map_slots(&map, 4000) == 0);
    CHECK(id_map_parse("", &map, &err) && map.count == 0 && id_map_slots(&map, 4000) == 0 && !id_map_is_whole(&map));
}

static void test_what_it_does_not(void)
{
    static const char *const TEXTS[] = {
        "0",         "0 0\n",    "0 0 1",      "0 0 1 1\n", "a 0 1\n", "0 -1 1\n", "0 0 4294967296\n",
        "0 0 1\n\n", "0\t0 1\n", "0 0 1\nrest"};
    struct error err = {0};
    struct id_map map;
    for (size_t i = 0; i < sizeof TEXTS / sizeof TEXTS[0]; i++)
        CHECK(!id_map_parse(TEXTS[i], &map, &err));
    AUTO_TEXT many = {0};
    for (unsigned i = 0; i <= ID_MAP_EXTENTS_MAX; i++)
        text_append_format(&many, "%u %u 1\n", i, i + 7);
    CHECK(!id_map_parse(many.data, &map, &err));
}

int main(void)
{
    test_plan();
    test_slots_are_apart();
    test_what_the_kernel_shows();
    test_what_it_does_not();
    return check_done();
}
