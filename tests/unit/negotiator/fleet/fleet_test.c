/* Goal: only a node of this deployment is heard, each message once, none of an earlier start; the next sandbox goes
 * where there is life and most room. */
#include "negotiator/fleet/fleet.h"
#include "shared/base/memory.h"
#include "shared/base/text.h"
#include "tests/unit/check.h"

#include <arpa/inet.h>
#include <pthread.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

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
    bool heard = fleet_open(fleet, bytes, size, &message, &err) && fleet_check_heartbeat(fleet, &message, &err) &&
                 fleet_heartbeat_seen(fleet, &message, &err);
    CHECK(heard == (err.kind == ERROR_NONE));
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
    CHECK(hear(fleet, (struct said){.node = "n1", .incarnation = 3, .number = 4, .slots = 1}) == ERROR_CONFLICT);
    CHECK(hear(fleet, (struct said){.node = "n1", .incarnation = 4, .number = 1, .slots = 1}) == ERROR_NONE);
    CHECK(hear(fleet, (struct said){.node = "n1", .incarnation = 3, .number = 6, .slots = 1}) == ERROR_UNAUTHENTICATED);
    CHECK(hear(fleet, (struct said){.node = "n2", .incarnation = 1, .number = 1, .slots = 1}) == ERROR_NONE);
}

