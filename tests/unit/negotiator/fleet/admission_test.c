/* Goal: a join token serves one node, of one name, with one key, for ten minutes; who has no secret gets nothing and
 * learns nothing. A node that drains, or whose clock is off, gets no sandbox. While a node is re-keyed both keys open,
 * afterwards the old one opens nothing; a ledger that is older than a key catches up. */
#include "negotiator/fleet/fleet.h"
#include "shared/base/memory.h"
#include "shared/base/text.h"
#include "tests/unit/check.h"

#include <arpa/inet.h>
#include <sodium.h>
#include <sys/socket.h>
#include <unistd.h>

static int64_t wall_ms = 1800000000000;
static uint64_t boot_ns = 1000000000000;
static struct key master;

static int64_t fake_wall(void)
{
    return wall_ms;
}

static uint64_t fake_boot(void)
{
    return boot_ns;
}

/* A fleet over a store, as the program has them. */
struct stage {
    struct kv *kv;
    struct fleet *fleet;
};

static void start(struct stage *stage)
{
    struct error err = {0};
    stage->fleet = fleet_start(&(struct fleet_options){.master = &master,
                                                       .deployment = "dep_0123",
                                                       .workers = 2,
                                                       .call_timeout_ms = 2000,
                                                       .wall_ms = fake_wall,
                                                       .boot_ns = fake_boot},
                               &err);
    CHECK(stage->fleet != NULL && fleet_load(stage->fleet, stage->kv, &err));
}

static struct stage open_stage(void)
{
    struct stage stage = {.kv = kv_memory_new(10, 7)}; /* some changes conflict: a rule runs again */
    start(&stage);
    return stage;
}

static void restart(struct stage *stage)
{
    fleet_free(stage->fleet);
    start(stage);
}

static void close_stage(struct stage *stage)
{
    fleet_free(stage->fleet);
    kv_free(stage->kv);
}

static void ask(struct stage *stage, struct fleet_asking *asking)
{
    struct error err = {0};
    enum kv_outcome outcome = KV_CONFLICT;
    asking->fleet = stage->fleet;
    asking->record.principal = "admin";
    CHECK(kv_batch_begin(stage->kv, &err));
    while (outcome == KV_CONFLICT)
        outcome = fleet_rule(stage->kv, asking, &err);
    CHECK(outcome == KV_APPLIED);
    CHECK(kv_batch_end(stage->kv, &err));
    fleet_made(asking);
}

static enum error_kind change(struct stage *stage, enum fleet_verb verb, const char *node, bool drain)
{
    struct fleet_asking asking = {.verb = verb, .drain = drain};
    CHECK(text_copy(asking.node, sizeof asking.node, node));
    ask(stage, &asking);
    enum error_kind kind = asking.refusal.kind;
    fleet_asking_done(&asking);
    return kind;
}

static struct join_token token_for(struct stage *stage, const char *node)
{
    struct join_token token = {.id = {0}};
    struct error err = {0};
    struct fleet_asking asking = {.verb = FLEET_JOIN};
    CHECK(text_copy(asking.node, sizeof asking.node, node));
    ask(stage, &asking);
    CHECK(asking.refusal.kind == ERROR_NONE && asking.expires_ms == wall_ms + ENROL_LIFE_MS);
    CHECK(join_token_parse(&token, asking.token, &err));
    fleet_asking_done(&asking);
    CHECK(asking.token[0] == '\0');
    return token;
}

/* The whole of an enrolment; *grant is set when it went well. */
static enum error_kind enrol(struct stage *stage, const struct join_token *token, const char *node,
                             const struct enrol_pair *pair, struct enrol_grant *grant)
{
    struct error err = {0};
    struct fleet_asking asking = {.verb = FLEET_ENROL};
    struct enrol_request request;
    json_t *json = enrol_ask(token, node, pair, &request, &err);
    CHECK(json != NULL && enrol_read(&asking.request, json, &err));
    json_decref(json);
    ask(stage, &asking);
    enum error_kind kind = asking.refusal.kind;
    CHECK((kind == ERROR_NONE) == (asking.answer != NULL));
    if (asking.answer)
        CHECK(enrol_open(grant, asking.answer, token->negotiator_hash, pair, request.transcript, &err));
    fleet_asking_done(&asking);
    return kind;
}

