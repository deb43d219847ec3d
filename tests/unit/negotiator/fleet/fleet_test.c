/* Goal: only a node of this deployment is heard, each message once, none of an earlier start; the next sandbox goes
 * where there is life and most room. */
#include "negotiator/fleet/fleet.h"
#include "shared/base/memory.h"
#include "shared/base/text.h"
#include "tests/unit/check.h"

#include <pthread.h>
#include <string.h>

static int64_t wall_ms = 1800000000000;
static uint64_t boot_ns = 1000000000000;

static int64_t fake_wall(void)
{
    return wall_ms;
}

static uint64_t fake_boot(void)
{
    return boot_ns;
}

static struct key master;

static struct fleet *new_fleet(void)
{
    struct error err = {0};
    struct fleet *fleet = fleet_start(
        &(struct fleet_options){
            .master = &master, .workers = 2, .call_timeout_ms = 1000, .wall_ms = fake_wall, .boot_ns = fake_boot},
        &err);
    CHECK(fleet != NULL);
    return fleet;
}

struct said {
    const char *node;
    uint64_t incarnation, number, in_reply_to;
    int64_t time, slots, used;
    const char *url, *isolation;
};

static json_t *heartbeat_json(const struct said *said)
{
    return json_pack("{s:s, s:I, s:s, s:I, s:I, s:[s], s:[], s:[]}", "call", "heartbeat", "time",
                     (json_int_t)(said->time ? said->time : wall_ms), "url",
                     said->url ? said->url : "http://127.0.0.1:8701", "slots", (json_int_t)said->slots, "used",
                     (json_int_t)said->used, "isolation", said->isolation ? said->isolation : "namespaces", "sandboxes",
                     "ended");
}

/* Sealed under the key of `said.node` of the deployment whose master key is `from`, by `sender`. */
static uint8_t *seal(const struct key *from, const char *sender, const struct said *said, size_t *size)
{
    struct error err = {0};
    struct key node, key;
    struct link_head head = {
        .incarnation = said->incarnation, .number = said->number, .in_reply_to = said->in_reply_to};
    uint8_t *bytes = NULL;
    key_node(&node, from, said->node, FLEET_EPOCH);
    key_link(&key, &node, sender);
    CHECK(text_copy(head.node, sizeof head.node, said->node));
    json_t *json = heartbeat_json(said);
    CHECK(link_seal(key.bytes, &head, json, &bytes, size, &err));
    json_decref(json);
    return bytes;
}

static enum error_kind open_bytes(struct fleet *fleet, const uint8_t *bytes, size_t size)
{
    struct fleet_message message = {.json = NULL};
    struct error err = {0};
    if (fleet_open(fleet, bytes, size, &message, &err) && fleet_check_heartbeat(fleet, &message, &err))
        fleet_heartbeat_seen(fleet, &message);
    fleet_message_done(&message);
    return err.kind;
}

static enum error_kind hear(struct fleet *fleet, struct said said)
{
    size_t size = 0;
    AUTO_FREE uint8_t *bytes = seal(&master, "sandboxd", &said, &size);
    return open_bytes(fleet, bytes, size);
}

static void only_own_nodes_are_heard(void)
{
    AUTO(fleet) *fleet = new_fleet();
    struct said said = {.node = "n1", .incarnation = 3, .number = 1, .slots = 10};
    struct key other;
    size_t size = 0;
    key_random(&other);
    AUTO_FREE uint8_t *foreign = seal(&other, "sandboxd", &said, &size);
    CHECK(open_bytes(fleet, foreign, size) == ERROR_UNAUTHENTICATED);
    AUTO_FREE uint8_t *reflected = seal(&master, "negotiator", &said, &size); /* our own direction, sent back */
    CHECK(open_bytes(fleet, reflected, size) == ERROR_UNAUTHENTICATED);
    AUTO_FREE uint8_t *good = seal(&master, "sandboxd", &said, &size);
    for (size_t i = 0; i < size; i++) {
        good[i] ^= 1;
        CHECK(open_bytes(fleet, good, size) == ERROR_UNAUTHENTICATED);
        good[i] ^= 1;
    }
    for (size_t cut = 0; cut < size; cut++)
        CHECK(open_bytes(fleet, good, cut) == ERROR_UNAUTHENTICATED);
    CHECK(fleet_alive(fleet) == 0);
    CHECK(open_bytes(fleet, good, size) == ERROR_NONE);
    CHECK(open_bytes(fleet, good, size) == ERROR_UNAUTHENTICATED); /* came before */
    said.in_reply_to = 7;
    said.number = 9;
    CHECK(hear(fleet, said) == ERROR_UNAUTHENTICATED); /* a reply is no request */
    CHECK(fleet_alive(fleet) == 1);
}

