/* node_test.c - the sealed node route of a real front: prepare, use, destroy; and what it refuses. */
#include "tests/unit/sandboxd/front/front_rig.h"

#include "shared/node_protocol/link.h"

static uint64_t next_number = 1;

/* Sends one sealed message; the caller reads the socket. Takes the reference. */
static int send_sealed(const struct front_rig *rig, struct link_head head, const struct key *key, json_t *message)
{
    uint8_t *bytes = NULL;
    size_t size = 0;
    struct error err = {0};
    if (!link_seal(key->bytes, &head, message, &bytes, &size, &err))
        rig_fail(err.message);
    json_decref(message);
    int fd = front_send_request(rig, "POST", "/node/v1/message", NULL, bytes, size);
    free(bytes);
    return fd;
}

static struct link_head next_head(const struct front_rig *rig)
{
    struct link_head head = {.node = "n1", .incarnation = rig->incarnation, .number = next_number++};
    return head;
}

static int ask(const struct front_rig *rig, json_t *message)
{
    struct key key;
    key_link(&key, &rig->node_key, "negotiator");
    return send_sealed(rig, next_head(rig), &key, message);
}

/* Opens the sealed answer; NULL when it is none. The caller owns it. */
static json_t *answer_of(const struct front_rig *rig, int fd)
{
    AUTO_REPLY reply = front_read(fd);
    struct key key;
    struct link_head head;
    struct error err = {0};
    key_link(&key, &rig->node_key, "sandboxd");
    CHECK(reply.status == 200);
    json_t *answer = link_open(key.bytes, (const uint8_t *)reply.body, reply.size, &head, &err);
    CHECK(answer != NULL && head.in_reply_to == next_number - 1 && head.incarnation == rig->incarnation);
    return answer;
}

static json_t *prepare_message(void)
{
    json_t *message =
        json_pack("{s:s,s:I,s:{s:s,s:s,s:s,s:s,s:i,s:i,s:i,s:i,s:I,s:i,s:{s:s}}}", "call", "prepare", "time",
                  (json_int_t)clock_wall_ms(), "sandbox", "id", FRONT_SANDBOX, "name", "brisk-otter", "template",
                  "base", "isolation", "auto", "cpu_milli", 1000, "memory_bytes", 1 << 29, "disk_bytes", 0, "pids", 256,
                  "deadline", (json_int_t)(clock_wall_ms() + 3600000), "epoch", 1, "env", "GIVEN", "by-prepare");
    CHECK(message != NULL);
    return message;
}

static void test_prepare(const struct front_rig *rig)
{
    struct front_launcher_message message;
    AUTO_REPLY before = front_call(rig, "GET", "/info", rig->token, NULL);
    CHECK(before.status == 401);
    int fd = ask(rig, prepare_message());
    front_expect(rig, FL_PREPARE, &message);
    CHECK_TEXT(message.as.prepare.id, FRONT_SANDBOX);
    CHECK_TEXT(message.as.prepare.hostname, "brisk-otter");
    CHECK(message.as.prepare.limits.pids == 256 && message.as.prepare.limits.memory_bytes == 1 << 29);
    CHECK_TEXT(message.as.prepare.env, "GIVEN=by-prepare");
    CHECK(message.as.prepare.epoch == 1);
    front_send_sandbox(rig, message.request);
    json_t *answer = answer_of(rig, fd);
    const json_t *sandbox = json_object_get(answer, "sandbox");
    CHECK(json_is_true(json_object_get(answer, "ok")));
    CHECK_TEXT(json_string_value(json_object_get(sandbox, "isolation")), "namespaces");
    CHECK(json_is_false(json_object_get(sandbox, "reused")));
    json_decref(answer);
    AUTO_REPLY used = front_exec(rig, "{\"cmd\":\"echo $GIVEN\",\"cwd\":\"/\",\"stream\":\"none\"}");
    CHECK(used.status == 200 && strstr(used.body, "by-launcher"));
}

