/* kept_grants_test.c - what is kept for whom, for how long, and that nobody else finds it. */
#include "negotiator/passing/kept_grants.h"
#include "shared/base/cleanup.h"
#include "tests/unit/check.h"

#include <stdio.h>
#include <string.h>

static struct kept_grants *grants;
static struct kept_grant found;

static bool find(const char *credential, const char *sandbox, const char *purpose, uint64_t now)
{
    uint8_t key[KEPT_GRANTS_KEY_BYTES];
    kept_grants_key(grants, credential, sandbox, purpose, key);
    return kept_grants_find(grants, key, now, &found);
}

static void keep(const char *credential, const char *sandbox, const char *purpose, const char *token)
{
    uint8_t key[KEPT_GRANTS_KEY_BYTES];
    struct kept_grant grant = {.node = "n1"};
    (void)snprintf(grant.token, sizeof grant.token, "%s", token);
    kept_grants_key(grants, credential, sandbox, purpose, key);
    kept_grants_keep(grants, key, &grant, 100);
}

int main(void)
{
    uint8_t key[KEPT_GRANTS_KEY_BYTES], other[KEPT_GRANTS_KEY_BYTES];
    grants = kept_grants_new();
    CHECK(!find("pk_a", "sbx_1", "3000", 0));
    keep("pk_a", "sbx_1", "3000", "token-a");
    CHECK(find("pk_a", "sbx_1", "3000", 99) && strcmp(found.token, "token-a") == 0 && strcmp(found.node, "n1") == 0);
    CHECK(!find("pk_a", "sbx_1", "3000", 100)); /* it is over */
    CHECK(!find("pk_b", "sbx_1", "3000", 0) && !find("pk_a", "sbx_2", "3000", 0) && !find("pk_a", "sbx_1", "3001", 0));
    CHECK(!find("pk_as", "bx_1", "3000", 0) && !find("pk_a", "sbx_13", "000", 0)); /* no other cut is the same */
    keep("pk_a", "sbx_1", "3000", "token-b");
    CHECK(find("pk_a", "sbx_1", "3000", 0) && strcmp(found.token, "token-b") == 0);
    for (int i = 0; i < 5000; i++) { /* more than there is room for: some give way, none is mistaken for another */
        char name[32], token[32];
        (void)snprintf(name, sizeof name, "pk_%d", i);
        (void)snprintf(token, sizeof token, "token-%d", i);
        keep(name, "sbx_1", "3000", token);
        CHECK(find(name, "sbx_1", "3000", 0) && strcmp(found.token, token) == 0);
        (void)snprintf(name, sizeof name, "pk_%d", i / 2);
        (void)snprintf(token, sizeof token, "token-%d", i / 2);
        CHECK(!find(name, "sbx_1", "3000", 0) || strcmp(found.token, token) == 0);
    }
    keep("pk_a", "sbx_1", "3000", "token-c");
    kept_grants_key(grants, "pk_b", "sbx_1", "3000", key);
    kept_grants_drop(grants, key);
    CHECK(find("pk_a", "sbx_1", "3000", 0));
    kept_grants_key(grants, "pk_a", "sbx_1", "3000", key);
    kept_grants_drop(grants, key);
    kept_grants_drop(grants, key);
    CHECK(!find("pk_a", "sbx_1", "3000", 0));
    struct kept_grants *others = kept_grants_new(); /* each has a key of its own */
    kept_grants_key(others, "pk_a", "sbx_1", "3000", other);
    CHECK(memcmp(key, other, sizeof key) != 0);
    kept_grants_free(others);
    kept_grants_free(grants);
    kept_grants_free(NULL);
    return check_done();
}