static size_t records(struct stage *stage)
{
    uint64_t seq = 0;
    uint8_t hash[AUDIT_HASH_BYTES];
    struct error err = {0};
    CHECK(audit_head(stage->kv, &seq, hash, &err));
    return seq;
}

/* --- what a node says --- */

static uint8_t *seal(const struct key *node_key, const char *node, uint64_t incarnation, uint64_t number, int64_t off,
                     const char *url, size_t *size)
{
    struct error err = {0};
    struct key key;
    struct link_head head = {.incarnation = incarnation, .number = number};
    uint8_t *bytes = NULL;
    key_link(&key, node_key, "sandboxd");
    CHECK(text_copy(head.node, sizeof head.node, node));
    json_t *json = json_pack("{s:s, s:I, s:s, s:i, s:i, s:[s], s:[], s:[]}", "call", "heartbeat", "time",
                             (json_int_t)(wall_ms + off), "url", url, "slots", 9, "used", 0, "isolation", "namespaces",
                             "sandboxes", "ended");
    CHECK(link_seal(key.bytes, &head, json, &bytes, size, &err));
    json_decref(json);
    return bytes;
}

static bool hear_bytes(struct stage *stage, const uint8_t *bytes, size_t size, bool *stale)
{
    struct error err = {0};
    struct fleet_message message = {.json = NULL};
    enum kv_outcome outcome = KV_CONFLICT;
    bool heard = fleet_open(stage->fleet, bytes, size, &message, &err) &&
                 fleet_check_heartbeat(stage->fleet, &message, &err) &&
                 fleet_heartbeat_seen(stage->fleet, &message, &err);
    if (stale)
        *stale = message.stale;
    CHECK(heard || err.kind == ERROR_UNAUTHENTICATED);
    CHECK(kv_batch_begin(stage->kv, &err));
    while (heard && outcome == KV_CONFLICT)
        outcome = fleet_heartbeat_rule(stage->fleet, stage->kv, &message, &err);
    CHECK(kv_batch_end(stage->kv, &err));
    CHECK(!heard || outcome == KV_APPLIED);
    fleet_message_done(&message);
    return heard;
}

static bool hear_at(struct stage *stage, const struct key *key, const char *node, uint64_t incarnation, int64_t off)
{
    static uint64_t number;
    size_t size = 0;
    AUTO_FREE uint8_t *bytes = seal(key, node, incarnation, ++number, off, "http://127.0.0.1:1", &size);
    return hear_bytes(stage, bytes, size, NULL);
}

static bool hear(struct stage *stage, const struct key *key, const char *node, uint64_t incarnation)
{
    return hear_at(stage, key, node, incarnation, 0);
}

static struct fleet_view view(struct stage *stage, const char *name)
{
    size_t count = 0;
    struct fleet_view found = {.name = ""};
    AUTO_FREE struct fleet_view *views = fleet_list(stage->fleet, &count);
    for (size_t i = 0; i < count; i++) {
        if (strcmp(views[i].name, name) == 0)
            found = views[i];
        CHECK(i == 0 || strcmp(views[i - 1].name, views[i].name) < 0);
    }
    CHECK_TEXT(found.name, name);
    return found;
}

static bool is_placed_on(struct stage *stage, const char *expected)
{
    char node[LINK_NODE_BYTES] = "";
    uint32_t epoch = 0;
    struct error err = {0};
    return fleet_place(stage->fleet, &(struct fleet_wish){.isolation = "auto"}, node, &epoch, &err) &&
           strcmp(node, expected) == 0;
}

/* --- enrolment --- */

