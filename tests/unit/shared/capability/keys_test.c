/* The key tree: known answers are in specs/capability-vectors.json (vectors_test.c); here, that keys differ where they
 * must, and that secrets are wiped. */
#include "shared/capability/keys.h"

#include "tests/unit/check.h"

#include <stdbool.h>

static bool same(const struct key *a, const struct key *b)
{
    return memcmp(a->bytes, b->bytes, KEY_BYTES) == 0;
}

static void test_parts_are_told_apart(void)
{
    struct key from = {{1}}, a, b, c, again;
    key_derive(&a, &from, "parley/x/1", "ab", "c");
    key_derive(&b, &from, "parley/x/1", "a", "bc");
    key_derive(&c, &from, "parley/x/1a", "b", "c");
    key_derive(&again, &from, "parley/x/1", "ab", "c");
    CHECK(same(&a, &again));
    CHECK(!same(&a, &b) && !same(&a, &c) && !same(&b, &c));
    key_derive(&b, &from, "parley/x/1", "ab", "c", "");
    CHECK(!same(&a, &b));
    key_derive(&a, &from, "parley/x/1");
    key_derive(&b, &from, "parley/x/1", "");
    CHECK(!same(&a, &b) && !same(&a, &from));
}

static void test_tree(void)
{
    struct key master, node, root, token, other;
    key_random(&master);
    key_node(&node, &master, "n1", 1);
    key_node(&other, &master, "n1", 2);
    CHECK(!same(&node, &other));
    key_node(&other, &master, "n2", 1);
    CHECK(!same(&node, &other));
    key_sandbox_root(&root, &node, "sbx_1");
    key_token(&token, &root, 1);
    key_token(&other, &root, 4294967295U);
    CHECK(!same(&token, &other) && !same(&token, &root));
    key_derive(&other, &root, "parley/token/1", "1");
    CHECK(same(&token, &other));
    key_link(&token, &node, "negotiator");
    key_link(&other, &node, "sandboxd");
    CHECK(!same(&token, &other));
}

static void test_random_and_wiped(void)
{
    struct key a, b, zero = {{0}};
    key_random(&a);
    key_random(&b);
    CHECK(!same(&a, &b));
    key_done(&a);
    CHECK(same(&a, &zero));
}

int main(void)
{
    keys_start();
    keys_start();
    test_parts_are_told_apart();
    test_tree();
    test_random_and_wiped();
    return check_done();
}
