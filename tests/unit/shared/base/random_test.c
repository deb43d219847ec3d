/* random_test.c - the shape of ids, bounds, and that no letter is favoured. */
#include "shared/base/random.h"
#include "tests/unit/check.h"

static void test_ids(void)
{
    char id[RANDOM_ID_BYTES];
    char other[RANDOM_ID_BYTES];
    random_id(id, "sbx");
    random_id(other, "sbx");
    CHECK(strlen(id) == 24 && strncmp(id, "sbx_", 4) == 0 && strcmp(id, other) != 0);
    CHECK(random_is_id(id, "sbx") && !random_is_id(id, "lse") && !random_is_id(id, "sb"));
    random_id(other, "p");
    CHECK(strlen(other) == 22 && random_is_id(other, "p"));
    CHECK(!random_is_id(NULL, "sbx") && !random_is_id("", "sbx") && !random_is_id("sbx_", "sbx"));
    CHECK(random_is_id("sbx_0123456789abcdefghij", "sbx"));
    CHECK(!random_is_id("sbx_0123456789abcdefghi", "sbx"));
    CHECK(!random_is_id("sbx_0123456789abcdefghijk", "sbx"));
    CHECK(!random_is_id("sbx_0123456789abcdefghi/", "sbx"));
    CHECK(!random_is_id("sbx_0123456789Abcdefghij", "sbx"));
    CHECK(!random_is_id("sbx_../../../../../../..", "sbx"));
}

static void test_even(void)
{
    unsigned seen[256] = {0};
    char id[RANDOM_ID_BYTES];
    for (int i = 0; i < 36000; i++) {
        random_id(id, "x");
        for (int at = 2; id[at]; at++)
            seen[(unsigned char)id[at]]++;
    }
    for (const char *c = "abcdefghijklmnopqrstuvwxyz0123456789"; *c; c++)
        CHECK(seen[(unsigned char)*c] > 19000 && seen[(unsigned char)*c] < 21000); /* 20000 expected, 141 standard */
    unsigned below[3] = {0};
    for (int i = 0; i < 3000; i++) {
        uint32_t value = random_below(3);
        CHECK(value < 3);
        below[value % 3]++;
    }
    for (int i = 0; i < 3; i++)
        CHECK(below[i] > 800 && below[i] < 1200);
    CHECK(random_below(1) == 0);
    for (int i = 0; i < 100; i++)
        CHECK(random_below(0x80000001U) <= 0x80000000U);
}

int main(void)
{
    test_ids();
    test_even();
    unsigned char bytes[300] = {0};
    random_bytes(bytes, sizeof bytes - 1);
    int zeros = 0;
    for (size_t i = 0; i < sizeof bytes - 1; i++)
        zeros += bytes[i] == 0;
    CHECK(zeros < 20 && bytes[299] == 0);
    random_bytes(bytes, 0);
    return check_done();
}
