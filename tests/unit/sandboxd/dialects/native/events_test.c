/* events_test.c - how output becomes events: UTF-8 cut in two, other bytes, framing, signals. */
#include "sandboxd/dialects/native/events.h"
#include "tests/unit/check.h"

static size_t split(const char *data, size_t size, bool last, bool *is_text)
{
    return events_split((const uint8_t *)data, size, last, is_text);
}

static void test_split(void)
{
    bool is_text;
    CHECK(split("abc", 3, false, &is_text) == 3 && is_text);
    CHECK(split("a\xe2\x82", 3, false, &is_text) == 1 && is_text); /* the cut euro waits */
    CHECK(split("\xe2\x82", 2, false, &is_text) == 0);             /* nothing but it */
    CHECK(split("\xe2\x82", 2, true, &is_text) == 2 && !is_text);  /* and nothing follows */
    CHECK(split("\xe2\x82\xac", 3, false, &is_text) == 3 && is_text);
    CHECK(split("\xff\xfe", 2, false, &is_text) == 2 && !is_text); /* can never become text */
    CHECK(split("\xe2(", 2, false, &is_text) == 2 && !is_text);
    CHECK(split("ok\xff", 3, false, &is_text) == 2 && is_text);
    CHECK(split("\xf0\x9f\x98", 3, false, &is_text) == 0);
    CHECK(split("\xc0\x80", 2, false, &is_text) == 2 && !is_text); /* overlong */
    CHECK(split("\0x", 2, false, &is_text) == 2 && is_text);
}

static void test_framing(void)
{
    AUTO_TEXT line = {0}, sse = {0}, binary = {0}, gap = {0};
    events_data(&line, HTTP_NDJSON, OUTPUT_STDOUT, 7, (const uint8_t *)"a\"\\\n\x01\xc3\xa9", 7, true);
    CHECK_TEXT(line.data, "{\"type\":\"stdout\",\"offset\":7,\"data\":\"a\\\"\\\\\\n\\u0001\xc3\xa9\"}\n");
    json_error_t wrong;
    json_t *parsed = json_loads(line.data, 0, &wrong);
    CHECK(parsed != NULL);
    CHECK_TEXT(json_string_value(json_object_get(parsed, "data")), "a\"\\\n\x01\xc3\xa9");
    json_decref(parsed);
    events_data(&sse, HTTP_SSE, OUTPUT_STDERR, 0, (const uint8_t *)"x", 1, true);
    CHECK_TEXT(sse.data, "event: stderr\ndata: {\"type\":\"stderr\",\"offset\":0,\"data\":\"x\"}\n\n");
    events_data(&binary, HTTP_NDJSON, OUTPUT_STDOUT, 0, (const uint8_t *)"\xff\x00", 2, false);
    CHECK_TEXT(binary.data, "{\"type\":\"stdout\",\"offset\":0,\"data_b64\":\"/wA=\"}\n");
    events_gap(&gap, HTTP_NDJSON, OUTPUT_STDOUT, 0, 4096);
    CHECK_TEXT(gap.data, "{\"type\":\"gap\",\"stream\":\"stdout\",\"from\":0,\"to\":4096}\n");
}

static void test_exit(void)
{
    struct process_view view = {.id = "exe_1", .pid = 3, .ended = true};
    view.end = (struct process_end){.exit_code = 137, .signal = 9, .oom = true, .wall_ms = 5};
    AUTO_TEXT exited = {0}, started = {0}, failed = {0};
    events_exit(&exited, HTTP_NDJSON, &view);
    CHECK_TEXT(exited.data, "{\"type\":\"exit\",\"exit_code\":137,\"signal\":\"SIGKILL\",\"oom\":true,"
                            "\"usage\":{\"wall_ms\":5,\"cpu_ms\":0,\"max_rss\":0}}\n");
    events_started(&started, HTTP_NDJSON, &view);
    CHECK_TEXT(started.data, "{\"type\":\"started\",\"id\":\"exe_1\",\"pid\":3,\"tty\":false,\"stdin_offset\":0}\n");
    struct error err = {0};
    error_set(&err, ERROR_GONE, "ended: deleted");
    events_error(&failed, HTTP_NDJSON, &err);
    CHECK(strstr(failed.data, "\"code\":\"GONE\"") != NULL);
}

static const char *stdin_of(bool open)
{
    struct process_view view = {.id = "exe_1", .stdin_open = open};
    json_t *shown = events_process(&view);
    const char *told = strcmp(json_string_value(json_object_get(shown, "stdin")), "open") == 0 ? "open" : "closed";
    json_decref(shown);
    return told;
}

static void test_stdin(void)
{
    CHECK_TEXT(stdin_of(true), "open");
    CHECK_TEXT(stdin_of(false), "closed");
}

static int signal_of(json_t *value)
{
    int number = -1;
    if (!events_signal_parse(value, &number))
        number = -1;
    json_decref(value);
    return number;
}

static void test_signals(void)
{
    CHECK(signal_of(json_string("TERM")) == 15);
    CHECK(signal_of(json_string("sigterm")) == 15);
    CHECK(signal_of(json_string("9")) == 9);
    CHECK(signal_of(json_integer(64)) == 64);
    CHECK(signal_of(json_integer(65)) == -1);
    CHECK(signal_of(json_integer(0)) == -1);
    CHECK(signal_of(json_string("0")) == -1);
    CHECK(signal_of(json_string("-1")) == -1);
    CHECK(signal_of(json_string("TERMINATE")) == -1);
    CHECK(signal_of(json_true()) == -1);
    char name[EVENTS_SIGNAL_BYTES];
    events_signal_name(name, 9);
    CHECK_TEXT(name, "SIGKILL");
    events_signal_name(name, 40);
    CHECK_TEXT(name, "SIG40");
}

int main(void)
{
    test_split();
    test_framing();
    test_exit();
    test_stdin();
    test_signals();
    return check_done();
}
