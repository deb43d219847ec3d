/* metrics_test.c - the text that Prometheus reads: kinds, labels that stay labels, buckets that add up. */
#include "shared/base/metrics.h"
#include "tests/unit/check.h"

#include <string.h>

static void test_samples(void)
{
    AUTO_TEXT text = {0};
    metrics_single(&text, "a_total", METRICS_COUNTER, "What a is.", 3);
    CHECK_TEXT(text.data, "# HELP a_total What a is.\n# TYPE a_total counter\na_total 3\n");
    text_done(&text);
    text = (struct text){0};
    metrics_sample(&text, "b", 0.25, "x", "1", "y", "two", NULL);
    CHECK_TEXT(text.data, "b{x=\"1\",y=\"two\"} 0.25\n");
    text.length = 0;
    metrics_sample(&text, "b", -1, NULL);
    metrics_sample(&text, "b", 4503599627370497.0, NULL);
    metrics_sample(&text, "b", 1e300, NULL);
    CHECK_TEXT(text.data, "b -1\nb 4503599627370497\nb 1e+300\n");
}

static void test_a_hostile_label_stays_one(void)
{
    AUTO_TEXT text = {0};
    metrics_sample(&text, "c", 1, "x", "a\"} 7\nd{x=\"\\", NULL);
    CHECK_TEXT(text.data, "c{x=\"a\\\"} 7\\nd{x=\\\"\\\\\"} 1\n");
    text.length = 0;
    metrics_sample(&text, "c", 1, "x", "\xC3\xA4", "y", "\xFFz", "z", NULL, NULL);
    CHECK_TEXT(text.data, "c{x=\"\xC3\xA4\",y=\"?z\",z=\"\"} 1\n");
}

static void test_histogram(void)
{
    AUTO_TEXT text = {0};
    struct metrics_histogram one = {0}, all = {0};
    CHECK(metrics_is_empty(&one));
    metrics_observe(&one, 100000);          /* 0.1 ms: on the first bound */
    metrics_observe(&one, 100001);          /* just beyond it */
    metrics_observe(&one, 120000000000ULL); /* beyond all */
    metrics_merge(&all, &one);
    metrics_merge(&all, &one);
    CHECK(!metrics_is_empty(&all));
    metrics_sample_histogram(&text, "d_seconds", &all, "k", "v", NULL);
    CHECK(strstr(text.data, "d_seconds_bucket{k=\"v\",le=\"0.0001\"} 2\n"));
    CHECK(strstr(text.data, "d_seconds_bucket{k=\"v\",le=\"0.0005\"} 4\n"));
    CHECK(strstr(text.data, "d_seconds_bucket{k=\"v\",le=\"60\"} 4\n"));
    CHECK(strstr(text.data, "d_seconds_bucket{k=\"v\",le=\"+Inf\"} 6\n"));
    CHECK(strstr(text.data, "d_seconds_count{k=\"v\"} 6\n"));
    CHECK(strstr(text.data, "d_seconds_sum{k=\"v\"} 240.000400002\n"));
    text.length = 0;
    metrics_sample_histogram(&text, "e_seconds", &all, NULL);
    CHECK(strstr(text.data, "e_seconds_bucket{le=\"+Inf\"} 6\n"));
    CHECK(strstr(text.data, "e_seconds_count 6\n"));
}

static void test_process(void)
{
    AUTO_TEXT text = {0}, again = {0};
    metrics_process(&text);
    static const char *const NAMES[] = {
        "process_cpu_seconds_total ",     "process_start_time_seconds ", "process_virtual_memory_bytes ",
        "process_resident_memory_bytes ", "process_open_fds ",           "process_max_fds "};
    for (size_t i = 0; i < sizeof NAMES / sizeof *NAMES; i++) {
        char line[64];
        snprintf(line, sizeof line, "\n%s", NAMES[i]);
        CHECK(strstr(text.data, line));
    }
    metrics_process(&again);
    const char *start = strstr(text.data, "\nprocess_start_time_seconds ");
    const char *same = strstr(again.data, "\nprocess_start_time_seconds ");
    CHECK(start && same && strncmp(start, same, strcspn(start + 1, "\n") + 1) == 0);
}

int main(void)
{
    test_samples();
    test_a_hostile_label_stays_one();
    test_histogram();
    test_process();
    return check_done();
}