static void incarnations_only_rise(void)
{
    AUTO(fleet) *fleet = new_fleet();
    CHECK(hear(fleet, (struct said){.node = "n1", .incarnation = 3, .number = 5, .slots = 1}) == ERROR_NONE);
    CHECK(hear(fleet, (struct said){.node = "n1", .incarnation = 3, .number = 4, .slots = 1}) == ERROR_NONE);
    CHECK(hear(fleet, (struct said){.node = "n1", .incarnation = 4, .number = 1, .slots = 1}) == ERROR_NONE);
    CHECK(hear(fleet, (struct said){.node = "n1", .incarnation = 3, .number = 6, .slots = 1}) == ERROR_UNAUTHENTICATED);
    CHECK(hear(fleet, (struct said){.node = "n2", .incarnation = 1, .number = 1, .slots = 1}) == ERROR_NONE);
}

static void wrong_fields_are_refused(void)
{
    AUTO(fleet) *fleet = new_fleet();
    struct said wrong[] = {{.time = wall_ms + 10001},
                           {.time = wall_ms - 10001},
                           {.url = "ftp://x"},
                           {.url = "http://"},
                           {.url = "http:///x"},
                           {.url = "http://a b"},
                           {.url = "http://a\"b"},
                           {.slots = -1},
                           {.used = 70000}};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        wrong[i].node = "n1";
        wrong[i].incarnation = 1;
        wrong[i].number = i + 1;
        CHECK(hear(fleet, wrong[i]) == ERROR_INVALID);
    }
    CHECK(fleet_alive(fleet) == 0);
    CHECK(hear(fleet, (struct said){.node = "n1", .incarnation = 1, .number = 99, .time = wall_ms - 9999}) ==
          ERROR_NONE);
}

static void placement(void)
{
    AUTO(fleet) *fleet = new_fleet();
    char node[LINK_NODE_BYTES], url[FLEET_URL_BYTES];
    uint32_t epoch = 0;
    struct error err = {0};
    CHECK(!fleet_place(fleet, "auto", node, &epoch, &err) && err.kind == ERROR_NODE_UNREACHABLE);
    CHECK(hear(fleet, (struct said){.node = "a", .incarnation = 1, .number = 1, .slots = 3, .used = 1}) == ERROR_NONE);
    CHECK(hear(fleet, (struct said){.node = "b",
                                    .incarnation = 1,
                                    .number = 1,
                                    .slots = 3,
                                    .used = 2,
                                    .isolation = "gvisor",
                                    .url = "https://b.example:1/p/"}) == ERROR_NONE);
    CHECK(fleet_place(fleet, "auto", node, &epoch, &err));
    CHECK_TEXT(node, "a");
    CHECK(epoch == FLEET_EPOCH);
    CHECK(fleet_place(fleet, "gvisor", node, &epoch, &err));
    CHECK_TEXT(node, "b");
    CHECK(fleet_place(fleet, "auto", node, &epoch, &err)); /* a again: b is full by what was placed there */
    CHECK_TEXT(node, "a");
    CHECK(!fleet_place(fleet, "auto", node, &epoch, &err) && err.kind == ERROR_NO_CAPACITY);
    CHECK(!fleet_place(fleet, "direct", node, &epoch, &err) && err.kind == ERROR_INVALID);
    CHECK(fleet_find(fleet, "b", url) == FLEET_ALIVE);
    CHECK_TEXT(url, "https://b.example:1/p");
    CHECK(fleet_find(fleet, "c", url) == FLEET_UNKNOWN);
    CHECK_TEXT(url, "");
    /* The next heartbeat says how it is. */
    CHECK(hear(fleet, (struct said){.node = "a", .incarnation = 1, .number = 2, .slots = 3, .used = 2}) == ERROR_NONE);
    CHECK(fleet_place(fleet, "auto", node, &epoch, &err));
    boot_ns += FLEET_ALIVE_NS;
    CHECK(fleet_find(fleet, "a", url) == FLEET_SUSPECT);
    CHECK(!fleet_place(fleet, "auto", node, &epoch, &err) && err.kind == ERROR_NODE_UNREACHABLE);
    boot_ns += FLEET_LOST_NS;
    CHECK(fleet_find(fleet, "a", url) == FLEET_LOST);
}

