/* preview_rules_test.c - addresses, cookies and origins of previews, with those that are made to be misread. */
#include "sandboxd/dialects/native/previews/preview_rules.h"
#include "tests/unit/check.h"

#define LONG "9999999999999999999999999999999999999999999999999999999999999999999999999999999999999999"

static void test_labels(void)
{
    struct preview_label label = {0};
    struct error err = {0};
    CHECK(preview_label_parse(&label, "3000-sbx-1a2b", &err) && label.port == 3000 && !label.is_port_last);
    CHECK_TEXT(label.sandbox, "sbx-1a2b");
    CHECK(preview_label_parse(&label, "65535-x", &err) && label.port == 65535);
    CHECK(preview_label_parse(&label, "sbx-1a2b-3000", &err) && label.port == 3000 && label.is_port_last);
    CHECK_TEXT(label.sandbox, "sbx-1a2b");
    CHECK(preview_label_parse(&label, "3000-sbx-4000", &err) && label.port == 3000 && !label.is_port_last);
    static const char *const BAD[] = {
        "",          "-",          "3000",          "3000-",     "0-sbx",      "65536-sbx",
        "03000-sbx", "+3000-sbx",  "3000 -sbx",     "0x10-sbx",  "a-sbx",      "3000-sbx.evil",
        "3000.sbx",  "x.3000-sbx", "3000-sbx@evil", "3000-sb/x", "3000--\x80", "99999999999-sbx",
        "3e3-sbx",   "3000-sb_x",  "-3000",         "sbx-03000", "sbx-65536",  "sbx-0",
        "s.x-3000",  "sb_x-3000",  "sbx-+3",        "sbx-3000-", "sbx-" LONG "-1"};
    for (size_t i = 0; i < sizeof BAD / sizeof BAD[0]; i++) {
        if (preview_label_parse(&label, BAD[i], &err))
            fprintf(stderr, "taken: %s\n", BAD[i]);
        CHECK(!preview_label_parse(&label, BAD[i], &err) && err.kind == ERROR_NOT_FOUND);
    }
    CHECK(preview_label_is_of("sbx-1a2b", "sbx_1a2b"));
    CHECK(!preview_label_is_of("sbx-1a2", "sbx_1a2b"));
    CHECK(!preview_label_is_of("sbx-1a2bc", "sbx_1a2b"));
    CHECK(!preview_label_is_of("sbx-1a2c", "sbx_1a2b"));
    CHECK(!preview_label_is_of("", "sbx_1a2b"));
}

static void check_cookies(const char *header, const char *left, const char *first)
{
    AUTO_TEXT stripped = {0};
    preview_cookie_strip(&stripped, header);
    CHECK_TEXT(stripped.data != NULL ? stripped.data : "", left);
    const char *at = header;
    size_t size = 0;
    const char *value = preview_cookie_next(&at, preview_cookie_name(false), &size);
    CHECK((value != NULL) == (first != NULL));
    CHECK(value == NULL || (size == strlen(first) && memcmp(value, first, size) == 0));
}

static void test_cookies(void)
{
    check_cookies("a=1; parley_preview=tok; b=2", "a=1; b=2", "tok");
    check_cookies("parley_preview=tok", "", "tok");
    check_cookies("parley_preview=one; parley_preview=two", "", "one");
    check_cookies(" ;; a=1;parley_preview = tok ;b", "a=1; b", " tok");
    check_cookies("Parley_Preview=tok; a=1", "a=1", "tok");
    check_cookies("__Host-parley_preview=tok; a=1", "a=1", NULL);
    check_cookies("xparley_preview=1; parley_previewx=2", "xparley_preview=1; parley_previewx=2", NULL);
    check_cookies("parley_preview", "parley_preview", NULL);
    check_cookies("a=\"x; parley_preview=tok\"", "a=\"x", "tok\"");
    check_cookies(NULL, "", NULL);
}

static void check_set(const char *given, const char *wanted)
{
    AUTO_TEXT text = {0};
    bool goes_on = preview_set_cookie_filter(&text, given);
    CHECK(goes_on == (wanted != NULL));
    if (wanted != NULL)
        CHECK_TEXT(text.data, wanted);
}

static void test_set_cookies(void)
{
    check_set("a=1; Path=/; HttpOnly", "a=1; Path=/; HttpOnly");
    check_set("a=1; Domain=localhost; Path=/", "a=1; Path=/");
    check_set("a=1;domain=.example.com", "a=1");
    check_set("a=1; DOMAIN =x; Domain; domainx=1", "a=1; domainx=1");
    check_set("parley_preview=evil", NULL);
    check_set("PARLEY_PREVIEW =evil; Path=/", NULL);
    check_set("  parley_preview=evil", NULL);
    check_set("__Host-parley_preview=evil; Secure", NULL);
    check_set("=parley_preview=evil", NULL); /* browsers would send it without the first = */
    check_set("parley_preview", NULL);
    check_set("; a=1", NULL);
    check_set("", NULL);
}

static void test_origins(void)
{
    CHECK(preview_origin_is_own("http://3000-sbx.localhost:8701", "3000-sbx.localhost:8701"));
    CHECK(preview_origin_is_own("https://3000-SBX.localhost", "3000-sbx.localhost"));
    static const char *const BAD[] = {"null",
                                      "",
                                      "http://3001-sbx.localhost:8701",
                                      "http://3000-sbx.localhost",
                                      "http://3000-sbx.localhost:8701.evil",
                                      "http://evil/3000-sbx.localhost:8701",
                                      "file://3000-sbx.localhost:8701",
                                      "http:3000-sbx.localhost:8701",
                                      "http://x@3000-sbx.localhost:8701",
                                      "chrome-extension://3000-sbx.localhost:8701"};
    for (size_t i = 0; i < sizeof BAD / sizeof BAD[0]; i++)
        CHECK(!preview_origin_is_own(BAD[i], "3000-sbx.localhost:8701"));
    CHECK(!preview_origin_is_own(NULL, "3000-sbx.localhost"));
    CHECK(!preview_origin_is_own("http://x", NULL));
}

static void check_location(const char *target, const char *wanted)
{
    AUTO_TEXT text = {0};
    preview_location(&text, target);
    CHECK_TEXT(text.data, wanted);
}

int main(void)
{
    test_labels();
    test_cookies();
    test_set_cookies();
    test_origins();
    check_location("/a?b=1", "/a?b=1");
    check_location("/", "/");
    check_location("//evil.com/x", "/.//evil.com/x");
    check_location("/\\evil.com", "/./\\evil.com");
    CHECK(!preview_is_token("abc") && !preview_is_token("") && !preview_is_token(NULL));
    CHECK(!preview_is_token("eyJhbGciOiJIUzI1NiJ9.e30.AAAA"));
    return check_done();
}
