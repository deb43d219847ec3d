/* What libparley offers holders of tokens: narrowing one, against the vectors of specs/capability-vectors.json that an
 * implementation of the specification wrote which shares nothing with this one; and capability URLs. */
#include "clients/c/attenuate.h"
#include "clients/c/capability_url.h"

#include "shared/base/memory.h"
#include "shared/base/text.h"
#include "tests/unit/check.h"

#include <jansson.h>
#include <string.h>

static json_t *load(void)
{
    AUTO_FREE char *path = memory_string(__FILE__);
    char *tail = strstr(path, "tests/unit/");
    AUTO_FREE char *vectors = memory_printf("%.*sspecs/capability-vectors.json", tail ? (int)(tail - path) : 0, path);
    return json_load_file(vectors, JSON_REJECT_DUPLICATES, NULL);
}

static void test_vector(const json_t *row)
{
    const json_t *link = json_object_get(row, "link");
    const struct attenuation wanted = {.scopes = json_string_value(json_object_get(link, "scope")),
                                       .expires_at_s = json_integer_value(json_object_get(link, "exp")),
                                       .note = json_string_value(json_object_get(link, "note"))};
    const char *result = json_string_value(json_object_get(row, "result"));
    struct error err = {0};
    AUTO_FREE char *made = attenuate(json_string_value(json_object_get(row, "token")), &wanted, &err);
    CHECK((made == NULL) == (result == NULL));
    CHECK_TEXT(made ? made : "", result ? result : "");
    CHECK(made || (err.kind == ERROR_INVALID && err.message[0]));
}

static void test_what_is_a_url(void)
{
    CHECK(capability_url_is("http://127.0.0.1:8701/c/a.b.c/"));
    CHECK(capability_url_is("https://host/c/x"));
    CHECK(!capability_url_is(NULL) && !capability_url_is("") && !capability_url_is("-"));
    CHECK(!capability_url_is("http://127.0.0.1:8700"));
    CHECK(!capability_url_is("http://host/s/sbx_1/c/x"));
    CHECK(!capability_url_is("ftp://host/c/x"));
    CHECK(!capability_url_is("/c/x/"));
}

/* The first token of the vectors that is sound. */
static void test_grant_of_a_url(const char *token)
{
    const char *const bad[] = {"", "/files/x", "/?a=b", "x"};
    struct error err = {0};
    AUTO_FREE char *url = memory_printf("https://host:1234/c/%s/", token);
    struct place place = {.capability = url, .api_key = NULL};
    AUTO_GRANT grant = {0};
    CHECK(capability_url_grant(&grant, &place, &err));
    CHECK_TEXT(grant.token, token);
    CHECK_TEXT(grant.http, "https://host:1234/s/sbx_a1b2c3d4e5f6g7h8i9j0");
    CHECK(grant.refresh_ms > grant.expires_ms); /* without a key of one's own nothing is renewed */
    AUTO_FREE char *again = capability_url_make(&grant);
    CHECK_TEXT(again, url);
    struct place named = {.capability = url, .api_key = url};
    AUTO_GRANT renewed = {0};
    CHECK(capability_url_grant(&renewed, &named, &err));
    CHECK(renewed.refresh_ms < renewed.expires_ms);
    for (size_t i = 1; i < sizeof bad / sizeof *bad; i++) {
        AUTO_FREE char *wrong = memory_printf("https://host:1234/c/%s%s", token, bad[i]);
        struct place other = {.capability = wrong};
        struct grant none = {0};
        CHECK(!capability_url_grant(&none, &other, &err) && err.kind == ERROR_INVALID && none.token == NULL);
    }
}

int main(void)
{
    json_t *vectors = load();
    size_t i;
    const json_t *row;
    bool was_sound = false;
    CHECK(json_array_size(json_object_get(vectors, "attenuations")) > 10);
    json_array_foreach (json_object_get(vectors, "attenuations"), i, row)
        test_vector(row);
    json_array_foreach (json_object_get(vectors, "tokens"), i, row) {
        bool is_root = json_array_size(json_object_get(json_object_get(row, "claims"), "link_ids")) == 0;
        const char *sub = json_string_value(json_object_get(json_object_get(row, "claims"), "sub"));
        if (was_sound || !sub || strncmp(sub, "share:", 6) == 0 || !is_root)
            continue;
        test_grant_of_a_url(json_string_value(json_object_get(row, "token")));
        was_sound = true;
    }
    CHECK(was_sound);
    test_what_is_a_url();
    json_decref(vectors);
    return check_done();
}
