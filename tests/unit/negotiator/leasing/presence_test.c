/* Goal: what a node told is kept as it told it: lists replace, differences change, a new incarnation begins anew; and
 * what follows from it is never more than what it proves. */
#include "negotiator/leasing/presence.h"

#include "tests/unit/check.h"

#include <stdio.h>
#include <string.h>

static const char A[] = "sbx_aaaaaaaaaaaaaaaaaaaa", B[] = "sbx_bbbbbbbbbbbbbbbbbbbb", C[] = "sbx_cccccccccccccccccccc";

static json_t *told(const char *id, int64_t active, int64_t deadline, int epoch)
{
    return json_pack("{s:s, s:I, s:I, s:i, s:i, s:i}", "id", id, "active_at", (json_int_t)active, "deadline",
                     (json_int_t)deadline, "epoch", epoch, "cpu_ms", 5, "memory_bytes", 4096);
}

/* Takes both lists. */
static void take(struct presence_node *node, bool full, json_t *sandboxes, json_t *ended)
{
    json_t *message = json_pack("{s:o, s:o}", "sandboxes", sandboxes, "ended", ended);
    presence_take(node, message, full);
    json_decref(message);
}

static size_t picked(struct presence_node *node)
{
    size_t count = 0;
    while (presence_pick(node))
        count++;
    return count;
}

static void test_lists_and_differences(void)
{
    struct presence presence = {.nodes = NULL};
    CHECK(presence_find(&presence, "n1") == NULL && presence_entry(NULL, A) == NULL);
    struct presence_node *node = presence_node(&presence, "n1");
    CHECK(presence_node(&presence, "n1") == node && presence_find(&presence, "n1") == node);
    CHECK(presence_node(&presence, "n2") != node);
    presence_hear(node, 1, 1000);
    take(node, true, json_pack("[o, o]", told(A, 10, 100, 1), told(B, 20, 200, 1)), json_array());
    CHECK(node->has_list && node->count == 2 && picked(node) == 2 && picked(node) == 0);
    CHECK(presence_entry(node, A)->active_ms == 10 && presence_entry(node, A)->usage.memory_bytes == 4096);
    /* A sign of life is nothing to ask the ledger about; another deadline or epoch is. */
    presence_hear(node, 1, 2000);
    take(node, false, json_pack("[o]", told(A, 30, 100, 1)), json_array());
    CHECK(presence_entry(node, A)->active_ms == 30 && node->count == 2 && picked(node) == 0);
    take(node, false, json_pack("[o]", told(A, 30, 150, 1)), json_array());
    CHECK(picked(node) == 1);
    take(node, false, json_pack("[o, o]", told(A, 30, 150, 2), told(C, 1, 1, 1)), json_pack("[{s:s}]", "id", B));
    CHECK(picked(node) == 2 && node->count == 2 && presence_entry(node, B) == NULL);
    take(node, true, json_pack("[o, o]", told(A, 40, 150, 2), told(B, 1, 1, 1)), json_array());
    CHECK(picked(node) == 1 && node->count == 2 && presence_entry(node, C) == NULL);
    /* What is no sandbox's id, and what is twice in it. */
    json_t *odd =
        json_pack("[o, o, o, s, {s:i}]", told(A, 1, 1, 1), told(A, 2, 1, 1), told("../x", 1, 1, 1), "x", "id", 7);
    take(node, true, odd, json_pack("[s, {s:s}]", "x", "id", "../x"));
    CHECK(node->count == 1 && presence_entry(node, A)->active_ms == 2);
    presence_hear(node, 2, 3000);
    CHECK(node->count == 0 && !node->has_list && node->previous_ms == 0 && picked(node) == 0);
    presence_done(&presence);
}

/* It was told anew while the ledger was being asked: it is to be asked again. */
static void test_versions(void)
{
    struct presence presence = {.nodes = NULL};
    struct presence_node *node = presence_node(&presence, "n1");
    presence_hear(node, 1, 1000);
    take(node, true, json_pack("[o, o, o]", told(A, 1, 1, 1), told(B, 1, 1, 1), told(C, 1, 1, 1)), json_array());
    struct presence_entry *b = presence_entry(node, B);
    uint32_t before = b->version;
    take(node, false, json_pack("[o]", told(B, 1, 2, 1)), json_array());
    presence_looked(b, before);
    CHECK(b->at != NULL);
    presence_looked(b, b->version);
    CHECK(b->at == NULL);
    presence_looked(NULL, 0);
    take(node, false, json_array(), json_pack("[{s:s}]", "id", A)); /* out of the list with it */
    CHECK(presence_pick(node) == presence_entry(node, C) && presence_pick(node) == NULL);
    presence_done(&presence);
}

static void test_absence(void)
{
    struct presence presence = {.nodes = NULL};
    struct presence_node *node = presence_node(&presence, "n1");
    CHECK(!presence_lacks(NULL, A, 0, 1));
    presence_hear(node, 2, 1000);
    CHECK(!presence_lacks(node, A, 0, 1)); /* no list yet */
    take(node, true, json_pack("[o]", told(B, 1, 1, 1)), json_array());
    CHECK(presence_lacks(node, A, 0, 1));  /* of an earlier start: what it took over is in its first list */
    CHECK(!presence_lacks(node, A, 0, 2)); /* of this one: it may have been made just now */
    CHECK(!presence_lacks(node, A, 0, 0));
    CHECK(!presence_lacks(node, B, 0, 1));
    presence_hear(node, 2, 3000);
    CHECK(presence_lacks(node, A, 999, 2) && !presence_lacks(node, A, 1000, 2) && !presence_lacks(node, A, 2000, 2));
    CHECK(!presence_lacks(node, B, 0, 2));
    presence_done(&presence);
}

static void test_expiry(void)
{
    struct lease lease = {.idle_timeout_s = 10, .expires_at = 50000, .max_expires_at = 90000};
    struct presence_entry entry = {.active_ms = 45000};
    CHECK(presence_expiry(NULL, &lease, 46000) == 50000);
    CHECK(presence_expiry(&entry, &lease, 46000) == 55000);
    entry.active_ms = 1000;
    CHECK(presence_expiry(&entry, &lease, 46000) == 50000);
    entry.active_ms = INT64_MAX; /* a clock that is ahead counts as now */
    CHECK(presence_expiry(&entry, &lease, 46000) == 56000);
    CHECK(presence_expiry(&entry, &lease, 85000) == 90000);
    entry.active_ms = INT64_MIN;
    CHECK(presence_expiry(&entry, &lease, 46000) == 50000);
}

/* A node may name what it likes; it fills our memory only so far. */
static void test_bounds(void)
{
    struct presence presence = {.nodes = NULL};
    struct presence_node *node = presence_node(&presence, "n1");
    presence_hear(node, 1, 1000);
    for (unsigned round = 0; round < 9; round++) {
        json_t *list = json_array();
        for (unsigned i = 0; i < 10000; i++) {
            char id[RANDOM_ID_BYTES];
            snprintf(id, sizeof id, "sbx_%020u", round * 10000 + i);
            json_array_append_new(list, told(id, 1, 1, 1));
        }
        take(node, false, list, json_array());
    }
    CHECK(node->count == PRESENCE_SANDBOXES_MAX);
    take(node, true, json_array(), json_array());
    CHECK(node->count == 0 && presence_pick(node) == NULL);
    presence_done(&presence);
}

int main(void)
{
    test_lists_and_differences();
    test_versions();
    test_absence();
    test_expiry();
    test_bounds();
    return check_done();
}
