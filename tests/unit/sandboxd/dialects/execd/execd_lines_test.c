/* Lines of output, however the bytes come: each cut of the same stream gives the same lines. */
#include "sandboxd/dialects/execd/execd_lines.h"

#include "shared/base/memory.h"
#include "tests/unit/check.h"

#include <stdio.h>
#include <string.h>

/* The lines in brackets, fed `step` bytes at a time. */
static void split(const char *data, size_t size, size_t step, struct text *told)
{
    struct execd_lines lines = {0};
    const struct text *line;
    for (size_t at = 0; at < size;) {
        size_t part = size - at < step ? size - at : step, used;
        bool is_line = execd_lines_take(&lines, data + at, part, &used, &line);
        CHECK(used > 0 && used <= part && (is_line || used == part));
        at += used;
        if (is_line)
            text_append_format(told, "[%.*s]", (int)line->length, line->data);
    }
    if (execd_lines_rest(&lines, &line))
        text_append_format(told, "[%.*s]", (int)line->length, line->data);
    execd_lines_done(&lines);
}

static void test_split(const char *data, const char *expected)
{
    for (size_t step = 1; step <= strlen(data) + 1; step++) {
        AUTO_TEXT told = {0};
        text_append(&told, "", 0);
        split(data, strlen(data), step, &told);
        if (strcmp(told.data, expected) != 0)
            (void)fprintf(stderr, "step %zu: %s, not %s\n", step, told.data, expected);
        CHECK(strcmp(told.data, expected) == 0);
    }
}

static void test_terminators(void)
{
    test_split("", "");
    test_split("a\n", "[a]");
    test_split("a", "[a]");
    test_split("a\nb", "[a][b]");
    test_split("a\n\nb\n", "[a][][b]");
    test_split("a\r\nb\r\n", "[a][b]");
    test_split("a\rb\r", "[a][b]");
    test_split("a\r\rb", "[a][][b]");
    test_split("a\n\rb", "[a][][b]");
    test_split("\n", "[]");
    test_split("\r\n", "[]");
    test_split("\r\n\r\n", "[][]");
    test_split("10%\r50%\r100%\ndone", "[10%][50%][100%][done]");
}

static void test_any_bytes(void)
{
    static const char DATA[] = "a\0b\n\xff\xfe\n";
    struct execd_lines lines = {0};
    const struct text *line;
    size_t used;
    CHECK(execd_lines_take(&lines, DATA, sizeof DATA - 1, &used, &line));
    CHECK(used == 4 && line->length == 3 && memcmp(line->data, "a\0b", 3) == 0);
    CHECK(execd_lines_take(&lines, DATA + 4, sizeof DATA - 5, &used, &line));
    CHECK(used == 3 && line->length == 2);
    CHECK(!execd_lines_rest(&lines, &line));
    execd_lines_done(&lines);
}

/* Pieces, none over the bound, and nothing lost: `size` bytes of `unit`s without an end, then `tail`. */
static void test_long(const char *unit, size_t size, const char *tail, size_t step, size_t pieces, size_t lines_after)
{
    struct execd_lines lines = {0};
    const struct text *line;
    size_t length = strlen(unit), total = size + strlen(tail), told = 0, count = 0, seen = 0;
    AUTO_FREE char *data = memory_new(total);
    for (size_t i = 0; i < size; i++)
        data[i] = unit[i % length];
    memcpy(data + size, tail, strlen(tail));
    for (size_t at = 0; at < total;) {
        size_t part = total - at < step ? total - at : step, used;
        if (execd_lines_take(&lines, data + at, part, &used, &line)) {
            CHECK(line->length <= EXECD_LINE_BYTES);
            CHECK(text_utf8_prefix(line->data, line->length) == line->length); /* no character is cut */
            told += line->length;
            count++;
            seen += told >= size;
        }
        at += used;
    }
    if (execd_lines_rest(&lines, &line)) {
        told += line->length;
        count++;
        seen++;
    }
    CHECK(told >= size && count == pieces && seen == lines_after);
    execd_lines_done(&lines);
}

static void test_long_lines(void)
{
    for (size_t step = 4093; step < 400000; step = step * 3 + 1) {
        test_long("x", EXECD_LINE_BYTES * 3, "", step, 3, 1);
        test_long("x", EXECD_LINE_BYTES * 3, "\n", step, 3, 1); /* the end of the line is not a line more */
        test_long("x", EXECD_LINE_BYTES * 3, "\r\n", step, 3, 1);
        test_long("x", EXECD_LINE_BYTES, "\nb", step, 2, 2);
        test_long("x", EXECD_LINE_BYTES, "\n\n", step, 2, 2);
        test_long("x", EXECD_LINE_BYTES - 1, "\n", step, 1, 1);
        test_long("\xe2\x82\xac", 3 * EXECD_LINE_BYTES, "\n", step, 4, 1); /* 3 bytes do not divide the bound */
        test_long("\xf0\x9f\x98\x80", 2 * EXECD_LINE_BYTES, "\n", step, 2, 1);
    }
}

int main(void)
{
    test_terminators();
    test_any_bytes();
    test_long_lines();
    return check_done();
}
