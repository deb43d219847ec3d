/* text_test.c - copies that do not fit, numbers, strict base64 and hex, UTF-8, the growing buffer. */
#include "shared/base/text.h"
#include "tests/unit/check.h"

#include "shared/base/random.h"

static void test_copies(void)
{
    char small[4] = "old";
    CHECK(text_copy(small, sizeof small, "abc"));
    CHECK_TEXT(small, "abc");
    CHECK(!text_copy(small, sizeof small, "abcd"));
    CHECK_TEXT(small, "");
    CHECK(!text_copy(small, sizeof small, NULL));
    CHECK(!text_copy(small, 0, ""));
    CHECK(text_copy(small, 1, ""));
    CHECK(text_format(small, sizeof small, "%d", 123));
    CHECK_TEXT(small, "123");
    CHECK(!text_format(small, sizeof small, "%d", 1234));
    CHECK_TEXT(small, "");
    CHECK(text_equal(NULL, NULL) && text_equal("a", "a"));
    CHECK(!text_equal(NULL, "") && !text_equal("a", NULL) && !text_equal("a", "b"));
    CHECK(text_starts_with("abc", "ab") && text_starts_with("abc", "") && text_starts_with("abc", "abc"));
    CHECK(!text_starts_with("ab", "abc") && !text_starts_with(NULL, "a"));
    CHECK(text_is_made_of("aZ9-_", 5, "-_"));
    CHECK(!text_is_made_of("aZ9-_", 4, "-_"));
    CHECK(!text_is_made_of("", 5, "-_") && !text_is_made_of(NULL, 5, "-_"));
    CHECK(!text_is_made_of("a/b", 5, "-_") && !text_is_made_of("a\xC3\xA4", 5, "-_") &&
          !text_is_made_of("a\nb", 9, ""));
    CHECK(text_is_name("a.b_-", 5) && text_is_name("...", 3) && !text_is_name("...", 2) && !text_is_name("", 5));
    CHECK(!text_is_name(".", 5) && !text_is_name("..", 5) && !text_is_name("a/b", 5));
}

static bool parses(const char *text, uint64_t max, uint64_t *value)
{
    return text_parse_u64(text, strlen(text), max, value);
}

static void test_numbers(void)
{
    uint64_t value = 77;
    static const char *const BAD[] = {
        "", "00", "01", "+1", "-1", " 1", "1 ", "0x1", "1.0", "1e3", "18446744073709551616", "99999999999999999999999"};
    for (size_t i = 0; i < sizeof BAD / sizeof BAD[0]; i++)
        CHECK(!parses(BAD[i], UINT64_MAX, &value));
    CHECK(!parses("11", 10, &value));
    CHECK(!text_parse_u64("1\0", 2, 10, &value) && !text_parse_u64(NULL, 0, 10, &value));
    CHECK(value == 77); /* untouched */
    CHECK(parses("0", 0, &value) && value == 0);
    CHECK(parses("10", 10, &value) && value == 10);
    CHECK(parses("18446744073709551615", UINT64_MAX, &value) && value == UINT64_MAX);
    CHECK(text_parse_u64("123", 2, 99, &value) && value == 12);
}

static const struct {
    const char *plain, *url, *padded; /* RFC 4648, 10 */
} VECTORS[] = {{"", "", ""},
               {"f", "Zg", "Zg=="},
               {"fo", "Zm8", "Zm8="},
               {"foo", "Zm9v", "Zm9v"},
               {"foob", "Zm9vYg", "Zm9vYg=="},
               {"fooba", "Zm9vYmE", "Zm9vYmE="},
               {"foobar", "Zm9vYmFy", "Zm9vYmFy"},
               {"\xfb\xff\xfe", "-__-", "+//+"}};

static void test_base64_vectors(void)
{
    for (size_t i = 0; i < sizeof VECTORS / sizeof VECTORS[0]; i++) {
        char text[64];
        uint8_t bytes[16];
        size_t size = 99;
        size_t plain = strlen(VECTORS[i].plain);
        CHECK(text_base64url_encode(text, VECTORS[i].plain, plain) == strlen(VECTORS[i].url));
        CHECK(TEXT_BASE64URL_LENGTH(plain) == strlen(VECTORS[i].url));
        CHECK_TEXT(text, VECTORS[i].url);
        CHECK(text_base64url_decode(bytes, sizeof bytes, &size, text, strlen(text)));
        CHECK(size == plain && memcmp(bytes, VECTORS[i].plain, plain) == 0);
        CHECK(text_base64_encode(text, VECTORS[i].plain, plain) == strlen(VECTORS[i].padded));
        CHECK_TEXT(text, VECTORS[i].padded);
        size = 99;
        CHECK(text_base64_decode(bytes, plain, &size, text, strlen(text))); /* fits exactly */
        CHECK(size == plain && memcmp(bytes, VECTORS[i].plain, plain) == 0);
        if (plain > 0)
            CHECK(!text_base64url_decode(bytes, plain - 1, &size, VECTORS[i].url, strlen(VECTORS[i].url)));
    }
}

