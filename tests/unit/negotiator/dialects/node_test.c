/* Goal: what a node sends is dispatched by its call and answered sealed: heartbeats that name all or what changed,
 * audit records stored once, and no other call. */
#include "tests/unit/negotiator/dialects/stage.h"

/** Sends a message (taken) as the node; the opened reply, which the caller decrefs. */
static json_t *node_send(json_t *message)
{
    struct error err = {0};
    AUTO(node_caller) *caller = node_caller_new();
    AUTO_FREE char *url = memory_printf("http://127.0.0.1:%u/node/v1/message", http_server_port(stage.server));
    AUTO_FREE uint8_t *bytes = NULL, *reply = NULL;
    size_t size = 0, reply_size = 0;
    struct link_head head = {.node = "n1", .incarnation = stage.incarnation}, answer;
    pthread_mutex_lock(&stage.mutex);
    head.number = ++stage.number;
    pthread_mutex_unlock(&stage.mutex);
    json_object_set_new(message, "time", json_integer(clock_wall_ms()));
    CHECK(link_seal(stage.from_node.bytes, &head, message, &bytes, &size, &err));
    json_decref(message);
    CHECK(node_call(caller, url, bytes, size, 5000, &reply, &reply_size, &err));
    json_t *json = link_open(stage.to_node.bytes, reply, reply_size, &answer, &err);
    CHECK(json != NULL && answer.in_reply_to == head.number);
    return json;
}

static json_t *beat_with(json_t *full)
{
    AUTO_FREE char *url = memory_printf("http://127.0.0.1:%u", http_server_port(stage.node));
    json_t *message = json_pack("{s:s, s:s, s:i, s:i, s:[s], s:[], s:[]}", "call", "heartbeat", "url", url, "slots", 10,
                                "used", 0, "isolation", "namespaces", "sandboxes", "ended");
    if (full)
        json_object_set_new(message, "full", full);
    return node_send(message);
}

static void check_full_wanted(json_t *reply, bool wanted)
{
    const json_t *told = json_object_get(reply, "full_wanted");
    CHECK(json_is_true(json_object_get(reply, "ok")) && json_is_boolean(told) && json_is_true(told) == wanted);
    CHECK(json_is_array(json_object_get(reply, "ended_known")) && json_is_integer(json_object_get(reply, "time")));
    json_decref(reply);
}

static void heartbeats(void)
{
    check_full_wanted(beat_with(json_false()), true);
    check_full_wanted(beat_with(json_true()), false);
    check_full_wanted(beat_with(json_false()), false);
    stage.incarnation++;
    check_full_wanted(beat_with(json_false()), true);
    check_full_wanted(beat_with(NULL), false); /* one that does not say names all */
}

static json_t *shipment(int first, int count)
{
    json_t *records = json_array();
    for (int n = first; n < first + count; n++)
        json_array_append_new(records,
                              json_pack("{s:i, s:I, s:s, s:s, s:s}", "n", n, "time", (json_int_t)clock_wall_ms(),
                                        "action", "exec", "outcome", "ok", "sandbox_id", "sbx_zzzzzzzzzzzzzzzzzzzz"));
    return json_pack("{s:s, s:s, s:o}", "call", "audit", "spool", "spl_aaaaaaaaaaaaaaaaaaaa", "records", records);
}

static void check_upto(json_t *reply, json_int_t upto)
{
    CHECK(json_is_true(json_object_get(reply, "ok")) && json_integer_value(json_object_get(reply, "upto")) == upto);
    CHECK_TEXT(json_string_value(json_object_get(reply, "spool")), "spl_aaaaaaaaaaaaaaaaaaaa");
    json_decref(reply);
}

static void audit_records(void)
{
    check_upto(node_send(shipment(1, 3)), 3);
    check_upto(node_send(shipment(1, 3)), 3);
    check_upto(node_send(shipment(2, 4)), 5);
}

static void check_refused(json_t *reply)
{
    const json_t *error = json_object_get(reply, "error");
    CHECK_TEXT(json_string_value(json_object_get(error, "code")), "INVALID_REQUEST");
    json_decref(reply);
}

static void what_is_no_call(void)
{
    check_refused(node_send(json_pack("{s:s}", "call", "prepare")));
    check_refused(node_send(json_pack("{s:i}", "call", 7)));
    check_refused(node_send(json_object()));
    check_refused(node_send(json_pack("{s:s, s:s}", "call", "audit", "spool", "x")));
    check_refused(node_send(json_pack("{s:s}", "call", "heartbeat")));
}

static enum kv_outcome slow_rule(struct kv *kv UNUSED, void *argument, struct error *err UNUSED)
{
    atomic_bool *over = argument;
    while (!atomic_load(over))
        usleep(1000);
    return KV_APPLIED;
}

static void slow_done(void *argument UNUSED, const struct error *err UNUSED)
{
}

static void *ship_aside(void *argument UNUSED)
{
    check_upto(node_send(shipment(6, 1)), 6);
    return NULL;
}

static bool is_inside(enum fleet_kind kind)
{
    struct error err = {0};
    bool entered = fleet_enter(stage.fleet, "n1", kind, &err);
    if (entered)
        fleet_left(stage.fleet, "n1", kind);
    CHECK(entered || err.kind == ERROR_RATE_LIMITED);
    return !entered;
}

/* A node that sends faster than the ledger takes waits by itself: nothing of it queues up before what others want. */
static void one_at_a_time(void)
{
    atomic_bool over = false;
    pthread_t first;
    ledger_submit(stage.ledger, slow_rule, slow_done, &over);
    CHECK(pthread_create(&first, NULL, ship_aside, NULL) == 0);
    for (int i = 0; i < 2000 && !is_inside(FLEET_RECORDS); i++)
        usleep(1000);
    json_t *reply = node_send(shipment(6, 2));
    CHECK_TEXT(json_string_value(json_object_get(json_object_get(reply, "error"), "code")), "RATE_LIMITED");
    json_decref(reply);
    CHECK(!is_inside(FLEET_HEARTBEAT)); /* that is another thing */
    atomic_store(&over, true);
    pthread_join(first, NULL);
    check_upto(node_send(shipment(7, 1)), 7);
    json_t *wrong = node_send(json_pack("{s:s}", "call", "heartbeat"));
    check_refused(wrong);
    CHECK(!is_inside(FLEET_HEARTBEAT) && !is_inside(FLEET_RECORDS)); /* what was refused has left, too */
}

static void an_api_key_is_no_seal(void)
{
    AUTO_ANSWER answer = as(stage.admin, "POST", "/node/v1/message", "{\"call\":\"heartbeat\"}");
    CHECK(answer.status == 401);
    CHECK_TEXT(told(&answer, "error.code"), "UNAUTHENTICATED");
}

int main(void)
{
    stage_open();
    heartbeats();
    audit_records();
    what_is_no_call();
    one_at_a_time();
    an_api_key_is_no_seal();
    stage_close();
    return check_done();
}
