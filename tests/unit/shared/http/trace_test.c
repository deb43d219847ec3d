/* trace_test.c - traceparent, read as W3C Trace Context has it, and nothing else. */
#include "shared/http/trace.h"
#include "tests/unit/check.h"

#define TRACE "0af7651916cd43dd8448eb211c80319c"
#define SPAN  "b7ad6b7169203331"

static void check_refused(const char *traceparent)
{
    struct http_trace trace = {.trace_id = "mine", .flags = 9};
    CHECK(!http_trace_parse(&trace, traceparent));
    CHECK_TEXT(trace.trace_id, "mine");
    CHECK(trace.flags == 9 && trace.parent_id[0] == 0);
}

static void test_good(void)
{
    char told[HTTP_TRACEPARENT_BYTES];
    struct http_trace trace = {.span_id = "00f067aa0ba902b7"};
    CHECK(http_trace_parse(&trace, "00-" TRACE "-" SPAN "-01"));
    CHECK_TEXT(trace.trace_id, TRACE);
    CHECK_TEXT(trace.parent_id, SPAN);
    CHECK(trace.flags == 1);
    http_trace_format(&trace, told);
    CHECK_TEXT(told, "00-" TRACE "-00f067aa0ba902b7-01");
    CHECK(http_trace_parse(&trace, "00-" TRACE "-" SPAN "-fe"));
    http_trace_format(&trace, told);
    CHECK_TEXT(told, "00-" TRACE "-00f067aa0ba902b7-00");
    /* what comes later is read as far as it is known */
    CHECK(http_trace_parse(&trace, "01-" TRACE "-" SPAN "-01"));
    CHECK(http_trace_parse(&trace, "cc-" TRACE "-" SPAN "-01-what the future will be like"));
}

static void test_bad(void)
{
    check_refused(NULL);
    check_refused("");
    check_refused("00");
    check_refused("00-" TRACE "-" SPAN);
    check_refused("00-" TRACE "-" SPAN "-0");
    check_refused("00-" TRACE "-" SPAN "-01-more");
    check_refused("00-" TRACE "-" SPAN "-01.");
    check_refused("cc-" TRACE "-" SPAN "-01.more");
    check_refused("ff-" TRACE "-" SPAN "-01");
    check_refused("0-" TRACE "-" SPAN "-01x");
    check_refused("00-00000000000000000000000000000000-" SPAN "-01");
    check_refused("00-" TRACE "-0000000000000000-01");
    check_refused("00-0AF7651916CD43DD8448EB211C80319C-" SPAN "-01");
    check_refused("00-0af7651916cd43dd8448eb211c80319g-" SPAN "-01");
    check_refused("00-" TRACE "-b7ad6b716920333g-01");
    check_refused("00-" TRACE "-" SPAN "-0g");
    check_refused("0g-" TRACE "-" SPAN "-01");
    check_refused("00_" TRACE "-" SPAN "-01");
    check_refused("00-" TRACE "_" SPAN "-01");
    check_refused(" 00-" TRACE "-" SPAN "-01");
    check_refused("00-" TRACE "-" SPAN "\"\n-1");
}

int main(void)
{
    test_good();
    test_bad();
    return check_done();
}
