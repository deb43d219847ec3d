/* limits_test.c - a front with a real init behind it: the bounds that are one sandbox's own, and their change while it
 * runs; what it uses, told once and again and again. */
#include "tests/unit/sandboxd/front/node_rig.h"

static bool has(const struct front_reply *reply, const char *text)
{
    bool found = strstr(reply->body, text) != NULL;
    if (!found)
        fprintf(stderr, "not in the reply (%d): %s\n%.600s\n", reply->status, text, reply->body);
    return found;
}

static int start(const struct front_rig *rig, const char *id)
{
    char body[128];
    snprintf(body, sizeof body, "{\"cmd\":\"sleep 60\",\"cwd\":\"/\",\"id\":\"%s\",\"detach\":true}", id);
    AUTO_REPLY reply = front_exec(rig, body);
    return reply.status;
}

static void test_commands(const struct front_rig *rig)
{
    CHECK(start(rig, "one") == 201 && start(rig, "two") == 201);
    AUTO_REPLY third = front_exec(rig, "{\"cmd\":\"true\",\"cwd\":\"/\"}");
    CHECK(third.status == 503 && has(&third, "at most 2 in this sandbox"));
    CHECK(start(rig, "two") == 201); /* it is there */
    AUTO_REPLY ended = front_call(rig, "DELETE", "/processes/two", rig->token, NULL);
    AUTO_REPLY gone = front_call(rig, "GET", "/processes/two/output?follow=1", rig->token, NULL);
    CHECK(ended.status == 204 && gone.status == 200 && start(rig, "three") == 201); /* those that ended do not count */
}

static void test_files(const struct front_rig *rig)
{
    AUTO_REPLY ended = front_call(rig, "DELETE", "/processes/three", rig->token, NULL);
    AUTO_REPLY gone = front_call(rig, "GET", "/processes/three/output?follow=1", rig->token, NULL);
    AUTO_REPLY limit = front_exec(rig, "{\"cmd\":\"ulimit -n\",\"cwd\":\"/\",\"stream\":\"none\"}");
    CHECK(ended.status == 204 && gone.status == 200);
    CHECK(limit.status == 200 && has(&limit, "\"stdout\":\"100\\n\""));
}

/* A MiB a stream is kept; the sandbox's own bound is below that of two. */
static void test_output(const struct front_rig *rig)
{
    for (int i = 0; i < 2; i++) {
        AUTO_REPLY flood = front_exec(rig, "{\"cmd\":\"seq 400000\",\"cwd\":\"/\",\"detach\":true,\"id\":\"flood\"}");
        AUTO_REPLY over = front_call(rig, "GET", "/processes/flood/output?follow=1", rig->token, NULL);
        CHECK(flood.status == 201 && over.status == 200);
    }
    AUTO_REPLY metrics = front_call(rig, "GET", "/metrics", rig->token, NULL);
    CHECK(front_number(&metrics, "output", "limit_bytes") == 256 << 10);
    CHECK(front_number(&metrics, "output", "kept_bytes") > 0 &&
          front_number(&metrics, "output", "kept_bytes") <= 512 << 10);
    CHECK(front_number(&metrics, "commands", "limit") == 2 && front_number(&metrics, "open_files", "limit") == 100);
}

static json_t *limits_message(void)
{
    return json_pack("{s:s,s:s,s:i,s:i,s:I}", "call", "limits", "id", FRONT_SANDBOX, "commands", 3, "cpu_milli", 500,
                     "memory_bytes", (json_int_t)1 << 30);
}