static void one_use_one_name_one_key(void)
{
    struct stage stage = open_stage();
    struct enrol_pair pair, other;
    struct enrol_grant grant = {.epoch = 0}, again = {.epoch = 0};
    struct key expected;
    enrol_node_pair(&pair);
    enrol_node_pair(&other);
    struct join_token token = token_for(&stage, "n1");
    CHECK(enrol(&stage, &token, "n2", &pair, &grant) == ERROR_UNAUTHENTICATED); /* made for another name */
    struct join_token guessed = token;
    key_random(&guessed.secret);
    size_t before = records(&stage);
    CHECK(enrol(&stage, &guessed, "n1", &pair, &grant) == ERROR_UNAUTHENTICATED);
    guessed = token;
    guessed.id[3] ^= 1;
    CHECK(enrol(&stage, &guessed, "n1", &pair, &grant) == ERROR_UNAUTHENTICATED);
    CHECK(records(&stage) == before); /* a stranger writes nothing into the ledger */
    CHECK(enrol(&stage, &token, "n1", &pair, &grant) == ERROR_NONE);
    key_node(&expected, &master, "n1", 1);
    CHECK(grant.epoch == 1 && memcmp(&grant.node_key, &expected, sizeof expected) == 0);
    CHECK_TEXT(grant.node, "n1");
    CHECK_TEXT(grant.deployment, "dep_0123");
    CHECK(records(&stage) == before + 1);
    /* The answer was lost: the same key gets it again. Another one does not. */
    CHECK(enrol(&stage, &token, "n1", &pair, &again) == ERROR_NONE && memcmp(&again, &grant, sizeof grant) == 0);
    CHECK(records(&stage) == before + 1);
    CHECK(enrol(&stage, &token, "n1", &other, &again) == ERROR_CONFLICT);
    for (int i = 0; i < 20; i++) /* seen on the network, and sent again and again */
        CHECK(enrol(&stage, &token, "n1", &other, &again) == ERROR_CONFLICT);
    CHECK(records(&stage) == before + 2);
    boot_ns += 1000000000;
    CHECK(enrol(&stage, &token, "n1", &other, &again) == ERROR_CONFLICT && records(&stage) == before + 3);
    restart(&stage);
    CHECK(enrol(&stage, &token, "n1", &other, &again) == ERROR_CONFLICT);
    CHECK(enrol(&stage, &token, "n1", &pair, &again) == ERROR_NONE);
    wall_ms += ENROL_LIFE_MS;
    CHECK(enrol(&stage, &token, "n1", &pair, &again) == ERROR_UNAUTHENTICATED); /* over, also for its own key */
    CHECK(hear(&stage, &grant.node_key, "n1", 3));
    CHECK(is_placed_on(&stage, "n1"));
    close_stage(&stage);
}

static void a_token_ends_after_ten_minutes(void)
{
    struct stage stage = open_stage();
    struct enrol_pair pair;
    struct enrol_grant grant;
    enrol_node_pair(&pair);
    struct join_token token = token_for(&stage, "n1");
    wall_ms += ENROL_LIFE_MS - 1;
    struct join_token second = token_for(&stage, "n2");
    CHECK(enrol(&stage, &token, "n1", &pair, &grant) == ERROR_NONE);
    wall_ms += ENROL_LIFE_MS;
    CHECK(enrol(&stage, &second, "n2", &pair, &grant) == ERROR_UNAUTHENTICATED);
    (void)token_for(&stage, "n3"); /* takes those that are over away */
    for (size_t i = 1; i < FLEET_JOINS_MAX; i++)
        (void)token_for(&stage, "n4");
    CHECK(change(&stage, FLEET_JOIN, "n5", false) == ERROR_QUOTA);
    wall_ms += ENROL_LIFE_MS;
    CHECK(change(&stage, FLEET_JOIN, "n5", false) == ERROR_NONE);
    close_stage(&stage);
}

