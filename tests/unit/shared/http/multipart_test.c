/* multipart_test.c - forms as curl, browsers and .NET send them, cut in every way, and what is refused. */
#include "shared/http/multipart.h"

#include "shared/base/text.h"
#include "tests/unit/check.h"

#define TYPE "multipart/form-data; boundary=B"
#define HEAD "Content-Disposition: form-data; name=\"f\"; filename=\"a\"\r\n\r\n"

enum { PARTS_MAX = 3 };

/* "[name|filename|type]bytes. ... !" of a body that comes in pieces of `step` bytes, and the error's code where it
 * ends with one. The caller frees. */
static char *read_in(const char *type, const char *body, size_t size, size_t step)
{
    struct text seen = {0};
    struct error err = {0};
    AUTO(http_multipart) *reader = http_multipart_new(type, PARTS_MAX, &err);
    struct http_multipart_event event;
    bool is_good = reader != NULL;
    text_append(&seen, NULL, 0);
    for (size_t at = 0, used = 0; is_good && at < size; at += used) {
        size_t there = size - at < step ? size - at : step;
        is_good = http_multipart_next(reader, body + at, there, &used, &event, &err);
        if (!is_good)
            break;
        CHECK(used <= there && (used > 0 || event.kind != HTTP_MULTIPART_NONE));
        if (event.kind == HTTP_MULTIPART_PART)
            text_append_format(&seen, "[%s|%s|%s]", event.part->name, event.part->filename ? event.part->filename : "-",
                               event.part->type ? event.part->type : "-");
        if (event.kind == HTTP_MULTIPART_DATA)
            text_append(&seen, event.data, event.size);
        if (event.kind == HTTP_MULTIPART_PART_END)
            text_append_string(&seen, ".");
        if (event.kind == HTTP_MULTIPART_END)
            text_append_string(&seen, "!");
    }
    if (!is_good || !http_multipart_finish(reader, &err))
        text_append_format(&seen, " %s", error_code(err.kind));
    return seen.data;
}

static void check(const char *type, const char *body, const char *expected, int line)
{
    size_t size = strlen(body);
    for (size_t step = 1; step <= size + 1; step++) {
        AUTO_FREE char *seen = read_in(type, body, size, step);
        if (strcmp(seen, expected) != 0) {
            fprintf(stderr, "line %d, by %zu: \"%s\", not \"%s\"\n", line, step, seen, expected);
            CHECK(false);
            return;
        }
    }
}
#define READS(body, expected) check(TYPE, body, expected, __LINE__)
/* One part with these lines as its head. */
#define LINES(lines, expected)            READS("--B\r\n" lines "\r\n\r\nx\r\n--B--", expected)
#define DISPOSITION(parameters, expected) LINES("Content-Disposition: form-data; " parameters, expected)

static void test_forms(void)
{
    READS("--B\r\n" HEAD "hello\r\n--B--\r\n", "[f|a|-]hello.!");
    READS("--B\r\n" HEAD "1\r\n--B\r\n" HEAD "2\r\n--B--", "[f|a|-]1.[f|a|-]2.!");
    READS("--B\r\nContent-Disposition: form-data; name=\"file\"; filename=\"b.txt\"\r\nContent-Type: text/plain\r\n\r\n"
          "b\r\n\r\n--B\r\nContent-Disposition: form-data; name=k\r\n\r\nv\r\n--B--\r\nepilogue",
          "[file|b.txt|text/plain]b\r\n.[k|-|-]v.!");
    READS("preamble\r\n\r\n--B \t\r\n" HEAD "x\r\n--B--  \r\n", "[f|a|-]x.!");
    READS("\r\n--B\r\n" HEAD "\r\n--B--", "[f|a|-].!");
    READS("--B\r\n" HEAD "--B--", "[f|a|-].!"); /* the empty line's end is the delimiter's: no bytes */
    READS("--B--", "!");                        /* a form of nothing */
}

static void test_near_delimiters(void)
{
    READS("--B\r\n" HEAD "\r\n-\r\n--\r\n\r\r\n--A--B\r\n--B--", "[f|a|-]\r\n-\r\n--\r\n\r\r\n--A--B.!");
    READS("--B\r\n" HEAD "\n--B--\r--B--\r\n\r\n--B--", "[f|a|-]\n--B--\r--B--\r\n.!");
    READS("--B\r\n" HEAD "-\r\n--B--", "[f|a|-]-.!");
    READS("x--B\r\n\r\n--B\r\n" HEAD "x\r\n--B--", "[f|a|-]x.!");
    READS("--B\r\n" HEAD "x\r\n--Bx", "[f|a|-]x. INVALID_REQUEST");
    READS("--B\r\n" HEAD "x\r\n--B-x", "[f|a|-]x. INVALID_REQUEST");
    READS("--B\r\n" HEAD "x\r\n--B -", "[f|a|-]x. INVALID_REQUEST");
    READS("--B\r\n" HEAD "x\r\n--B\n", "[f|a|-]x. INVALID_REQUEST");
    READS("--B\r\n" HEAD "x\r\n--B\r\r\n", "[f|a|-]x. INVALID_REQUEST");
}

