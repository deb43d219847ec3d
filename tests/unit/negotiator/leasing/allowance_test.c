#include "negotiator/leasing/allowance.h"

#include "tests/unit/check.h"

#include <stdio.h>

static const struct allowance_limit LIMIT = {.most = 3, .per_hour = 6};
static const int64_t START = 1800000000000, TEN_MINUTES = 600000;

static void test_so_much_at_once(void)
{
    struct allowance *allowance = allowance_new();
    for (int i = 0; i < 3; i++)
        CHECK(allowance_take(allowance, "ada", LIMIT, 1, START));
    CHECK(!allowance_take(allowance, "ada", LIMIT, 1, START));
    CHECK(allowance_take(allowance, "bob", LIMIT, 3, START)); /* each for itself */
    CHECK(!allowance_take(allowance, "eve", LIMIT, 4, START));
    CHECK(allowance_take(allowance, "eve", LIMIT, 3, START)); /* nothing was taken by the no */
    allowance_free(allowance);
}

/* However often it is asked, what drains is neither lost nor rounded up. */
static void test_it_drains(void)
{
    struct allowance *allowance = allowance_new();
    CHECK(allowance_take(allowance, "ada", LIMIT, 3, START));
    for (int64_t at = 1; at < TEN_MINUTES; at += 7)
        CHECK(!allowance_take(allowance, "ada", LIMIT, 1, START + at));
    CHECK(allowance_take(allowance, "ada", LIMIT, 1, START + TEN_MINUTES));
    CHECK(!allowance_take(allowance, "ada", LIMIT, 1, START + TEN_MINUTES));
    CHECK(allowance_take(allowance, "ada", LIMIT, 3, START + TEN_MINUTES * 10));
    allowance_free(allowance);
}

static void test_the_clock_is_set_back(void)
{
    struct allowance *allowance = allowance_new();
    CHECK(allowance_take(allowance, "ada", LIMIT, 3, START));
    CHECK(!allowance_take(allowance, "ada", LIMIT, 1, START - 10 * TEN_MINUTES));
    CHECK(!allowance_take(allowance, "ada", LIMIT, 1, START - 10 * TEN_MINUTES));
    CHECK(allowance_take(allowance, "ada", LIMIT, 1, START - 9 * TEN_MINUTES));
    allowance_free(allowance);
}

/* Those that have drained go; the others are not forgotten. */
static void test_many(void)
{
    struct allowance *allowance = allowance_new();
    char who[32];
    const struct allowance_limit slow = {.most = 3, .per_hour = 1};
    CHECK(allowance_take(allowance, "ada", slow, 3, START));
    for (int i = 0; i < 9000; i++) {
        snprintf(who, sizeof who, "fam%d", i);
        CHECK(allowance_take(allowance, who, LIMIT, 1, START + i * 1000));
    }
    CHECK(!allowance_take(allowance, who, LIMIT, 3, START + 9000 * 1000));
    CHECK(!allowance_take(allowance, "ada", slow, 3, START + 9000 * 1000));
    CHECK(allowance_take(allowance, "ada", slow, 2, START + 9000 * 1000));
    allowance_free(allowance);
}

int main(void)
{
    test_so_much_at_once();
    test_it_drains();
    test_the_clock_is_set_back();
    test_many();
    return check_done();
}
