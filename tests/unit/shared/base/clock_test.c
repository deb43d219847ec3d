/* clock_test.c - times written and read, against glibc's own calendar. */
#include "shared/base/clock.h"
#include "tests/unit/check.h"

#include <time.h>

static void check_against_libc(int64_t wall_ms)
{
    char ours[CLOCK_TEXT_BYTES];
    char theirs[64];
    clock_format(ours, wall_ms);
    time_t seconds = (time_t)(wall_ms / 1000);
    struct tm parts;
    gmtime_r(&seconds, &parts);
    size_t length = strftime(theirs, sizeof theirs, "%Y-%m-%dT%H:%M:%S", &parts);
    snprintf(theirs + length, sizeof theirs - length, ".%03dZ", (int)(wall_ms % 1000));
    CHECK_TEXT(ours, theirs);
    int64_t again = -1;
    CHECK(clock_parse(ours, &again) && again == wall_ms);
}

static void test_calendar(void)
{
    for (int64_t wall_ms = 0; wall_ms < 253402300800000; wall_ms += 86399999LL * 97)
        check_against_libc(wall_ms);
    for (int64_t day = 0; day < 150000; day++) /* every day to the year 2380: all leap rules */
        check_against_libc(day * 86400000 + 86399999);
    char text[CLOCK_TEXT_BYTES];
    clock_format(text, -5);
    CHECK_TEXT(text, "1970-01-01T00:00:00.000Z");
    clock_format(text, INT64_MAX);
    CHECK_TEXT(text, "9999-12-31T23:59:59.999Z");
}

static void test_parse(void)
{
    int64_t wall_ms = 5;
    CHECK(clock_parse("2026-11-22T01:02:03.004Z", &wall_ms) && wall_ms == 1795309323004);
    CHECK(clock_parse("2026-11-22T01:02:03Z", &wall_ms) && wall_ms == 1795309323000);
    static const char *const BAD[] = {"",
                                      "2026-11-22",
                                      "2026-11-22T01:02:03",
                                      "2026-11-22 01:02:03Z",
                                      "2026-11-22T01:02:03.4Z",
                                      "2026-11-22T01:02:03.004+00:00",
                                      "2026-11-22T01:02:03.004Z ",
                                      "2026-02-29T01:02:03Z",
                                      "2026-00-10T01:02:03Z",
                                      "2026-13-10T01:02:03Z",
                                      "2026-10-00T01:02:03Z",
                                      "2026-04-31T01:02:03Z",
                                      "2026-11-22T24:00:00Z",
                                      "2026-11-22T01:60:00Z",
                                      "2026-11-22T01:02:60Z",
                                      "1969-12-31T23:59:59Z",
                                      "2026-11-2aT01:02:03Z",
                                      "-026-11-22T01:02:03Z"};
    for (size_t i = 0; i < sizeof BAD / sizeof BAD[0]; i++)
        CHECK(!clock_parse(BAD[i], &wall_ms));
    CHECK(!clock_parse(NULL, &wall_ms));
    CHECK(wall_ms == 1795309323000);
}

int main(void)
{
    test_calendar();
    test_parse();
    CHECK(clock_wall_ms() / 1000 - (int64_t)time(NULL) <= 1 && (int64_t)time(NULL) - clock_wall_ms() / 1000 <= 1);
    uint64_t before = clock_boot_ns();
    CHECK(clock_boot_ns() >= before && before >= clock_monotonic_ns() / 2);
    before = clock_monotonic_ns();
    nanosleep(&(struct timespec){.tv_nsec = 2000000}, NULL);
    uint64_t slept = clock_monotonic_ns() - before;
    CHECK(slept >= 2000000 && slept < 5000000000U);
    char id[CLOCK_BOOT_ID_BYTES];
    char again[CLOCK_BOOT_ID_BYTES];
    clock_boot_id(id);
    clock_boot_id(again);
    CHECK(strlen(id) == CLOCK_BOOT_ID_BYTES - 1);
    CHECK_TEXT(id, again);
    return check_done();
}
