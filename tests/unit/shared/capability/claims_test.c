/* The claims reader against jansson: whatever it takes, jansson takes with the same values; and a sample of what both,
 * or only jansson, would take. The refusals one by one are in capability_verify_test.c. */
#include "shared/capability/claims.h"

#include "tests/unit/shared/capability/claims_compare.h"
#include "tests/unit/shared/capability/forge.h"

static bool reads(const char *json, size_t length)
{
    static struct capability_claims claims;
    struct error err = {0};
    bool is_read = claims_read(&claims, json, length, &err);
    CHECK(is_read || err.kind == ERROR_INVALID);
    CHECK(!is_read || claims_agree(&claims, json, length));
    return is_read;
}

static void test_any_order(void)
{
    static const char REORDERED[] =
        "{\"act\":\"human\",\"long\":true,\"exp\":0,\"lease\":\"l\",\"thread_id\":\"t\","
        "\"scope\":\"code\",\"iat\":253402300799,\"fam\":\"f\",\"jti\":\"j\",\"sub\":\"s/ \","
        "\"aud\":\"a\",\"iss\":\"i\"}";
    CHECK(reads(REORDERED, strlen(REORDERED)));
    CHECK(reads(FORGE_CLAIMS, strlen(FORGE_CLAIMS)));
}

static void test_written_is_read(void)
{
    static struct capability_claims claims, again;
    char json[CLAIMS_JSON_BYTES];
    CHECK(claims_read(&claims, FORGE_CLAIMS, strlen(FORGE_CLAIMS), NULL));
    CHECK(claims_write(json, &claims, NULL));
    CHECK_TEXT(json, FORGE_CLAIMS);
    memset(claims.principal, 'p', sizeof claims.principal - 1);
    memset(claims.actor + 6, 'a', sizeof claims.actor - 7);
    memset(claims.thread_id, 't', sizeof claims.thread_id - 1);
    CHECK(claims_write(json, &claims, NULL) && reads(json, strlen(json)));
    CHECK(claims_read(&again, json, strlen(json), NULL));
    CHECK_TEXT(again.actor, claims.actor);
    strcat(json, "x");
    CHECK(!reads(json, strlen(json)));
}

/* Every cut, and every byte exchanged for each of these. */
static void test_near_misses(void)
{
    static const char BYTES[] = "{}[]:,\"\\ 0-.aetx\n\177\200";
    char json[] = FORGE_CLAIMS;
    const size_t length = strlen(json);
    for (size_t cut = 0; cut < length; cut++)
        CHECK(!reads(json, cut));
    for (size_t at = 0; at < length; at++) {
        char kept = json[at];
        for (size_t i = 0; i < sizeof BYTES; i++) { /* and NUL */
            json[at] = BYTES[i];
            (void)!reads(json, length);
        }
        json[at] = kept;
    }
    CHECK(reads(json, length));
}

int main(void)
{
    test_any_order();
    test_written_is_read();
    test_near_misses();
    return check_done();
}
