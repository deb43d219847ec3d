/* Entity tags, preconditions, ranges and pieces: what they mean, and what is refused or ignored. */
#include "sandboxd/dialects/native/files/conditions.h"

#include "tests/unit/check.h"

static const struct files_version V = {.inode = 0x1f, .size = 1000, .mtime_ns = 1795337377123456789, .ctime_ns = -1};
static const char TAG[] = "\"1f-3e8-18ea51d5176cd715-ffffffffffffffff\"";
static const char DATE[] = "Sun, 22 Nov 2026 08:49:37 GMT";

static void test_etags(void)
{
    char text[CONDITIONS_ETAG_BYTES];
    struct files_version back = {0};
    conditions_etag(text, &V);
    CHECK(conditions_etag_read(text, &back));
    CHECK(memcmp(&back, &V, sizeof V) == 0);
    struct files_version largest = {UINT64_MAX, UINT64_MAX, -1, -1}, zero = {0};
    conditions_etag(text, &largest);
    CHECK(conditions_etag_read(text, &back) && memcmp(&back, &largest, sizeof back) == 0);
    conditions_etag(text, &zero);
    CHECK_TEXT(text, "\"0-0-0-0\"");
    CHECK(conditions_etag_read(text, &back));
    static const char *const BAD[] = {"",
                                      "\"",
                                      "0-0-0-0",
                                      "\"0-0-0\"",
                                      "\"0-0-0-0",
                                      "\"0-0-0-0-0\"",
                                      "\"00-0-0-0\"",
                                      "\"A-0-0-0\"",
                                      "\"-0-0-0\"",
                                      "\"0-0-0-0\" ",
                                      "W/\"0-0-0-0\"",
                                      "\"x\"",
                                      "\"10000000000000000-0-0-0\""};
    for (size_t i = 0; i < sizeof BAD / sizeof *BAD; i++)
        CHECK(!conditions_etag_read(BAD[i], &back));
}

static void test_dates(void)
{
    char text[CONDITIONS_DATE_BYTES];
    int64_t seconds = 0;
    conditions_date(text, V.mtime_ns);
    CHECK_TEXT(text, DATE);
    CHECK(conditions_date_read(text, &seconds) && seconds == 1795337377);
    conditions_date(text, -5);
    CHECK_TEXT(text, "Thu, 01 Jan 1970 00:00:00 GMT");
    conditions_date(text, INT64_MAX);
    CHECK(conditions_date_read(text, &seconds));
    static const char *const BAD[] = {"",
                                      "Sun, 22 Nov 2026 08:49:37",
                                      "Mon, 22 Nov 2026 08:49:37 GMT",
                                      "Sun, 22 Nvo 2026 08:49:37 GMT",
                                      "Sun, 32 Nov 2026 08:49:37 GMT",
                                      "Tue, 31 Feb 2026 08:49:37 GMT",
                                      "Sunday, 22-Nov-26 08:49:37 GMT",
                                      "Sun Nov 22 08:49:37 2026     ",
                                      "Sun, 22 Nov 2026 24:49:37 GMT"};
    for (size_t i = 0; i < sizeof BAD / sizeof *BAD; i++)
        CHECK(!conditions_date_read(BAD[i], &seconds));
}

static enum conditions_verdict judged(const char *match, const char *none, const char *modified, const char *unmodified)
{
    struct conditions asked = {
        .if_match = match, .if_none_match = none, .if_modified_since = modified, .if_unmodified_since = unmodified};
    return conditions_judge(&asked, &V);
}

