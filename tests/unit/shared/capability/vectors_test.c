/* Every vector of specs/capability-vectors.json. The file was written by an implementation of the specification that
 * shares nothing with this one (vectors_make.py). */
#include "shared/capability/capability.h"

#include "shared/base/memory.h"
#include "shared/base/text.h"
#include "tests/unit/check.h"

#include <jansson.h>

static struct key root;
static json_t *verifier;

static const char *text_of(const json_t *object, const char *name)
{
    const char *text = json_string_value(json_object_get(object, name));
    return text ? text : "";
}

static json_t *load(void)
{
    AUTO_FREE char *path = memory_string(__FILE__);
    char *tail = strstr(path, "tests/unit/");
    AUTO_FREE char *vectors = memory_printf("%.*sspecs/capability-vectors.json", tail ? (int)(tail - path) : 0, path);
    json_error_t error;
    json_t *loaded = json_load_file(vectors, JSON_REJECT_DUPLICATES, &error);
    if (!loaded)
        fprintf(stderr, "%s: %s\n", vectors, error.text);
    return loaded;
}

static bool read_key(struct key *key, const char *hex)
{
    return text_hex_decode(key->bytes, sizeof key->bytes, hex, strlen(hex));
}

static void test_kdf(const json_t *row)
{
    struct key from, want, made;
    const json_t *parts = json_object_get(row, "parts");
    const char *texts[3] = {NULL};
    CHECK(json_array_size(parts) < 3);
    for (size_t i = 0; i < json_array_size(parts) && i < 2; i++)
        texts[i] = json_string_value(json_array_get(parts, i));
    CHECK(read_key(&from, text_of(row, "key")) && read_key(&want, text_of(row, "result")));
    key_derive_parts(&made, &from, text_of(row, "label"), texts);
    CHECK(memcmp(made.bytes, want.bytes, KEY_BYTES) == 0);
    if (strcmp(text_of(row, "label"), "parley/node/1") == 0)
        key_node(&made, &from, texts[0], 1);
    else if (strcmp(text_of(row, "label"), "parley/sandbox/1") == 0)
        key_sandbox_root(&made, &from, texts[0]);
    else if (strcmp(text_of(row, "label"), "parley/token/1") == 0)
        key_token(&made, &from, (uint32_t)strtoul(texts[0], NULL, 10));
    else if (strcmp(text_of(row, "label"), "parley/link/1") == 0)
        key_link(&made, &from, texts[0]);
    CHECK(memcmp(made.bytes, want.bytes, KEY_BYTES) == 0);
}

static void test_covers(const json_t *row)
{
    struct scope_set outer, inner;
    const char *outer_text = text_of(row, "outer"), *inner_text = text_of(row, "inner");
    CHECK(scope_parse(&outer, outer_text, strlen(outer_text), SCOPE_UNKNOWN_REFUSED, NULL));
    CHECK(scope_parse(&inner, inner_text, strlen(inner_text), SCOPE_UNKNOWN_REFUSED, NULL));
    CHECK(scope_set_covers(&outer, &inner) == json_is_true(json_object_get(row, "covers")));
}

static void test_no_scope(const json_t *row)
{
    struct scope_set set;
    const char *text = json_string_value(row);
    CHECK(!scope_parse(&set, text, strlen(text), SCOPE_UNKNOWN_REFUSED, NULL));
    CHECK(scope_parse(&set, text, strlen(text), SCOPE_UNKNOWN_DROPPED, NULL) && set.count == 0);
}

static void test_attenuation(const json_t *row)
{
    const json_t *link = json_object_get(row, "link");
    struct capability_link asked = {.scope = json_string_value(json_object_get(link, "scope")),
                                    .expires_at = json_integer_value(json_object_get(link, "exp")),
                                    .note = json_string_value(json_object_get(link, "note"))};
    char made[CAPABILITY_TEXT_BYTES] = "";
    bool is_made = capability_attenuate(made, text_of(row, "token"), &asked, NULL);
    CHECK_TEXT(made, text_of(row, "result"));
    CHECK(is_made == json_is_string(json_object_get(row, "result")));
}

