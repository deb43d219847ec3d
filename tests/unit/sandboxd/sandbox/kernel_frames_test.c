/* kernel_frames_test.c - lines out of pieces, frames out of lines, and what is no frame. */
#include "sandboxd/sandbox/kernels/kernel_frames.h"

#include "shared/base/memory.h"
#include "tests/unit/check.h"

static bool parse(const char *line, struct kernel_frame *frame, enum error_kind *kind)
{
    struct error err = {0};
    bool is_read = kernel_frame_parse(line, strlen(line), frame, &err);
    *kind = err.kind;
    return is_read;
}

static void test_lines(void)
{
    static const char TEXT[] = "one\n\nthree is longer\nrest";
    for (size_t piece = 1; piece < sizeof TEXT; piece++) {
        struct kernel_lines lines = {0};
        struct error err = {0};
        AUTO_TEXT told = {0};
        for (size_t at = 0; at < sizeof TEXT - 1; at += piece) {
            size_t size = sizeof TEXT - 1 - at < piece ? sizeof TEXT - 1 - at : piece;
            CHECK(kernel_lines_add(&lines, TEXT + at, size, &err));
            const char *line;
            while (kernel_lines_next(&lines, &line, &size)) {
                text_append(&told, line, size);
                text_append(&told, "|", 1);
            }
        }
        CHECK_TEXT(told.data, "one||three is longer|");
        CHECK(kernel_lines_held(&lines) == 4);
        kernel_lines_done(&lines);
    }
}

static void test_a_line_has_an_end(void)
{
    struct kernel_lines lines = {0};
    struct error err = {0};
    enum { PIECE = 1 << 20 };
    AUTO_FREE char *piece = memory_new(PIECE);
    memset(piece, 'x', PIECE);
    const char *line;
    size_t size = 0;
    for (int i = 0; i < KERNEL_FRAME_MAX / PIECE; i++) {
        CHECK(kernel_lines_add(&lines, piece, PIECE, &err));
        CHECK(!kernel_lines_next(&lines, &line, &size));
    }
    CHECK(!kernel_lines_add(&lines, piece, 1, &err) && err.kind == ERROR_TOO_LARGE);
    CHECK(kernel_lines_add(&lines, "\n", 1, &err)); /* exactly so long is fine */
    CHECK(kernel_lines_next(&lines, &line, &size) && size == KERNEL_FRAME_MAX);
    kernel_lines_shrink(&lines);
    CHECK(lines.text.capacity < 1 << 20);
    kernel_lines_done(&lines);
}

static void test_frames(void)
{
    struct kernel_frame frame = {0};
    enum error_kind kind;
    CHECK(parse("{\"ready\":{\"version\":\"3\\u000111\",\"implementation\":\"x\"}}", &frame, &kind));
    CHECK(frame.kind == KERNEL_FRAME_READY);
    CHECK_TEXT(frame.version, "3 11"); /* one line */
    kernel_frame_done(&frame);
    CHECK(parse("{\"started\":{\"run\":\"r\",\"count\":7}}", &frame, &kind) && frame.count == 7);
    CHECK_TEXT(frame.run, "r");
    kernel_frame_done(&frame);
    CHECK(parse("{\"stdout\":{\"run\":\"r\",\"text\":\"a\\u0000b\",\"more\":1}}", &frame, &kind));
    CHECK(json_object_size(frame.body) == 1 && json_string_length(json_object_get(frame.body, "text")) == 3);
    kernel_frame_done(&frame);
    CHECK(parse("{\"result\":{\"run\":\"r\",\"count\":2,\"data\":{\"application/json\":{\"big\":"
                "123456789012345678901234567890}}}}",
                &frame, &kind));
    CHECK(json_is_object(json_object_get(frame.body, "metadata")));
    kernel_frame_done(&frame);
    CHECK(parse("{\"done\":{\"run\":\"r\",\"status\":\"interrupted\"}}", &frame, &kind));
    CHECK(frame.status == KERNEL_FRAME_INTERRUPTED && frame.count == 0 && !frame.has_exit_code);
    kernel_frame_done(&frame);
    CHECK(parse("{\"done\":{\"run\":\"r\",\"status\":\"error\",\"exit_code\":137}}", &frame, &kind));
    CHECK(frame.has_exit_code && frame.exit_code == 137);
    kernel_frame_done(&frame);
    CHECK(parse("{\"comm\":[1,2]}", &frame, &kind) && frame.kind == KERNEL_FRAME_OTHER);
    kernel_frame_done(&frame);
}

static void test_what_is_none(void)
{
    static const char *const LINES[] = {"",
                                        "garbage",
                                        "[1]",
                                        "\"ready\"",
                                        "{\"stdout\":7}",
                                        "{\"stdout\":{\"text\":\"no run\"}}",
                                        "{\"stdout\":{\"run\":\"r\",\"text\":7}}",
                                        "{\"stdout\":{\"run\":\"r\\u0000s\",\"text\":\"\"}}",
                                        "{\"started\":{\"run\":\"r\",\"count\":-1}}",
                                        "{\"done\":{\"run\":\"r\",\"status\":\"fine\"}}",
                                        "{\"done\":{\"run\":\"r\",\"status\":\"ok\",\"exit_code\":256}}",
                                        "{\"done\":{\"run\":\"r\",\"status\":\"ok\",\"exit_code\":-1}}",
                                        "{\"done\":{\"run\":\"r\",\"status\":\"ok\",\"exit_code\":\"0\"}}",
                                        "{\"display\":{\"run\":\"r\",\"data\":[]}}",
                                        "{\"error\":{\"run\":\"r\",\"name\":\"n\",\"value\":\"v\",\"traceback\":[1]}}",
                                        "{\"stdout\":{\"run\":\"r\",\"text\":\"\xff\"}}",
                                        "{\"stdout\":{\"run\":\"r\",\"text\":\"cut",
                                        "{\"stdout\":{\"run\":\"0123456789012345678901234567890123456789"
                                        "012345678901234567890123456789\",\"text\":\"\"}}"};
    struct kernel_frame frame = {0};
    enum error_kind kind;
    for (size_t i = 0; i < sizeof LINES / sizeof *LINES; i++) {
        CHECK(!parse(LINES[i], &frame, &kind) && kind == ERROR_INVALID);
        CHECK(frame.kind == KERNEL_FRAME_OTHER && !frame.body);
    }
}

/* Small values cost a hundred times their text: they are counted before they are made. */
static void test_too_many_values(void)
{
    AUTO_TEXT text = {0};
    struct kernel_frame frame = {0};
    enum error_kind kind;
    text_append_string(&text, "{\"display\":{\"run\":\"r\",\"data\":{\"application/json\":[{}");
    for (int i = 0; i < KERNEL_FRAME_VALUES_MAX; i++)
        text_append_string(&text, ",{}");
    text_append_string(&text, "]}}}");
    CHECK(!parse(text.data, &frame, &kind) && kind == ERROR_TOO_LARGE);
    text.length = 0;
    text_append_string(&text, "{\"stdout\":{\"run\":\"r\",\"text\":\"\\\"");
    for (int i = 0; i < KERNEL_FRAME_VALUES_MAX; i++)
        text_append_string(&text, ",[{");
    text_append_string(&text, "\"}}");
    CHECK(parse(text.data, &frame, &kind)); /* in a text they are none */
    kernel_frame_done(&frame);
}

int main(void)
{
    test_lines();
    test_a_line_has_an_end();
    test_frames();
    test_what_is_none();
    test_too_many_values();
    return check_done();
}