static void a_living_name_is_not_given_away(void)
{
    struct stage stage = open_stage();
    struct enrol_pair pair, other;
    struct enrol_grant first, again, second;
    enrol_node_pair(&pair);
    enrol_node_pair(&other);
    struct join_token token = token_for(&stage, "n1");
    CHECK(enrol(&stage, &token, "n1", &pair, &first) == ERROR_NONE);
    CHECK(hear(&stage, &first.node_key, "n1", 5));
    token = token_for(&stage, "n1");
    CHECK(enrol(&stage, &token, "n1", &other, &second) == ERROR_CONFLICT);
    CHECK(enrol(&stage, &token, "n1", &pair, &again) == ERROR_NONE); /* itself may, and keeps its key */
    CHECK(memcmp(&again, &first, sizeof first) == 0);
    boot_ns += FLEET_LOST_NS;
    struct join_token replacing = token_for(&stage, "n1");
    CHECK(enrol(&stage, &replacing, "n1", &other, &second) == ERROR_NONE);
    CHECK(second.epoch == 2 && memcmp(&second.node_key, &first.node_key, KEY_BYTES) != 0);
    CHECK(!hear(&stage, &first.node_key, "n1", 6)); /* the machine that had the name is out */
    CHECK(enrol(&stage, &token, "n1", &pair, &again) == ERROR_UNAUTHENTICATED); /* and its token brings nothing back */
    CHECK(hear(&stage, &second.node_key, "n1", 1800000000));
    restart(&stage);
    CHECK(!hear(&stage, &first.node_key, "n1", 1800000001));
    CHECK(hear(&stage, &second.node_key, "n1", 1800000001));
    close_stage(&stage);
}

/* A machine that is no longer ours goes on saying that it lives: who drained it can give its name to another one. */
static void a_drained_name_is_given_away_alive(void)
{
    struct stage stage = open_stage();
    struct enrol_pair pair, other;
    struct enrol_grant first, second;
    enrol_node_pair(&pair);
    enrol_node_pair(&other);
    struct join_token token = token_for(&stage, "n1");
    CHECK(enrol(&stage, &token, "n1", &pair, &first) == ERROR_NONE);
    CHECK(hear(&stage, &first.node_key, "n1", 5));
    CHECK(change(&stage, FLEET_DRAIN, "n1", true) == ERROR_NONE);
    token = token_for(&stage, "n1");
    CHECK(enrol(&stage, &token, "n1", &other, &second) == ERROR_NONE && second.epoch == 2);
    CHECK(!hear(&stage, &first.node_key, "n1", 6));
    CHECK(!view(&stage, "n1").draining && fleet_alive(stage.fleet) == 0);
    CHECK(hear(&stage, &second.node_key, "n1", 1) && is_placed_on(&stage, "n1"));
    restart(&stage);
    CHECK(!view(&stage, "n1").draining && !hear(&stage, &first.node_key, "n1", 7));
    close_stage(&stage);
}

/* One more than fit would be read at the next start, which would then be none. */
static void there_are_so_many_nodes_at_most(void)
{
    struct stage stage = open_stage();
    struct enrol_pair pair;
    struct enrol_grant grant;
    enrol_node_pair(&pair);
    for (int i = 0; i <= FLEET_NODES_MAX; i++) {
        char name[LINK_NODE_BYTES];
        CHECK(text_format(name, sizeof name, "n%d", i));
        struct join_token token = token_for(&stage, name);
        CHECK(enrol(&stage, &token, name, &pair, &grant) == (i < FLEET_NODES_MAX ? ERROR_NONE : ERROR_QUOTA));
    }
    struct join_token token = token_for(&stage, "n7");
    CHECK(enrol(&stage, &token, "n7", &pair, &grant) == ERROR_NONE);
    restart(&stage);
    close_stage(&stage);
}

/* --- draining, clocks --- */

static struct enrol_grant enrolled(struct stage *stage, const char *node)
{
    struct enrol_pair pair;
    struct enrol_grant grant = {.epoch = 0};
    enrol_node_pair(&pair);
    struct join_token token = token_for(stage, node);
    CHECK(enrol(stage, &token, node, &pair, &grant) == ERROR_NONE);
    return grant;
}

