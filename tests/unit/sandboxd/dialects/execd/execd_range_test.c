/* execd_range_test.c - ranges as the daemon of OpenSandbox reads them. */
#include "sandboxd/dialects/execd/execd_range.h"

#include "tests/unit/check.h"

static void check_part(const char *text, uint64_t size, uint64_t offset, uint64_t length)
{
    uint64_t got_offset = 77, got_length = 77;
    CHECK(execd_range_read(text, size, &got_offset, &got_length) == EXECD_RANGE_PART);
    CHECK(got_offset == offset && got_length == length);
}

static void check_none(const char *text, uint64_t size, enum execd_range want)
{
    uint64_t offset = 77, length = 77;
    CHECK(execd_range_read(text, size, &offset, &length) == want);
    CHECK(offset == 77 && length == 77);
}

static void test_parts(void)
{
    check_part("bytes=0-0", 10, 0, 1);
    check_part("bytes=0-9", 10, 0, 10);
    check_part("bytes=3-", 10, 3, 7);
    check_part("bytes=9-99999999999", 10, 9, 1);
    check_part("bytes=-3", 10, 7, 3);
    check_part("bytes=-9223372036854775807", 10, 0, 10);
    check_part("bytes=5-6,0-1", 10, 5, 2);
    check_part("bytes=10-,-0,2-2", 10, 2, 1);
    check_part("bytes=, \t3 - 4 ,", 10, 3, 2);
    check_part("bytes=007-8", 10, 7, 2);
    check_part("bytes=0-9223372036854775807", INT64_MAX, 0, INT64_MAX);
}

static void test_others(void)
{
    static const char *const MALFORMED[] = {"",
                                            "bytes",
                                            "bytes 0-1",
                                            "Bytes=0-1",
                                            "items=0-1",
                                            "bytes=1",
                                            "bytes=-",
                                            "bytes=a-b",
                                            "bytes=2-1",
                                            "bytes=0x1-",
                                            "bytes=+1-",
                                            "bytes=--1",
                                            "bytes=1-2-3",
                                            "bytes=0-1,?",
                                            "bytes=9223372036854775808-",
                                            "bytes=99999999999999999999999-",
                                            "bytes=1 2-3"};
    for (size_t i = 0; i < sizeof MALFORMED / sizeof *MALFORMED; i++) {
        check_none(MALFORMED[i], 10, EXECD_RANGE_MALFORMED);
        check_none(MALFORMED[i], 0, EXECD_RANGE_MALFORMED);
    }
    check_none(NULL, 10, EXECD_RANGE_WHOLE);
    check_none("bytes=", 10, EXECD_RANGE_WHOLE);
    check_none("bytes=,,", 10, EXECD_RANGE_WHOLE);
    check_none("bytes=0-", 0, EXECD_RANGE_WHOLE);
    check_none("bytes=-5", 0, EXECD_RANGE_WHOLE);
    check_none("bytes=10-", 10, EXECD_RANGE_BEYOND);
    check_none("bytes=-0", 10, EXECD_RANGE_BEYOND);
    check_none("bytes=10-11,20-", 10, EXECD_RANGE_BEYOND);
}

int main(void)
{
    test_parts();
    test_others();
    return check_done();
}