static void test_cut_short(void)
{
    READS("", " INVALID_REQUEST");
    READS("no form at all", " INVALID_REQUEST");
    READS("--B\r\n" HEAD "x", "[f|a|-]x INVALID_REQUEST");
    READS("--B\r\n" HEAD "x\r\n", "[f|a|-]x INVALID_REQUEST");
    READS("--B\r\n" HEAD "x\r\n--B", "[f|a|-]x. INVALID_REQUEST");
    READS("--B\r\n" HEAD "x\r\n--B\r\n", "[f|a|-]x. INVALID_REQUEST");
    READS("--B\r\n" HEAD "x\r\n--B-", "[f|a|-]x. INVALID_REQUEST");
}

static void test_names(void)
{
    DISPOSITION("name=\"f\"; filename=\"../x\"", "[f|../x|-]x.!");
    DISPOSITION("NAME=f;FileName=a", "[f|a|-]x.!");
    DISPOSITION("name=\"f\"; filename=\"\";", "[f||-]x.!");
    DISPOSITION("name=\"a\\\"b\\\\c\\d\"; filename=\"C:\\dir\\x\"", "[a\"b\\c\\d|C:\\dir\\x|-]x.!");
    DISPOSITION("name=\"f\"; filename=\"a;b=%22c%22 100%25 %0d%0A.txt\"", "[f|a;b=\"c\" 100%25 \r\n.txt|-]x.!");
    DISPOSITION("name=\"f\"; filename=\"\xc3\xa9\xff\"", "[f|\xc3\xa9\xff|-]x.!");
    DISPOSITION("name=f; filename=\"=?utf-8?B?w6k=?=\"; filename*=utf-8''%C3%A9%2F", "[f|\xc3\xa9/|-]x.!");
    DISPOSITION("name=f; filename*=UTF-8'en'x; filename=y", "[f|x|-]x.!");
    DISPOSITION("filename=a; size=3; name=f", "[f|a|-]x.!");
    LINES("content-disposition:form-data;name=f\t \r\nX-Other: what ever; it \"says", "[f|-|-]x.!");
    LINES("Content-Type: application/json \r\nContent-Disposition: form-data; name=metadata; filename=metadata",
          "[metadata|metadata|application/json]x.!");
}

static void test_refused_heads(void)
{
    LINES("X: y", " INVALID_REQUEST");
    READS("--B\r\n\r\nx\r\n--B--", " INVALID_REQUEST");
    DISPOSITION("filename=a", " INVALID_REQUEST");
    DISPOSITION("name=\"\"; filename=a", " INVALID_REQUEST");
    DISPOSITION("name=\"f", " INVALID_REQUEST");
    DISPOSITION("name=\"f\\\"", " INVALID_REQUEST");
    DISPOSITION("name=\"f\"x", " INVALID_REQUEST");
    DISPOSITION("name=", " INVALID_REQUEST");
    DISPOSITION("name", " INVALID_REQUEST");
    DISPOSITION("name=f g", " INVALID_REQUEST");
    DISPOSITION("name=f; name=f", " INVALID_REQUEST");
    DISPOSITION("name=f; filename=a; filename=b", " INVALID_REQUEST");
    DISPOSITION("name=f; filename*=utf-8''a; filename*=utf-8''b", " INVALID_REQUEST");
    DISPOSITION("name=f; filename*=latin-1''a", " INVALID_REQUEST");
    DISPOSITION("name=f; filename*=utf-8''a%00b", " INVALID_REQUEST");
    DISPOSITION("name=f; filename*=utf-8''a%ff", " INVALID_REQUEST");
    DISPOSITION("name=f; filename*=utf-8'a", " INVALID_REQUEST");
    LINES("Content-Disposition: attachment; name=f", " INVALID_REQUEST");
    LINES("Content-Disposition: form-data; name=f\r\nContent-Disposition: form-data; name=f", " INVALID_REQUEST");
    LINES("Content-Disposition: form-data; name=f\r\nContent-Type: multipart/mixed; boundary=C", " INVALID_REQUEST");
    LINES("Content-Disposition: form-data; name=f\r\nContent-Type: a/b\r\nContent-Type: a/b", " INVALID_REQUEST");
    LINES("Content-Disposition: form-data; name=f\r\nContent-Transfer-Encoding: base64", " INVALID_REQUEST");
    LINES("Content-Disposition: form-data;\r\n name=f", " INVALID_REQUEST");
    LINES("Content-Disposition: form-data; name=f\nX: y", " INVALID_REQUEST");
    LINES("Content-Disposition: form-data; name=f\rX", " INVALID_REQUEST");
    LINES("Content-Disposition: form-data; name=\"f\x01\"", " INVALID_REQUEST");
    LINES("Content-Disposition : form-data; name=f", " INVALID_REQUEST");
    LINES(": form-data; name=f", " INVALID_REQUEST");
}