static void test_verdicts(void)
{
    char own[CONDITIONS_ETAG_BYTES], list[300], weak[100];
    conditions_etag(own, &V);
    snprintf(list, sizeof list, "\"a,b\" , W/\"c\",%s", own);
    snprintf(weak, sizeof weak, "W/%s", own);
    CHECK(judged(NULL, NULL, NULL, NULL) == CONDITIONS_GO);
    CHECK(judged("*", NULL, NULL, NULL) == CONDITIONS_GO);
    CHECK(judged(own, NULL, NULL, NULL) == CONDITIONS_GO);
    CHECK(judged(list, NULL, NULL, NULL) == CONDITIONS_GO);
    CHECK(judged(weak, NULL, NULL, NULL) == CONDITIONS_FAILED);
    CHECK(judged("\"x\"", NULL, NULL, NULL) == CONDITIONS_FAILED);
    CHECK(judged("nonsense", NULL, NULL, NULL) == CONDITIONS_FAILED);
    CHECK_TEXT(own, TAG);
    CHECK(judged(NULL, "*", NULL, NULL) == CONDITIONS_NOT_MODIFIED);
    CHECK(judged(NULL, weak, NULL, NULL) == CONDITIONS_NOT_MODIFIED);
    CHECK(judged(NULL, list, NULL, NULL) == CONDITIONS_NOT_MODIFIED);
    CHECK(judged(NULL, "\"x\"", NULL, NULL) == CONDITIONS_GO);
    CHECK(judged(NULL, "\"x\"", DATE, NULL) == CONDITIONS_GO); /* the tag alone counts */
    CHECK(judged(NULL, NULL, DATE, NULL) == CONDITIONS_NOT_MODIFIED);
    CHECK(judged(NULL, NULL, "Sun, 22 Nov 2026 08:49:36 GMT", NULL) == CONDITIONS_GO);
    CHECK(judged(NULL, NULL, "nonsense", NULL) == CONDITIONS_GO);
    CHECK(judged(NULL, NULL, NULL, DATE) == CONDITIONS_GO);
    CHECK(judged(NULL, NULL, NULL, "Sun, 22 Nov 2026 08:49:36 GMT") == CONDITIONS_FAILED);
    CHECK(judged(NULL, NULL, NULL, "nonsense") == CONDITIONS_GO);
    CHECK(judged("\"x\"", "*", NULL, NULL) == CONDITIONS_FAILED);
}

static void check_range(const char *range, uint64_t length, enum conditions_part want, uint64_t offset, uint64_t size)
{
    struct conditions asked = {.range = range};
    struct files_version version = {.size = length};
    uint64_t got_offset = 0, got_size = 0;
    enum conditions_part got = conditions_range(&asked, &version, &got_offset, &got_size);
    if (got != want || got_offset != offset || got_size != size) {
        fprintf(stderr, "conditions_test: %s of %llu: %d %llu %llu\n", range ? range : "none",
                (unsigned long long)length, (int)got, (unsigned long long)got_offset, (unsigned long long)got_size);
        check_failures++;
    }
}

static void test_ranges(void)
{
    check_range(NULL, 10, CONDITIONS_WHOLE, 0, 0);
    check_range("bytes=0-0", 10, CONDITIONS_PART, 0, 1);
    check_range("bytes=0-", 10, CONDITIONS_PART, 0, 10);
    check_range("bytes=9-", 10, CONDITIONS_PART, 9, 1);
    check_range("bytes=10-", 10, CONDITIONS_UNSATISFIABLE, 0, 0);
    check_range("bytes=3-99999", 10, CONDITIONS_PART, 3, 7);
    check_range("bytes=3-5", 10, CONDITIONS_PART, 3, 3);
    check_range("bytes=-3", 10, CONDITIONS_PART, 7, 3);
    check_range("bytes=-30", 10, CONDITIONS_PART, 0, 10);
    check_range("bytes=-0", 10, CONDITIONS_UNSATISFIABLE, 0, 0);
    check_range("bytes=0-", 0, CONDITIONS_UNSATISFIABLE, 0, 0);
    check_range("bytes=-5", 0, CONDITIONS_WHOLE, 0, 0);
    static const char *const IGNORED[] = {"bytes=5-3",
                                          "bytes=0-1,4-5",
                                          "bytes=",
                                          "bytes=-",
                                          "bytes=a-b",
                                          "lines=0-1",
                                          "bytes 0-1",
                                          "bytes=0 -1",
                                          "bytes=+1-",
                                          "bytes=1",
                                          "0-1",
                                          "bytes=-1-2",
                                          "bytes=9223372036854775808-",
                                          "bytes=1-18446744073709551616"};
    for (size_t i = 0; i < sizeof IGNORED / sizeof *IGNORED; i++)
        check_range(IGNORED[i], 10, CONDITIONS_WHOLE, 0, 0);
    char own[CONDITIONS_ETAG_BYTES];
    conditions_etag(own, &V);
    uint64_t offset = 0, size = 0;
    struct conditions asked = {.range = "bytes=1-2", .if_range = own};
    CHECK(conditions_range(&asked, &V, &offset, &size) == CONDITIONS_PART);
    asked.if_range = DATE;
    CHECK(conditions_range(&asked, &V, &offset, &size) == CONDITIONS_PART);
    asked.if_range = "\"x\"";
    CHECK(conditions_range(&asked, &V, &offset, &size) == CONDITIONS_WHOLE);
}