static void check_claims(const struct capability_claims *claims, const json_t *want)
{
    char scope[SCOPE_TEXT_BYTES];
    scope_format(&claims->scopes, scope);
    CHECK_TEXT(claims->issuer, text_of(want, "iss"));
    CHECK_TEXT(claims->sandbox_id, text_of(want, "aud"));
    CHECK_TEXT(claims->principal, text_of(want, "sub"));
    CHECK_TEXT(claims->jti, text_of(want, "jti"));
    CHECK_TEXT(claims->family, text_of(want, "fam"));
    CHECK_TEXT(scope, text_of(want, "scope"));
    CHECK_TEXT(claims->thread_id, text_of(want, "thread_id"));
    CHECK_TEXT(claims->lease, text_of(want, "lease"));
    CHECK_TEXT(claims->actor, text_of(want, "act"));
    CHECK_TEXT(claims->note, text_of(want, "note"));
    CHECK(claims->issued_at == json_integer_value(json_object_get(want, "iat")));
    CHECK(claims->expires_at == json_integer_value(json_object_get(want, "exp")));
    CHECK(claims->epoch == json_integer_value(json_object_get(want, "epoch")));
    CHECK(claims->long_lived == json_is_true(json_object_get(want, "long")));
    const json_t *ids = json_object_get(want, "link_ids");
    CHECK(claims->link_count == json_array_size(ids));
    for (size_t i = 0; i < claims->link_count && i < json_array_size(ids); i++)
        CHECK_TEXT(claims->link_ids[i], json_string_value(json_array_get(ids, i)));
}

static void test_token(const json_t *row)
{
    int failures_before = check_failures;
    const json_t *epoch = json_object_get(row, "epoch"), *in_force = json_object_get(verifier, "epoch");
    struct capability_expectation expected = {.issuer = text_of(verifier, "issuer"),
                                              .sandbox_id = text_of(verifier, "sandbox_id"),
                                              .root = &root,
                                              .epoch = (uint32_t)json_integer_value(epoch ? epoch : in_force),
                                              .unknown = json_is_true(json_object_get(row, "unknown"))};
    static struct capability_claims claims, cached, decoded;
    const char *token = text_of(row, "token");
    int64_t now = json_integer_value(json_object_get(row, "now"));
    AUTO(capability_cache) *cache = capability_cache_new(4);
    enum capability_refusal refusal = capability_verify(&claims, &expected, token, strlen(token), now, NULL);
    CHECK_TEXT(capability_refusal_name(refusal), text_of(row, "refusal"));
    for (int i = 0; i < 2; i++)
        CHECK(capability_cache_verify(cache, &cached, &expected, token, strlen(token), now, NULL) == refusal);
    if (refusal == CAPABILITY_OK) {
        check_claims(&claims, json_object_get(row, "claims"));
        check_claims(&cached, json_object_get(row, "claims"));
        CHECK(capability_decode(&decoded, token, strlen(token), NULL));
        CHECK_TEXT(decoded.jti, claims.jti);
    }
    if (check_failures > failures_before)
        fprintf(stderr, "vectors_test: in \"%s\"\n", text_of(row, "name"));
}

static void test_rows(const json_t *vectors, const char *name, void (*test)(const json_t *), size_t least)
{
    const json_t *rows = json_object_get(vectors, name);
    CHECK(json_array_size(rows) >= least);
    for (size_t i = 0; i < json_array_size(rows); i++)
        test(json_array_get(rows, i));
}

int main(void)
{
    keys_start();
    json_t *vectors = load();
    if (!vectors)
        return 1;
    verifier = json_object_get(vectors, "verifier");
    CHECK(read_key(&root, text_of(verifier, "root")));
    test_rows(vectors, "kdf", test_kdf, 8);
    test_rows(vectors, "scopes", test_covers, 19);
    test_rows(vectors, "no_scopes", test_no_scope, 18);
    test_rows(vectors, "attenuations", test_attenuation, 12);
    test_rows(vectors, "tokens", test_token, 110);
    json_decref(vectors);
    return check_done();
}