static void test_nul(void)
{
    static const char NAME[] = "--B\r\nContent-Disposition: form-data; name=f; filename=\"a\0b\"\r\n\r\nx\r\n--B--";
    AUTO_FREE char *seen = read_in(TYPE, NAME, sizeof NAME - 1, 7);
    CHECK_TEXT(seen, " INVALID_REQUEST");
    static const char DATA[] = "--B\r\n" HEAD "a\0b\r\n--B--";
    AUTO_FREE char *data = read_in(TYPE, DATA, sizeof DATA - 1, 7);
    CHECK(memcmp(data, "[f|a|-]a\0b.!", 12) == 0);
}

static char *repeat(const char *before, const char *unit, size_t count, const char *after)
{
    struct text body = {0};
    text_append_string(&body, before);
    for (size_t i = 0; i < count; i++)
        text_append_string(&body, unit);
    text_append_string(&body, after);
    return body.data;
}

static void expect_end(char *body, size_t step, const char *end)
{
    AUTO_FREE char *given = body;
    AUTO_FREE char *seen = read_in(TYPE, given, strlen(given), step);
    size_t length = strlen(seen), wanted = strlen(end);
    CHECK_TEXT(length < wanted ? seen : seen + length - wanted, end);
}

static void test_limits(void)
{
    const char *part = "--B\r\n" HEAD "x\r\n";
    for (size_t step = 1; step <= 4096; step *= 16) {
        expect_end(repeat("", part, PARTS_MAX, "--B--"), step, "[f|a|-]x.!");
        expect_end(repeat("", part, PARTS_MAX + 1, "--B--"), step, "[f|a|-]x. TOO_LARGE");
        expect_end(repeat("", "p", HTTP_MULTIPART_OUTSIDE_MAX + 1, "\r\n--B--"), step, " TOO_LARGE");
        expect_end(repeat("--B--", "e", HTTP_MULTIPART_OUTSIDE_MAX, ""), step, "!");
        expect_end(repeat("--B--", "e", HTTP_MULTIPART_OUTSIDE_MAX + 1, ""), step, "! TOO_LARGE");
        expect_end(repeat("--B", " ", HTTP_MULTIPART_OUTSIDE_MAX + 1, "\r\n"), step, " TOO_LARGE");
        expect_end(repeat("--B\r\nX: ", "x", HTTP_MULTIPART_HEAD_MAX, "\r\n" HEAD), step, " TOO_LARGE");
        expect_end(repeat("--B\r\n", "X: y\r\n", HTTP_MULTIPART_FIELDS_MAX, HEAD), step, " TOO_LARGE");
        expect_end(repeat("--B\r\n", "X: y\r\n", HTTP_MULTIPART_FIELDS_MAX - 1, HEAD "\r\n--B--"), step, "[f|a|-].!");
    }
}

static const char *boundary_of(const char *type)
{
    struct error err = {0};
    AUTO(http_multipart) *reader = http_multipart_new(type, 1, &err);
    return reader ? "good" : error_code(err.kind);
}

static void test_content_types(void)
{
    static const char *const GOOD[] = {
        "multipart/form-data; boundary=B",
        "Multipart/Form-Data;BOUNDARY=\"a b'()+_,-./:=?\"",
        "multipart/form-data; charset=utf-8; boundary=----WebKitFormBoundary7MA4YWxkTrZu0gW",
        "multipart/form-data; boundary=a=b/c",
        "multipart/form-data ; boundary=x;",
        "multipart/form-data; boundary=1234567890123456789012345678901234567890123456789012345678901234567890"};
    static const char *const BAD[] = {
        NULL,
        "",
        "multipart/form-data",
        "multipart/form-data; boundary=",
        "multipart/form-data; boundary=\"\"",
        "multipart/form-data; boundary=\"a \"",
        "multipart/form-data; boundary=a; boundary=b",
        "multipart/form-data; boundary=a; boundary=a",
        "multipart/form-data; boundary=a b",
        "multipart/form-data; boundary=\"a",
        "multipart/form-data; boundary=\"a\\\"b\"",
        "multipart/mixed; boundary=B",
        "multipart/form-datax; boundary=B",
        "application/json",
        "multipart/form-data, boundary=B",
        "multipart/form-data; boundary=12345678901234567890123456789012345678901234567890123456789012345678901"};
    for (size_t i = 0; i < sizeof GOOD / sizeof *GOOD; i++)
        CHECK_TEXT(boundary_of(GOOD[i]), "good");
    for (size_t i = 0; i < sizeof BAD / sizeof *BAD; i++)
        CHECK_TEXT(boundary_of(BAD[i]), "INVALID_REQUEST");
    CHECK(http_multipart_is("MULTIPART/form-data; x") && !http_multipart_is("multipart/form-data2"));
    CHECK(!http_multipart_is(NULL));
}

int main(void)
{
    test_forms();
    test_near_delimiters();
    test_cut_short();
    test_names();
    test_refused_heads();
    test_nul();
    test_limits();
    test_content_types();
    return check_done();
}