static void test_base64_refusals(void)
{
    uint8_t bytes[16] = {42};
    size_t size = 99;
    static const char *const BAD_URL[] = {"Z",    "Zg==", "Zm8=",   "Zh",   "Zm9", "Zm9vY",     "Zm 8",
                                          "Zm+v", "Zm/v", "Zm9v\n", "====", "Z=g", "\xC3\xA4zz"};
    for (size_t i = 0; i < sizeof BAD_URL / sizeof BAD_URL[0]; i++)
        CHECK(!text_base64url_decode(bytes, sizeof bytes, &size, BAD_URL[i], strlen(BAD_URL[i])));
    static const char *const BAD[] = {"Zg",   "Zg=",  "Zm8",  "Zh==", "Zm9=",     "=",     "==",   "===",
                                      "====", "Z===", "Zm-v", "Zm_v", "Zg==Zg==", "Zm9v=", "Zm\n="};
    for (size_t i = 0; i < sizeof BAD / sizeof BAD[0]; i++)
        CHECK(!text_base64_decode(bytes, sizeof bytes, &size, BAD[i], strlen(BAD[i])));
    CHECK(!text_base64url_decode(bytes, sizeof bytes, &size, "Zm9\0",
                                 4));    /* a NUL is in strchr's alphabet, not in ours */
    CHECK(bytes[0] == 42 && size == 99); /* untouched */
    CHECK(text_base64url_decode(NULL, 0, &size, "", 0) && size == 0);
}

static void test_hex(void)
{
    char text[9];
    uint8_t bytes[4] = {9};
    text_hex(text, "\x00\xff\x5a\x10", 4);
    CHECK_TEXT(text, "00ff5a10");
    CHECK(!text_hex_decode(bytes, 4, "00ff5a1", 7) && !text_hex_decode(bytes, 3, "00ff5a10", 8));
    CHECK(!text_hex_decode(bytes, 4, "00ff5a1g", 8) && !text_hex_decode(bytes, 4, NULL, 8));
    CHECK(bytes[0] == 9);
    CHECK(text_hex_decode(bytes, 4, "00FF5a10", 8) && memcmp(bytes, "\x00\xff\x5a\x10", 4) == 0);
}

static size_t utf8(const char *text)
{
    return text_utf8_prefix(text, strlen(text));
}

static void test_utf8(void)
{
    static const char *const GOOD[] = {"",
                                       "plain ASCII that is longer than eight",
                                       "\xC2\x80 \xDF\xBF",
                                       "\xE0\xA0\x80\xED\x9F\xBF\xEE\x80\x80\xEF\xBF\xBF",
                                       "\xF0\x90\x80\x80\xF4\x8F\xBF\xBF",
                                       "12345678\xE2\x82\xACxyzxyzxyz"};
    for (size_t i = 0; i < sizeof GOOD / sizeof GOOD[0]; i++)
        CHECK(utf8(GOOD[i]) == strlen(GOOD[i]));
    /* Overlong, surrogates, beyond U+10FFFF, stray and missing continuations (RFC 3629, 10). */
    static const char *const BAD[] = {"ab\xC0\x80",
                                      "ab\xC1\xBF",
                                      "ab\xE0\x9F\xBF",
                                      "ab\xED\xA0\x80",
                                      "ab\xED\xBF\xBF",
                                      "ab\xF0\x8F\xBF\xBF",
                                      "ab\xF4\x90\x80\x80",
                                      "ab\xF5\x80\x80\x80",
                                      "ab\x80",
                                      "ab\xBF zz",
                                      "ab\xC2",
                                      "ab\xE2\x82",
                                      "ab\xF0\x9F\x98",
                                      "ab\xE2\x28\xA1",
                                      "ab\xFE",
                                      "ab\xFF",
                                      "ab\xE2\x82 xyzxyzxyzxyz"};
    for (size_t i = 0; i < sizeof BAD / sizeof BAD[0]; i++)
        CHECK(utf8(BAD[i]) == 2);
    CHECK(text_utf8_prefix("a\0b", 3) == 3);
    /* The eight at once must not hide a bad byte at any place. */
    for (size_t at = 0; at < 24; at++) {
        char text[24];
        memset(text, 'a', sizeof text);
        text[at] = (char)0xFF;
        CHECK(text_utf8_prefix(text, sizeof text) == at);
    }
}

static void test_buffer(void)
{
    AUTO_TEXT text = {0};
    CHECK(text.data == NULL);
    text_append(&text, NULL, 0);
    CHECK_TEXT(text.data, "");
    text_append_string(&text, "one");
    text_append_format(&text, " %d %s", 2, "three");
    text_append(&text, "\0!", 2);
    CHECK(text.length == 13 && memcmp(text.data, "one 2 three\0!", 14) == 0);
    for (int i = 0; i < 10000; i++)
        text_append_string(&text, "abc");
    CHECK(text.length == 13 + 30000 && text.data[text.length] == '\0' && text.capacity > text.length);
    CHECK(memcmp(text.data + 13 + 29997, "abc", 4) == 0);
    /* Just at the border of the capacity. */
    AUTO_TEXT other = {0};
    for (size_t i = 0; i < 300; i++) {
        text_append(&other, "x", 1);
        CHECK(other.length == i + 1 && other.data[i + 1] == '\0');
    }
    text_done(&other);
    CHECK(other.data == NULL && other.length == 0 && other.capacity == 0);
}

static void test_round_trips(void)
{
    for (size_t size = 0; size < 70; size++) {
        uint8_t bytes[70];
        uint8_t again[70];
        char text[150];
        size_t got = 0;
        random_bytes(bytes, sizeof bytes);
        size_t length = text_base64url_encode(text, bytes, size);
        CHECK(text_base64url_decode(again, size, &got, text, length) && got == size && memcmp(again, bytes, size) == 0);
        length = text_base64_encode(text, bytes, size);
        CHECK(text_base64_decode(again, size, &got, text, length) && got == size && memcmp(again, bytes, size) == 0);
        text_hex(text, bytes, size);
        CHECK(text_hex_decode(again, size, text, 2 * size) && memcmp(again, bytes, size) == 0);
    }
}

int main(void)
{
    test_copies();
    test_numbers();
    test_base64_vectors();
    test_base64_refusals();
    test_hex();
    test_utf8();
    test_buffer();
    test_round_trips();
    return check_done();
}
