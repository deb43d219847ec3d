/* The events' bytes: framing, what is left out, what is no UTF-8, and how ends are told. */
#include "sandboxd/dialects/execd/execd_events.h"

#include "tests/unit/check.h"

#include <signal.h>
#include <string.h>

/* The one event in `text`; its framing is checked. The caller frees. */
static json_t *parse(struct text *text)
{
    json_error_t error;
    CHECK(text->length > 2 && memcmp(text->data + text->length - 2, "\n\n", 2) == 0);
    CHECK(memchr(text->data, '\n', text->length - 2) == NULL);
    CHECK(memcmp(text->data, "{\"type\":\"", 9) == 0);
    json_t *event = json_loadb(text->data, text->length, JSON_ALLOW_NUL, &error);
    CHECK(event != NULL && json_is_integer(json_object_get(event, "timestamp")));
    text_done(text);
    *text = (struct text){0};
    return event;
}

static void check_text(const char *type, const void *given, size_t size, const char *expected, size_t expected_size)
{
    AUTO_TEXT text = {0};
    execd_event_text(&text, type, given, size);
    json_t *event = parse(&text), *told = json_object_get(event, "text");
    CHECK(strcmp(json_string_value(json_object_get(event, "type")), type) == 0);
    CHECK(json_string_length(told) == expected_size && memcmp(json_string_value(told), expected, expected_size) == 0);
    json_decref(event);
}

static void test_text(void)
{
    AUTO_TEXT text = {0};
    check_text("stdout", "plain", 5, "plain", 5);
    check_text("stdout", "a\"b\\c\t\x01\x7f", 8, "a\"b\\c\t\x01\x7f", 8);
    check_text("stderr", "a\0b", 3, "a\0b", 3);
    check_text("stdout", "gr\xc3\xbc\xc3\x9f", 6, "gr\xc3\xbc\xc3\x9f", 6);
    check_text("stdout",
               "\xff"
               "a\xc3",
               3,
               "\xef\xbf\xbd"
               "a\xef\xbf\xbd",
               7);
    check_text("stdout", "\xed\xa0\x80", 3, "\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd", 9); /* a surrogate */
    execd_event_text(&text, "status", "", 0);
    json_t *event = parse(&text);
    CHECK(json_object_size(event) == 2);
    json_decref(event);
}

static void test_lines(void)
{
    AUTO_TEXT text = {0};
    execd_event_line(&text, OUTPUT_STDERR, "", 0);
    json_t *event = parse(&text);
    CHECK(strcmp(json_string_value(json_object_get(event, "type")), "stderr") == 0);
    CHECK(strcmp(json_string_value(json_object_get(event, "text")), "\n") == 0);
    json_decref(event);
    execd_event_ping(&text);
    event = parse(&text);
    CHECK(strcmp(json_string_value(json_object_get(event, "text")), "pong") == 0);
    json_decref(event);
}

static void test_values(void)
{
    AUTO_TEXT text = {0};
    execd_event_result(&text, json_pack("{s:s,s:s}", "text", "4", "text/plain", "4"));
    json_t *event = parse(&text);
    CHECK(json_object_size(json_object_get(event, "results")) == 2);
    json_decref(event);
    execd_event_count(&text, 3);
    event = parse(&text);
    CHECK(json_integer_value(json_object_get(event, "execution_count")) == 3);
    json_decref(event);
    execd_event_complete(&text, 0);
    event = parse(&text);
    CHECK(json_object_size(event) == 2); /* 0 is left out */
    json_decref(event);
}

static void check_end(const struct process_end *end, const char *value, const char *told)
{
    AUTO_TEXT text = {0};
    execd_event_end(&text, end);
    json_t *event = parse(&text), *error = json_object_get(event, "error");
    const json_t *traceback = json_object_get(error, "traceback");
    CHECK(strcmp(json_string_value(json_object_get(event, "type")), "error") == 0);
    CHECK(strcmp(json_string_value(json_object_get(error, "ename")), "CommandExecError") == 0);
    CHECK(strcmp(json_string_value(json_object_get(error, "evalue")), value) == 0);
    CHECK(json_array_size(traceback) == 1 && strcmp(json_string_value(json_array_get(traceback, 0)), told) == 0);
    json_decref(event);
}

static void test_ends(void)
{
    AUTO_TEXT text = {0};
    const struct process_end good = {.wall_ms = 1500};
    execd_event_end(&text, &good);
    json_t *event = parse(&text);
    CHECK(strcmp(json_string_value(json_object_get(event, "type")), "execution_complete") == 0);
    CHECK(json_integer_value(json_object_get(event, "execution_time")) == 1500 && !json_object_get(event, "error"));
    json_decref(event);
    check_end(&(struct process_end){.exit_code = 7}, "7", "exit status 7");
    check_end(&(struct process_end){.exit_code = 137, .signal = SIGKILL}, "-1", "signal: killed");
    check_end(&(struct process_end){.exit_code = 143, .signal = SIGTERM}, "-1", "signal: terminated");
    check_end(&(struct process_end){.exit_code = 139, .signal = SIGSEGV}, "-1", "signal: segmentation fault");
    check_end(&(struct process_end){.exit_code = 137, .signal = SIGKILL, .timed_out = true}, "-1", "signal: killed");
    check_end(&(struct process_end){.exit_code = 128 + 40, .signal = 40}, "-1", "signal: signal 40");
    check_end(&(struct process_end){.exit_code = 137}, "137", "exit status 137"); /* a shell's own */
}

int main(void)
{
    test_text();
    test_lines();
    test_values();
    test_ends();
    return check_done();
}