static void test_change(struct front_rig *rig)
{
    struct front_launcher_message message;
    int fd = node_ask(rig, limits_message());
    front_expect(rig, FL_LIMITS, &message);
    const struct fl_limits *asked = &message.as.limits.limits;
    CHECK(asked->commands == 3 && asked->cpu_milli == 500 && asked->memory_bytes == 1 << 30 && asked->pids == 0);
    rig->limits.commands = 3;
    rig->limits.cpu_milli = 500;
    front_send_sandbox(rig, message.request);
    json_t *answer = node_answer_of(rig, fd);
    const json_t *limits = json_object_get(answer, "limits");
    CHECK(json_integer_value(json_object_get(limits, "commands")) == 3);
    CHECK(json_integer_value(json_object_get(limits, "open_files")) == 100);
    CHECK_TEXT(node_code(answer), "ok");
    CHECK(start(rig, "four") == 201 && start(rig, "five") == 201 && start(rig, "six") == 503);
    AUTO_REPLY info = front_call(rig, "GET", "/info", rig->token, NULL);
    CHECK(has(&info, "\"processes\":3") && has(&info, "\"cpu\":0.5"));

    fd = node_ask(rig, limits_message());
    front_expect(rig, FL_LIMITS, &message);
    struct front_launcher_message refusal = {.type = FL_REFUSED, .request = message.request};
    error_set(&refusal.as.refused, ERROR_INVALID, "memory: less than is in use");
    front_send(rig, &refusal);
    CHECK_TEXT(node_code(node_answer_of(rig, fd)), "INVALID_REQUEST");
    CHECK_TEXT(node_code(node_call_now(rig, json_pack("{s:s,s:s}", "call", "limits", "id", "sbx_none"))), "NOT_FOUND");
    CHECK_TEXT(
        node_code(node_call_now(rig, json_pack("{s:s,s:s,s:i}", "call", "limits", "id", FRONT_SANDBOX, "pids", -1))),
        "INVALID_REQUEST");
}

static json_t *network_message(const char *egress, json_t *allow)
{
    return json_pack("{s:s,s:s,s:{s:s,s:o*}}", "call", "network", "id", FRONT_SANDBOX, "network", "egress", egress,
                     "allow", allow);
}

/* Names go on as words, addresses as numbers: the launcher reads no text. */
static void test_network(const struct front_rig *rig)
{
    struct front_launcher_message message;
    json_t *allow = json_pack("[s,s,s,s]", "PyPI.org", "203.0.113.9/24:53/udp", "*.b.org:22", "198.51.100.7");
    int fd = node_ask(rig, network_message("allow", allow));
    front_expect(rig, FL_NETWORK, &message);
    const struct fl_network *asked = &message.as.network.network;
    CHECK_TEXT(message.as.network.id, FRONT_SANDBOX);
    CHECK_TEXT(asked->names, "pypi.org *.b.org:22");
    CHECK(asked->mode == FL_NETWORK_ALLOW && asked->net_count == 2);
    CHECK(asked->nets[0].address == 0xCB007100 && asked->nets[0].prefix == 24 &&
          asked->nets[0].protocol == IPPROTO_UDP);
    CHECK(asked->nets[0].port_from == 53 && asked->nets[0].port_to == 53);
    CHECK(asked->nets[1].address == 0xC6336407 && asked->nets[1].prefix == 32 && asked->nets[1].port_to == 0);
    front_send_sandbox(rig, message.request);
    CHECK_TEXT(node_code(node_answer_of(rig, fd)), "ok");

    fd = node_ask(rig, network_message("public", NULL));
    front_expect(rig, FL_NETWORK, &message);
    CHECK(message.as.network.network.mode == FL_NETWORK_PUBLIC && message.as.network.network.names[0] == '\0');
    struct front_launcher_message refusal = {.type = FL_REFUSED, .request = message.request};
    error_set(&refusal.as.refused, ERROR_FORBIDDEN, "this node allows no egress");
    front_send(rig, &refusal);
    CHECK_TEXT(node_code(node_answer_of(rig, fd)), "FORBIDDEN");
    CHECK_TEXT(node_code(node_call_now(rig, network_message("all", NULL))), "INVALID_REQUEST");
    CHECK_TEXT(node_code(node_call_now(rig, network_message("allow", json_pack("[s]", "10.0.0.1")))),
               "INVALID_REQUEST");
    CHECK_TEXT(node_code(node_call_now(rig, json_pack("{s:s,s:s}", "call", "network", "id", "sbx_none"))), "NOT_FOUND");
}