static void test_changes(void)
{
    char own[CONDITIONS_ETAG_BYTES], two[200];
    conditions_etag(own, &V);
    snprintf(two, sizeof two, "%s, \"x\"", own);
    struct error err = {0};
    struct files_request request = {.flags = FILES_PARENTS};
    struct conditions asked = {.if_match = own};
    CHECK(conditions_for_change(&asked, &request, &err));
    CHECK(request.flags == (FILES_PARENTS | FILES_IF_MATCH) && request.match.inode == V.inode);
    request = (struct files_request){0};
    asked = (struct conditions){.if_match = "*"};
    CHECK(conditions_for_change(&asked, &request, &err) && request.flags == FILES_IF_ANY);
    request = (struct files_request){0};
    asked = (struct conditions){.if_none_match = "*"};
    CHECK(conditions_for_change(&asked, &request, &err) && request.flags == FILES_IF_NONE);
    asked = (struct conditions){.if_match = "\"x\""};
    CHECK(!conditions_for_change(&asked, &request, &err) && err.kind == ERROR_PRECONDITION);
    asked = (struct conditions){.if_match = two};
    CHECK(!conditions_for_change(&asked, &request, &err) && err.kind == ERROR_INVALID);
    asked = (struct conditions){.if_none_match = own};
    CHECK(!conditions_for_change(&asked, &request, &err) && err.kind == ERROR_INVALID);
    asked = (struct conditions){.if_match = "*", .if_none_match = "*"};
    CHECK(!conditions_for_change(&asked, &request, &err) && err.kind == ERROR_INVALID);
    asked = (struct conditions){.if_unmodified_since = "Sun, 06 Nov 1994 08:49:37 GMT"};
    CHECK(!conditions_for_change(&asked, &request, &err) && err.kind == ERROR_INVALID);
    asked = (struct conditions){.if_modified_since =
                                    "Sun, 06 Nov 1994 08:49:37 GMT"}; /* RFC 9110, 13.1.3: of a GET alone */
    CHECK(conditions_for_change(&asked, &request, &err));
}

static void test_pieces(void)
{
    struct conditions_piece piece = {0};
    struct error err = {0};
    CHECK(conditions_piece_read("bytes 0-99/1000", &piece, &err) && piece.offset == 0 && piece.size == 100 &&
          piece.total == 1000);
    CHECK(conditions_piece_read("bytes 999-999/1000", &piece, &err) && piece.offset == 999 && piece.size == 1);
    CHECK(conditions_piece_read("bytes */7", &piece, &err) && piece.size == 0 && piece.total == 7);
    static const char *const BAD[] = {"",
                                      "bytes",
                                      "bytes 0-9",
                                      "bytes 0-9/*",
                                      "bytes 0-9/9",
                                      "bytes 5-4/9",
                                      "bytes */*",
                                      "bytes */0",
                                      "bytes=0-1/2",
                                      "bytes 0-1/2 ",
                                      "bytes -1/2",
                                      "lines 0-1/2",
                                      "bytes 0-/2",
                                      "bytes 0-1/999999999999999999999"};
    for (size_t i = 0; i < sizeof BAD / sizeof *BAD; i++)
        CHECK(!conditions_piece_read(BAD[i], &piece, &err) && err.kind == ERROR_INVALID);
}

int main(void)
{
    test_etags();
    test_dates();
    test_verdicts();
    test_ranges();
    test_changes();
    test_pieces();
    return check_done();
}