static void draining(void)
{
    struct stage stage = open_stage();
    struct enrol_grant a = enrolled(&stage, "a"), b = enrolled(&stage, "b");
    CHECK(change(&stage, FLEET_DRAIN, "c", true) == ERROR_NOT_FOUND);
    CHECK(hear(&stage, &a.node_key, "a", 1));
    CHECK(change(&stage, FLEET_DRAIN, "a", true) == ERROR_NONE);
    CHECK(view(&stage, "a").draining && !view(&stage, "b").draining);
    CHECK(!is_placed_on(&stage, "a"));
    CHECK(hear(&stage, &b.node_key, "b", 1));
    for (int i = 0; i < 5; i++)
        CHECK(is_placed_on(&stage, "b"));
    restart(&stage); /* it is durable, and no heartbeat takes it away */
    CHECK(hear(&stage, &a.node_key, "a", 2) && hear(&stage, &a.node_key, "a", 2));
    CHECK(view(&stage, "a").draining && !is_placed_on(&stage, "a"));
    CHECK(change(&stage, FLEET_DRAIN, "a", false) == ERROR_NONE);
    CHECK(is_placed_on(&stage, "a"));
    close_stage(&stage);
}

static void clocks(void)
{
    struct stage stage = open_stage();
    struct enrol_grant a = enrolled(&stage, "a");
    boot_ns += 20000000000; /* long after the start: a node's clock may be behind it */
    CHECK(hear_at(&stage, &a.node_key, "a", 1, FLEET_CLOCK_MS));
    CHECK(is_placed_on(&stage, "a"));
    CHECK(hear_at(&stage, &a.node_key, "a", 1, FLEET_CLOCK_MS + 1));
    CHECK(!is_placed_on(&stage, "a") && view(&stage, "a").life == FLEET_ALIVE);
    CHECK(view(&stage, "a").clock_off_ms == FLEET_CLOCK_MS + 1);
    CHECK(hear_at(&stage, &a.node_key, "a", 1, -FLEET_CLOCK_MS - 1));
    CHECK(!is_placed_on(&stage, "a"));
    CHECK(hear(&stage, &a.node_key, "a", 1));
    CHECK(is_placed_on(&stage, "a"));
    close_stage(&stage);
}

/* --- re-keying --- */

static void both_keys_open_until_the_new_one_has(void)
{
    struct stage stage = open_stage();
    struct enrol_grant one = enrolled(&stage, "n1");
    struct key two, three;
    key_node(&two, &master, "n1", 2);
    key_node(&three, &master, "n1", 3);
    CHECK(change(&stage, FLEET_REKEY, "n9", false) == ERROR_NOT_FOUND);
    CHECK(hear(&stage, &one.node_key, "n1", 1));
    CHECK(!hear(&stage, &two, "n1", 2)); /* nobody has it yet */
    CHECK(change(&stage, FLEET_REKEY, "n1", false) == ERROR_NONE);
    CHECK(view(&stage, "n1").rekeying && view(&stage, "n1").epoch == 1 && fleet_epoch(stage.fleet, "n1") == 1);
    CHECK(hear(&stage, &one.node_key, "n1", 1));                   /* it has not heard of it */
    CHECK(change(&stage, FLEET_REKEY, "n1", false) == ERROR_NONE); /* again: the same one */
    CHECK(!hear(&stage, &three, "n1", 2));
    CHECK(hear(&stage, &two, "n1", 2));
    CHECK(!view(&stage, "n1").rekeying && view(&stage, "n1").epoch == 2 && fleet_epoch(stage.fleet, "n1") == 2);
    CHECK(!hear(&stage, &one.node_key, "n1", 3));
    restart(&stage);
    CHECK(fleet_epoch(stage.fleet, "n1") == 2);
    CHECK(!hear(&stage, &one.node_key, "n1", 3));
    CHECK(hear(&stage, &two, "n1", 3));
    close_stage(&stage);
}

/* We die between the two: a start knows that it waits. */
static void a_rekeying_outlives_us(void)
{
    struct stage stage = open_stage();
    struct enrol_grant one = enrolled(&stage, "n1");
    struct key two;
    key_node(&two, &master, "n1", 2);
    CHECK(change(&stage, FLEET_REKEY, "n1", false) == ERROR_NONE);
    restart(&stage);
    CHECK(view(&stage, "n1").rekeying && hear(&stage, &one.node_key, "n1", 1));
    CHECK(view(&stage, "n1").rekeying && hear(&stage, &two, "n1", 2) && !view(&stage, "n1").rekeying);
    close_stage(&stage);
}