static void test_prepare_again_and_refused(const struct front_rig *rig)
{
    struct front_launcher_message message;
    int fd = ask(rig, prepare_message());
    front_expect(rig, FL_PREPARE, &message);
    front_send_sandbox(rig, message.request);
    json_t *again = answer_of(rig, fd);
    CHECK(json_is_true(json_object_get(json_object_get(again, "sandbox"), "reused")));
    json_decref(again);

    fd = ask(rig, prepare_message());
    front_expect(rig, FL_PREPARE, &message);
    struct front_launcher_message refusal = {.type = FL_REFUSED, .request = message.request};
    error_set(&refusal.as.refused, ERROR_NO_CAPACITY, "all slots are taken");
    front_send(rig, &refusal);
    json_t *refused = answer_of(rig, fd);
    const json_t *error = json_object_get(refused, "error");
    CHECK_TEXT(json_string_value(json_object_get(error, "code")), "NO_CAPACITY");
    CHECK_TEXT(json_string_value(json_object_get(error, "message")), "all slots are taken");
    json_decref(refused);

    json_t *broken = answer_of(rig, ask(rig, json_pack("{s:s,s:{}}", "call", "prepare", "sandbox")));
    CHECK_TEXT(json_string_value(json_object_get(json_object_get(broken, "error"), "code")), "INVALID_REQUEST");
    json_decref(broken);
    json_t *large = prepare_message();
    json_object_set_new(json_object_get(json_object_get(large, "sandbox"), "env"), "LARGE", json_sprintf("%04095d", 1));
    json_t *too_large = answer_of(rig, ask(rig, large));
    error = json_object_get(too_large, "error");
    CHECK_TEXT(json_string_value(json_object_get(error, "code")), "INVALID_REQUEST");
    CHECK(strstr(json_string_value(json_object_get(error, "message")), "env has more than 4095 bytes"));
    json_decref(too_large);
}

/* Every one is 401 in the clear: nothing is told to who has no key. */
static void test_strangers(const struct front_rig *rig)
{
    struct key right, wrong;
    key_link(&right, &rig->node_key, "negotiator");
    key_link(&wrong, &rig->node_key, "sandboxd"); /* our own direction, thrown back */
    struct link_head heads[] = {next_head(rig), next_head(rig), next_head(rig), next_head(rig), next_head(rig)};
    strcpy(heads[1].node, "n2");
    heads[2].incarnation++;
    heads[3].in_reply_to = 5;
    for (size_t i = 0; i < 5; i++) {
        json_t *message = json_pack("{s:s,s:s,s:s,s:I}", "call", "destroy", "id", FRONT_SANDBOX, "reason", "stolen",
                                    "time", (json_int_t)clock_wall_ms() - (i == 4 ? 60000 : 0));
        AUTO_REPLY reply = front_read(send_sealed(rig, heads[i], i == 0 ? &wrong : &right, message));
        CHECK(reply.status == 401);
    }
    AUTO_REPLY garbage = front_read(front_send_request(rig, "POST", "/node/v1/message", NULL, "PL1", 3));
    CHECK(garbage.status == 401);
    /* A number is good once. */
    struct link_head once = next_head(rig);
    AUTO_REPLY first = front_read(send_sealed(rig, once, &right, json_pack("{s:s}", "call", "nothing")));
    AUTO_REPLY second = front_read(send_sealed(rig, once, &right, json_pack("{s:s}", "call", "nothing")));
    CHECK(first.status == 200 && second.status == 401);
}

static void test_deadline(const struct front_rig *rig)
{
    struct front_launcher_message message;
    int fd = ask(rig, json_pack("{s:s,s:s,s:I}", "call", "deadline", "id", FRONT_SANDBOX, "deadline",
                                (json_int_t)(clock_wall_ms() + 7200000)));
    front_expect(rig, FL_DEADLINE, &message);
    CHECK(message.as.deadline.deadline_wall_ms > clock_wall_ms() + 3600000);
    front_send_sandbox(rig, message.request);
    json_t *answer = answer_of(rig, fd);
    CHECK(json_is_true(json_object_get(answer, "ok")));
    json_decref(answer);
    json_t *unknown = answer_of(rig, ask(rig, json_pack("{s:s,s:s,s:I}", "call", "deadline", "id", "sbx_none",
                                                        "deadline", (json_int_t)clock_wall_ms())));
    CHECK_TEXT(json_string_value(json_object_get(json_object_get(unknown, "error"), "code")), "NOT_FOUND");
    json_decref(unknown);
}

