/* plain_test.c - bytes of a kernel become UTF-8 without colours, and no character is torn between two reads. */
#include "sandboxd/helpers/jupyter/plain.h"

#include "tests/unit/check.h"

static void check_uncoloured(const char *from, const char *want)
{
    AUTO_TEXT text = {0};
    plain_append_uncoloured(&text, from, strlen(from));
    CHECK_TEXT(text.data ? text.data : "", want);
}

static void test_colours(void)
{
    check_uncoloured("\033[0;31mred\033[0m and \033[1mbold", "red and bold");
    check_uncoloured("\033]0;title\aafter", "after");
    check_uncoloured("\033]8;;http://x\033\\link", "link");
    check_uncoloured("a\033Mb", "ab");
    check_uncoloured("a\033\xc3\xa4", "a\xc3\xa4"); /* not half a character */
    check_uncoloured("\033", "");
    check_uncoloured("x\033[31", "x");
    check_uncoloured("", "");
}

/* In pieces of every size the whole comes out as at once. */
static void test_stream(void)
{
    static const char TEXT[] = "a\xc3\xa4\xe2\x82\xac\xf0\x9f\x98\x80z";
    for (size_t piece = 1; piece < sizeof TEXT; piece++) {
        AUTO_TEXT got = {0};
        AUTO_TEXT rest = {0};
        for (size_t at = 0; at < sizeof TEXT - 1; at += piece) {
            size_t size = at + piece <= sizeof TEXT - 1 ? piece : sizeof TEXT - 1 - at;
            text_append(&rest, TEXT + at, size);
            size_t taken = plain_append_stream(&got, rest.data, rest.length);
            CHECK(taken + 3 >= rest.length);
            memmove(rest.data, rest.data + taken, rest.length - taken + 1);
            rest.length -= taken;
        }
        CHECK(rest.length == 0);
        CHECK_TEXT(got.data, TEXT);
    }
}

static void test_not_utf8(void)
{
    AUTO_TEXT got = {0};
    CHECK(plain_append_stream(&got, "\x80\xff\xc0z\xc3", 5) == 4);
    CHECK_TEXT(got.data, "\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbdz");
    AUTO_TEXT rest = {0};
    plain_append_utf8(&rest, "\xc3", 1);
    CHECK_TEXT(rest.data, "\xef\xbf\xbd");
}

int main(void)
{
    test_colours();
    test_stream();
    test_not_utf8();
    return check_done();
}