/* The ledger was put back from a copy, or lost: the node's own key, of a higher epoch, brings it up. */
static void an_older_ledger_catches_up(void)
{
    struct stage stage = open_stage();
    struct enrol_grant one = enrolled(&stage, "n1");
    struct key four, far;
    key_node(&four, &master, "n1", 4);
    key_node(&far, &master, "n1", 40);
    CHECK(!hear(&stage, &far, "n1", 7));
    CHECK(hear(&stage, &four, "n1", 7) && fleet_epoch(stage.fleet, "n1") == 4);
    CHECK(!hear(&stage, &one.node_key, "n1", 8));
    restart(&stage);
    CHECK(fleet_epoch(stage.fleet, "n1") == 4);
    struct stage empty = open_stage();
    CHECK(hear(&empty, &four, "n1", 8) && fleet_epoch(empty.fleet, "n1") == 4);
    CHECK(change(&empty, FLEET_REKEY, "n1", false) == ERROR_CONFLICT); /* whose public key is not known */
    close_stage(&empty);
    close_stage(&stage);
}

static void lower_incarnations_are_told_of(void)
{
    struct stage stage = open_stage();
    struct enrol_grant one = enrolled(&stage, "n1");
    size_t size = 0;
    bool stale = true;
    AUTO_FREE uint8_t *old = seal(&one.node_key, "n1", 4, 1, 0, "http://127.0.0.1:1", &size);
    CHECK(hear(&stage, &one.node_key, "n1", 5));
    CHECK(!hear_bytes(&stage, old, size, &stale) && stale);
    CHECK(!hear_bytes(&stage, old, size, &stale) && !stale); /* not as often as somebody likes to send it */
    boot_ns += 61000000000;
    CHECK(!hear_bytes(&stage, old, size, &stale) && stale);
    old[size - 1] ^= 1; /* who has not the key is not told of at all */
    boot_ns += 61000000000;
    CHECK(!hear_bytes(&stage, old, size, &stale) && !stale);
    close_stage(&stage);
}

/* --- what a node is told --- */

/* A front that was taken over counts as high as numbers go: it must not be what keeps the node out once it has another
 * key, nor the machine that gets the name after it. */
static void a_forged_incarnation_ends_with_its_key(void)
{
    struct stage stage = open_stage();
    struct enrol_grant n1 = enrolled(&stage, "n1");
    struct key next;
    key_node(&next, &master, "n1", 2);
    CHECK(hear(&stage, &n1.node_key, "n1", 7));
    CHECK(hear(&stage, &n1.node_key, "n1", INT64_MAX));
    CHECK(!hear(&stage, &n1.node_key, "n1", UINT64_MAX)); /* no number of a row, or of a reply */
    CHECK(!hear(&stage, &n1.node_key, "n1", 8));
    size_t size = 0;
    AUTO_FREE uint8_t *late = seal(&n1.node_key, "n1", INT64_MAX, UINT32_MAX, 0, "http://127.0.0.1:1", &size);
    CHECK(change(&stage, FLEET_REKEY, "n1", false) == ERROR_NONE);
    CHECK(hear(&stage, &next, "n1", 8)); /* what the launcher counts to */
    CHECK(!hear_bytes(&stage, late, size, NULL) && !hear(&stage, &next, "n1", 7));
    CHECK(view(&stage, "n1").incarnation == 8);
    restart(&stage);
    CHECK(!hear(&stage, &next, "n1", 7) && hear(&stage, &next, "n1", 8));
    CHECK(hear(&stage, &next, "n1", INT64_MAX));
    boot_ns += FLEET_LOST_NS;
    struct enrol_grant other = enrolled(&stage, "n1");
    restart(&stage); /* before it spoke */
    CHECK(other.epoch == 3 && !hear(&stage, &next, "n1", INT64_MAX));
    CHECK(hear(&stage, &other.node_key, "n1", 1800000000));
    close_stage(&stage);
}