static void wrong_fields_are_refused(void)
{
    AUTO(fleet) *fleet = new_fleet();
    wall_ms += 20000;
    struct said wrong[] = {{.time = wall_ms + 10001},
                           {.time = wall_ms - 10001},
                           {.time = INT64_MIN},
                           {.time = INT64_MAX},
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
        /* Of a clock that is off: not what makes a node give a record up (sandboxd/front/ship.c). */
        CHECK(hear(fleet, wrong[i]) == (wrong[i].time ? ERROR_CONFLICT : ERROR_INVALID));
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
    CHECK(!fleet_place(fleet, &(struct fleet_wish){.isolation = "auto"}, node, &epoch, &err) &&
          err.kind == ERROR_NODE_UNREACHABLE);
    CHECK(hear(fleet, (struct said){.node = "a", .incarnation = 1, .number = 1, .slots = 3, .used = 1}) == ERROR_NONE);
    CHECK(hear(fleet, (struct said){.node = "b",
                                    .incarnation = 1,
                                    .number = 1,
                                    .slots = 3,
                                    .used = 2,
                                    .isolation = "gvisor",
                                    .url = "https://b.example:1/p/"}) == ERROR_NONE);
    CHECK(fleet_place(fleet, &(struct fleet_wish){.isolation = "auto"}, node, &epoch, &err));
    CHECK_TEXT(node, "a");
    CHECK(epoch == FLEET_EPOCH);
    CHECK(fleet_place(fleet, &(struct fleet_wish){.isolation = "gvisor"}, node, &epoch, &err));
    CHECK_TEXT(node, "b");
    CHECK(fleet_place(fleet, &(struct fleet_wish){.isolation = "auto"}, node, &epoch,
                      &err)); /* a again: b is full by what was placed there */
    CHECK_TEXT(node, "a");
    CHECK(!fleet_place(fleet, &(struct fleet_wish){.isolation = "auto"}, node, &epoch, &err) &&
          err.kind == ERROR_NO_CAPACITY);
    CHECK(!fleet_place(fleet, &(struct fleet_wish){.isolation = "direct"}, node, &epoch, &err) &&
          err.kind == ERROR_INVALID);
    CHECK(fleet_find(fleet, "b", url) == FLEET_ALIVE);
    CHECK_TEXT(url, "https://b.example:1/p");
    CHECK(fleet_find(fleet, "c", url) == FLEET_UNKNOWN);
    CHECK_TEXT(url, "");
    /* The next heartbeat says how it is. */
    CHECK(hear(fleet, (struct said){.node = "a", .incarnation = 1, .number = 2, .slots = 3, .used = 2}) == ERROR_NONE);
    CHECK(fleet_place(fleet, &(struct fleet_wish){.isolation = "auto"}, node, &epoch, &err));
    boot_ns += FLEET_ALIVE_NS;
    CHECK(fleet_find(fleet, "a", url) == FLEET_SUSPECT);
    CHECK(!fleet_place(fleet, &(struct fleet_wish){.isolation = "auto"}, node, &epoch, &err) &&
          err.kind == ERROR_NODE_UNREACHABLE);
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
        CHECK(fleet_heartbeat_rule(before, kv, &message, &err) == KV_APPLIED);
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

static uint64_t number_of_a_reply(struct fleet *fleet, struct kv *kv, uint64_t number)
{
    struct fleet_message message = {.json = NULL};
    struct error err = {0};
    struct link_head head = {.number = 0};
    size_t size = 0;
    AUTO_FREE uint8_t *reply = NULL;
    AUTO_FREE uint8_t *bytes =
        seal(&master, "sandboxd", &(struct said){.node = "n1", .incarnation = 7, .number = number, .slots = 1}, &size);
    CHECK(fleet_open(fleet, bytes, size, &message, &err) && fleet_check_heartbeat(fleet, &message, &err) &&
          fleet_heartbeat_seen(fleet, &message, &err));
    CHECK(kv_batch_begin(kv, &err));
    CHECK(fleet_heartbeat_rule(fleet, kv, &message, &err) == KV_APPLIED);
    CHECK(kv_batch_end(kv, &err));
    json_t *answer = json_pack("{s:b}", "ok", 1);
    CHECK(fleet_seal_reply(fleet, &message, answer, &reply, &size, &err) && link_peek(reply, size, &head, &err));
    json_decref(answer);
    fleet_message_done(&message);
    return head.number;
}

static uint64_t revision_of_row(struct kv *kv)
{
    AUTO_KV_VALUE value = {0};
    struct error err = {0};
    CHECK(kv_get(kv, "node/n1", &value, &err));
    return value.revision;
}

/* A node accepts no number twice: neither does a clock that was set back make any come again. */
static void numbers_only_rise(void)
{
    struct kv *kv = kv_memory_new(0, 1);
    struct error err = {0};
    struct fleet *before = new_fleet();
    uint64_t first = number_of_a_reply(before, kv, 1), row = revision_of_row(kv);
    uint64_t second = number_of_a_reply(before, kv, 2);
    CHECK(second == first + 1 && revision_of_row(kv) == row); /* not a write a message */
    fleet_free(before);
    wall_ms -= 3600000;
    AUTO(fleet) *after = new_fleet();
    CHECK(fleet_load(after, kv, &err));
    CHECK(number_of_a_reply(after, kv, 3) > second);
    wall_ms += 3600000;
    kv_free(kv);
}

/* What a start forgot cannot be told to it a second time; a heartbeat that was overtaken says nothing any more. */
static void late_heartbeats(void)
{
    struct kv *kv = kv_memory_new(0, 1);
    struct error err = {0};
    struct fleet_message early = {.json = NULL}, late = {.json = NULL};
    size_t size = 0, late_size = 0;
    AUTO(fleet) *fleet = new_fleet();
    struct said said = {.node = "n1", .incarnation = 3, .number = 5, .slots = 1, .time = wall_ms - 1};
    CHECK(hear(fleet, said) == ERROR_CONFLICT);
    CHECK(fleet_alive(fleet) == 0);
    said.number = 6;
    said.time = wall_ms;
    AUTO_FREE uint8_t *first = seal(&master, "sandboxd", &said, &size);
    said.number = 7;
    AUTO_FREE uint8_t *second = seal(&master, "sandboxd", &said, &late_size);
    CHECK(fleet_open(fleet, first, size, &early, &err) && fleet_open(fleet, second, late_size, &late, &err));
    CHECK(fleet_check_heartbeat(fleet, &early, &err) && fleet_check_heartbeat(fleet, &late, &err));
    CHECK(fleet_heartbeat_seen(fleet, &early, &err) && fleet_heartbeat_seen(fleet, &late, &err));
    CHECK(!fleet_heartbeat_seen(fleet, &early, &err) && err.kind == ERROR_CONFLICT);
    CHECK(kv_batch_begin(kv, &err)); /* queued in the other order; a conflict runs a rule again */
    CHECK(fleet_heartbeat_rule(fleet, kv, &late, &err) == KV_APPLIED);
    CHECK(fleet_heartbeat_rule(fleet, kv, &late, &err) == KV_APPLIED);
    CHECK(fleet_heartbeat_rule(fleet, kv, &early, &err) == KV_FAILED);
    CHECK(kv_batch_end(kv, &err));
    fleet_message_done(&early);
    fleet_message_done(&late);
    kv_free(kv);
    boot_ns += 11000000000; /* its clock may be as far off as any other's from now on */
    CHECK(hear(fleet, (struct said){.node = "n1", .incarnation = 4, .number = 1, .time = wall_ms - 1}) == ERROR_NONE);
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

/* Listens, and never answers. */
static int hang_on(char url[static FLEET_URL_BYTES])
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
    socklen_t size = sizeof address;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    CHECK(bind(fd, (struct sockaddr *)&address, size) == 0 && listen(fd, 16) == 0 &&
          getsockname(fd, (struct sockaddr *)&address, &size) == 0);
    snprintf(url, FLEET_URL_BYTES, "http://127.0.0.1:%u", ntohs(address.sin_port));
    return fd;
}

static int count_of(struct outcome *outcome)
{
    pthread_mutex_lock(&outcome->mutex);
    int count = outcome->count;
    pthread_mutex_unlock(&outcome->mutex);
    return count;
}

static void a_node_that_hangs_leaves_workers_to_others(void)
{
    struct outcome hung = {.mutex = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};
    struct outcome other = {.mutex = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};
    char url[FLEET_URL_BYTES], node[LINK_NODE_BYTES];
    AUTO_FD int fd = hang_on(url);
    struct error err = {0};
    uint32_t epoch;
    AUTO(fleet) *fleet = new_fleet();
    CHECK(hear(fleet, (struct said){.node = "hangs", .incarnation = 1, .number = 1, .slots = 9999, .url = url}) ==
          ERROR_NONE);
    for (int i = 0; i < 4; i++)
        fleet_call(fleet, "hangs", json_pack("{s:s}", "call", "prepare"), called, &hung);
    fleet_call(fleet, "nobody", json_pack("{s:s}", "call", "destroy"), called, &other);
    struct timespec moment = {.tv_nsec = 10000000};
    for (int i = 0; i < 50 && count_of(&other) == 0; i++)
        nanosleep(&moment, NULL);
    CHECK(count_of(&other) == 1 && count_of(&hung) == 0); /* while the first call of four, of 1 s each, runs */
    CHECK(fleet_place(fleet, &(struct fleet_wish){.isolation = "auto"}, node, &epoch, &err));
    for (int i = 0; i < 2 * FLEET_WAITING_MAX; i++)
        fleet_call(fleet, "hangs", json_pack("{s:s}", "call", "destroy"), NULL, NULL);
    CHECK(!fleet_place(fleet, &(struct fleet_wish){.isolation = "auto"}, node, &epoch, &err) &&
          err.kind == ERROR_NO_CAPACITY);
    fleet_stop(fleet);
    CHECK(hung.count == 4);
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
    numbers_only_rise();
    late_heartbeats();
    a_node_that_hangs_leaves_workers_to_others();
    calls_that_fail_are_answered();
    return check_done();
}