/* What a node was is durable: after a restart an old incarnation is refused, and its sandboxes can be found at once. */
static void restart(void)
{
    struct kv *kv = kv_memory_new(0, 1);
    struct error err = {0};
    struct fleet_message message = {.json = NULL};
    size_t size = 0;
    char url[FLEET_URL_BYTES];
    struct fleet *before = new_fleet();
    AUTO_FREE uint8_t *bytes =
        seal(&master, "sandboxd", &(struct said){.node = "n1", .incarnation = 7, .number = 1, .slots = 1}, &size);
    CHECK(fleet_open(before, bytes, size, &message, &err) && fleet_check_heartbeat(before, &message, &err));
    for (int twice = 0; twice < 2; twice++) {
        CHECK(kv_batch_begin(kv, &err));
        CHECK(fleet_heartbeat_rule(kv, &message, &err) == KV_APPLIED);
        CHECK(kv_batch_end(kv, &err));
    }
    fleet_message_done(&message);
    fleet_free(before);
    AUTO(fleet) *after = new_fleet();
    CHECK(fleet_load(after, kv, &err));
    CHECK(fleet_find(after, "n1", url) == FLEET_SUSPECT);
    CHECK_TEXT(url, "http://127.0.0.1:8701");
    CHECK(fleet_alive(after) == 0);
    CHECK(hear(after, (struct said){.node = "n1", .incarnation = 6, .number = 9, .slots = 1}) == ERROR_UNAUTHENTICATED);
    CHECK(hear(after, (struct said){.node = "n1", .incarnation = 7, .number = 9, .slots = 1}) == ERROR_NONE);
    CHECK(fleet_alive(after) == 1);
    kv_free(kv);
}

/* ---- calls ---- */

struct outcome {
    pthread_mutex_t mutex;
    pthread_cond_t changed;
    int count;
    struct error err;
};

static void called(void *cookie, const json_t *reply, const struct error *err)
{
    struct outcome *outcome = cookie;
    pthread_mutex_lock(&outcome->mutex);
    CHECK(reply == NULL);
    outcome->count++;
    outcome->err = *err;
    pthread_cond_broadcast(&outcome->changed);
    pthread_mutex_unlock(&outcome->mutex);
}

static void calls_that_fail_are_answered(void)
{
    struct outcome outcome = {.mutex = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};
    AUTO(fleet) *fleet = new_fleet();
    fleet_call(fleet, "nobody", json_pack("{s:s}", "call", "destroy"), called, &outcome);
    fleet_call(fleet, "nobody", json_pack("{s:s}", "call", "destroy"), NULL, NULL);
    CHECK(hear(fleet, (struct said){.node = "n1", .incarnation = 1, .number = 1, .url = "http://127.0.0.1:1"}) ==
          ERROR_NONE);
    fleet_call(fleet, "n1", json_pack("{s:s}", "call", "destroy"), called, &outcome);
    pthread_mutex_lock(&outcome.mutex);
    while (outcome.count < 2)
        pthread_cond_wait(&outcome.changed, &outcome.mutex);
    pthread_mutex_unlock(&outcome.mutex);
    CHECK(outcome.err.kind == ERROR_NODE_UNREACHABLE);
    for (int i = 0; i < 20; i++)
        fleet_call(fleet, "nobody", json_pack("{s:s}", "call", "destroy"), called, &outcome);
    fleet_stop(fleet);
    CHECK(outcome.count == 22); /* each, also those that were still waiting */
}

int main(void)
{
    keys_start();
    key_random(&master);
    only_own_nodes_are_heard();
    incarnations_only_rise();
    wrong_fields_are_refused();
    placement();
    restart();
    calls_that_fail_are_answered();
    return check_done();
}