static int listen_at(char url[static FLEET_URL_BYTES])
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
    socklen_t size = sizeof address;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    CHECK(bind(fd, (struct sockaddr *)&address, size) == 0 && listen(fd, 16) == 0 &&
          getsockname(fd, (struct sockaddr *)&address, &size) == 0);
    snprintf(url, FLEET_URL_BYTES, "http://127.0.0.1:%u", ntohs(address.sin_port));
    return fd;
}

/* The JSON of the first message that comes. */
static json_t *take_message(int fd, const struct key *node_key)
{
    char text[8192];
    size_t length = 0, body = 0, size = 0;
    int client = accept(fd, NULL, NULL);
    for (;;) {
        ssize_t got = read(client, text + length, sizeof text - 1 - length);
        length += got > 0 ? (size_t)got : 0;
        text[length] = '\0';
        char *end = memmem(text, length, "\r\n\r\n", 4), *header = strcasestr(text, "content-length:");
        body = end ? (size_t)(end - text) + 4 : 0;
        size = header ? strtoul(header + 15, NULL, 10) : 0;
        if (got <= 0 || (body && length >= body + size))
            break;
    }
    struct key link;
    struct link_head head;
    struct error err = {0};
    key_link(&link, node_key, "negotiator");
    json_t *json = link_open(link.bytes, (const uint8_t *)text + body, size, &head, &err);
    close(client);
    return json;
}

static void the_node_is_told_its_next_key(void)
{
    struct stage stage = open_stage();
    struct enrol_pair pair;
    struct enrol_grant one, two = {.epoch = 0};
    struct error err = {0};
    char url[FLEET_URL_BYTES];
    AUTO_FD int fd = listen_at(url);
    enrol_node_pair(&pair);
    struct join_token token = token_for(&stage, "n1");
    CHECK(enrol(&stage, &token, "n1", &pair, &one) == ERROR_NONE);
    size_t size = 0;
    AUTO_FREE uint8_t *bytes = seal(&one.node_key, "n1", 1, 1, 0, url, &size);
    CHECK(hear_bytes(&stage, bytes, size, NULL));
    CHECK(change(&stage, FLEET_REKEY, "n1", false) == ERROR_NONE);
    json_t *told = take_message(fd, &one.node_key);
    CHECK_TEXT(json_string_value(json_object_get(told, "call")), "rekey");
    CHECK(json_integer_value(json_object_get(told, "epoch")) == 2);
    uint8_t bound[ENROL_HASH_BYTES];
    enrol_rekey_bound(bound, "n1", 1, 2);
    CHECK(enrol_open(&two, told, token.negotiator_hash, &pair, bound, &err));
    json_decref(told);
    struct key expected;
    key_node(&expected, &master, "n1", 2);
    CHECK(memcmp(&two.node_key, &expected, sizeof expected) == 0 && two.epoch == 2);
    CHECK_TEXT(two.deployment, "dep_0123");
    /* Nothing came of it: its next heartbeat under the old key has it told again, after a while. */
    boot_ns += 11000000000;
    AUTO_FREE uint8_t *next = seal(&one.node_key, "n1", 1, 2, 0, url, &size);
    CHECK(hear_bytes(&stage, next, size, NULL));
    told = take_message(fd, &one.node_key);
    CHECK_TEXT(json_string_value(json_object_get(told, "call")), "rekey");
    json_decref(told);
    close_stage(&stage);
}

int main(void)
{
    keys_start();
    key_random(&master);
    one_use_one_name_one_key();
    a_token_ends_after_ten_minutes();
    a_living_name_is_not_given_away();
    a_drained_name_is_given_away_alive();
    there_are_so_many_nodes_at_most();
    draining();
    clocks();
    both_keys_open_until_the_new_one_has();
    a_rekeying_outlives_us();
    an_older_ledger_catches_up();
    lower_incarnations_are_told_of();
    a_forged_incarnation_ends_with_its_key();
    the_node_is_told_its_next_key();
    return check_done();
}