/* When the heartbeat goes: heartbeat_test.c. This front has no negotiator to tell. */
static void test_beat(const struct front_rig *rig)
{
    json_t *answer = answer_of(rig, ask(rig, json_pack("{s:s}", "call", "beat")));
    CHECK(json_is_true(json_object_get(answer, "ok")));
    json_decref(answer);
}

/* init ends what runs, and the launcher is asked the moment init is gone, long before the grace is over. */
static void test_destroy(const struct front_rig *rig)
{
    struct front_launcher_message message;
    const char *body =
        "{\"cmd\":\"trap 'echo bye; exit 9' TERM; echo up; while :; do sleep 0.05; done\",\"cwd\":\"/\"}";
    int exec = front_send_request(rig, "POST", "/s/" FRONT_SANDBOX "/exec", rig->token, body, strlen(body));
    usleep(300000);
    uint64_t before = clock_boot_ns();
    json_t *answer = answer_of(
        rig, ask(rig, json_pack("{s:s,s:s,s:s}", "call", "destroy", "id", FRONT_SANDBOX, "reason", "released")));
    CHECK(json_is_true(json_object_get(answer, "ok")));
    json_decref(answer);
    AUTO_REPLY refused = front_exec(rig, "{\"cmd\":\"true\",\"cwd\":\"/\"}");
    CHECK(refused.status == 410 && strstr(refused.body, "released"));
    front_expect(rig, FL_ENDING, &message);
    CHECK_TEXT(message.as.destroy.reason, "released");
    front_expect(rig, FL_DESTROY, &message);
    CHECK(clock_boot_ns() - before < UINT64_C(8000000000));
    CHECK_TEXT(message.as.destroy.reason, "released");
    message = (struct front_launcher_message){.type = FL_ENDED, .request = message.request};
    strcpy(message.as.ended.id, FRONT_SANDBOX);
    strcpy(message.as.ended.reason, "crashed"); /* who asked for the end knows better */
    message.as.ended.epoch = 1;
    front_send(rig, &message);
    AUTO_REPLY told = front_read(exec);
    CHECK(strstr(told.body, "up\\n") && strstr(told.body, "bye\\n"));
    AUTO_REPLY gone = front_call(rig, "GET", "/info", rig->token, NULL);
    for (int tries = 0; tries < 500 && gone.status == 200; tries++) { /* while it ends, it can still be looked at */
        usleep(10000);
        front_reply_done(&gone);
        gone = front_call(rig, "GET", "/info", rig->token, NULL);
    }
    CHECK(gone.status == 410 && strstr(gone.body, "released"));
    json_t *unknown =
        answer_of(rig, ask(rig, json_pack("{s:s,s:s,s:s}", "call", "destroy", "id", "sbx_none", "reason", "deleted")));
    CHECK(json_is_true(json_object_get(unknown, "ok")));
    json_decref(unknown);
    json_t *again = answer_of(rig, ask(rig, prepare_message()));
    CHECK_TEXT(json_string_value(json_object_get(json_object_get(again, "error"), "code")), "GONE");
    json_decref(again);
}

int main(void)
{
    struct front_rig rig;
    front_rig_open(&rig);
    front_start(&rig, false);
    test_prepare(&rig);
    test_prepare_again_and_refused(&rig);
    test_strangers(&rig);
    test_deadline(&rig);
    test_beat(&rig);
    test_destroy(&rig);
    CHECK(front_stop(&rig, SIGTERM) == 0);
    front_rig_close(&rig);
    return check_done();
}