static void test_drops(const struct front_rig *rig)
{
    struct front_launcher_message message;
    int fd = node_ask(rig, json_pack("{s:s,s:s}", "call", "snapshot_drop", "snapshot", "snp_testtesttesttest0000"));
    front_expect(rig, FL_SNAPSHOT_DROP, &message);
    CHECK_TEXT(message.as.snapshot.snapshot, "snp_testtesttesttest0000");
    struct front_launcher_message done = {.type = FL_DONE, .request = message.request};
    front_send(rig, &done);
    CHECK_TEXT(node_code(node_answer_of(rig, fd)), "ok");
    fd = node_ask(rig, json_pack("{s:s,s:s,s:s}", "call", "volume_drop", "owner", "0a1b", "name", "data"));
    front_expect(rig, FL_VOLUME_DROP, &message);
    CHECK_TEXT(message.as.volume_drop.owner, "0a1b");
    CHECK_TEXT(message.as.volume_drop.source, "data");
    struct front_launcher_message refusal = {.type = FL_REFUSED, .request = message.request};
    error_set(&refusal.as.refused, ERROR_CONFLICT, "a sandbox has it");
    front_send(rig, &refusal);
    CHECK_TEXT(node_code(node_answer_of(rig, fd)), "CONFLICT");
    CHECK_TEXT(node_code(node_call_now(rig, json_pack("{s:s,s:s}", "call", "snapshot_drop", "snapshot", "../x"))),
               "INVALID_REQUEST");
    CHECK_TEXT(
        node_code(node_call_now(rig, json_pack("{s:s,s:s,s:s}", "call", "volume_drop", "owner", "A/B", "name", "d"))),
        "INVALID_REQUEST");
}

/* Until `wanted` events came; what the front asks of its launcher meanwhile is not answered: the last word does. */
static void test_watch(const struct front_rig *rig)
{
    char narrow[CAPABILITY_TEXT_BYTES], text[65536] = "";
    front_mint(rig, FRONT_SANDBOX, "fs:ro@/workspace", 600, narrow);
    int fd = front_send_request(rig, "GET", "/s/" FRONT_SANDBOX "/metrics/watch?interval=1", narrow, "", 0);
    size_t length = 0;
    for (const char *at = NULL; !at || !strstr(at + 1, "event: metrics\ndata: {");) {
        ssize_t got = read(fd, text + length, sizeof text - 1 - length);
        CHECK(got > 0);
        if (got <= 0)
            break;
        length += (size_t)got;
        text[length] = 0;
        at = strstr(text, "event: metrics\ndata: {");
    }
    close(fd);
    CHECK(strstr(text, "text/event-stream") && strstr(text, "\"type\":\"metrics\"") && strstr(text, "\"used_bytes\":"));
    AUTO_REPLY wrong = front_call(rig, "GET", "/metrics/watch?interval=61", narrow, NULL);
    CHECK(wrong.status == 400 && has(&wrong, "interval: 1 to 60"));
    front_mint(rig, FRONT_SANDBOX, "process", 8, narrow); /* the first event may wait 2 s for our word */
    AUTO_REPLY expires = front_call(rig, "GET", "/metrics/watch?interval=60", narrow, NULL);
    CHECK(expires.status == 200 && has(&expires, "event: metrics") && has(&expires, "TOKEN_EXPIRED"));
    struct front_launcher_message message = {.type = FL_ENDED};
    int ending = front_send_request(rig, "GET", "/s/" FRONT_SANDBOX "/metrics/watch?interval=1", rig->token, "", 0);
    struct pollfd begun = {.fd = ending, .events = POLLIN};
    CHECK(poll(&begun, 1, 20000) == 1);
    strcpy(message.as.ended.id, FRONT_SANDBOX);
    strcpy(message.as.ended.reason, "released");
    message.as.ended.epoch = 1;
    front_send(rig, &message);
    AUTO_REPLY over = front_read(ending);
    CHECK(over.status == 200 && has(&over, "event: error") && has(&over, "GONE"));
}

int main(void)
{
    struct front_rig rig;
    front_rig_open(&rig);
    rig.limits.commands = 2;
    rig.limits.open_files = 100;
    rig.limits.output_bytes = 256 << 10;
    front_start(&rig, true);
    test_commands(&rig);
    test_files(&rig);
    test_output(&rig);
    test_change(&rig);
    test_network(&rig);
    test_drops(&rig);
    test_watch(&rig);
    CHECK(front_stop(&rig, SIGTERM) == 0);
    front_rig_close(&rig);
    return check_done();
}
