/* node_test.c - the sealed node route of a real front: prepare, use, destroy; and what it refuses. */
#include "tests/unit/sandboxd/front/node_rig.h"

#define BEING_BORN "sbx_bbbbbbbbbbbbbbbbbbbb"

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
    int fd = node_ask(rig, prepare_message());
    front_expect(rig, FL_PREPARE, &message);
    CHECK_TEXT(message.as.prepare.id, FRONT_SANDBOX);
    CHECK_TEXT(message.as.prepare.hostname, "brisk-otter");
    CHECK(message.as.prepare.limits.pids == 256 && message.as.prepare.limits.memory_bytes == 1 << 29);
    CHECK_TEXT(message.as.prepare.env, "GIVEN=by-prepare");
    CHECK(message.as.prepare.epoch == 1);
    front_send_sandbox(rig, message.request);
    json_t *answer = node_answer_of(rig, fd);
    const json_t *sandbox = json_object_get(answer, "sandbox");
    CHECK(json_is_true(json_object_get(answer, "ok")));
    CHECK_TEXT(json_string_value(json_object_get(sandbox, "isolation")), "namespaces");
    CHECK(json_is_false(json_object_get(sandbox, "reused")));
    json_decref(answer);
    AUTO_REPLY used = front_exec(rig, "{\"cmd\":\"echo $GIVEN\",\"cwd\":\"/\",\"stream\":\"none\"}");
    CHECK(used.status == 200 && strstr(used.body, "by-launcher"));
}

/* All that a sandbox can be asked to be reaches the launcher; what it could not say is refused before. */
static void test_prepare_in_full(const struct front_rig *rig)
{
    struct front_launcher_message message;
    json_t *asked = prepare_message(), *sandbox = json_object_get(asked, "sandbox");
    json_object_update_new(sandbox, json_pack("{s:i,s:i,s:i,s:s,s:b,s:[{s:s,s:s,s:s,s:s,s:b,s:i},{s:s,s:s,s:s,s:s}]}",
                                              "open_files", 512, "commands", 7, "output_bytes", 1 << 20, "snapshot",
                                              "snp_testtesttesttest0000", "root", 1, "volumes", "kind", "named",
                                              "owner", "0123456789abcdef0123456789abcdef", "source", "data", "path",
                                              "/data", "read_only", 1, "size_bytes", 4096, "kind", "host", "source",
                                              "/srv/share", "sub_path", "a/b", "path", "/mnt/share"));
    int fd = node_ask(rig, asked);
    front_expect(rig, FL_PREPARE, &message);
    const struct fl_prepare *prepare = &message.as.prepare;
    CHECK(prepare->limits.open_files == 512 && prepare->limits.commands == 7);
    CHECK(prepare->limits.output_bytes == 1 << 20 && prepare->root_allowed == 1 && prepare->volume_count == 2);
    CHECK_TEXT(prepare->snapshot, "snp_testtesttesttest0000");
    const struct fl_volume *named = &prepare->volumes[0], *host = &prepare->volumes[1];
    CHECK(named->kind == FL_VOLUME_NAMED && named->read_only == 1 && named->size_bytes == 4096);
    CHECK_TEXT(named->owner, "0123456789abcdef0123456789abcdef");
    CHECK_TEXT(named->path, "/data");
    CHECK(host->kind == FL_VOLUME_HOST && host->read_only == 0);
    CHECK_TEXT(host->source, "/srv/share");
    CHECK_TEXT(host->sub_path, "a/b");
    front_send_sandbox(rig, message.request);
    json_t *answer = node_answer_of(rig, fd);
    CHECK_TEXT(json_string_value(json_object_get(json_object_get(answer, "sandbox"), "template")), "base");
    CHECK(json_is_false(json_object_get(json_object_get(answer, "sandbox"), "warm")));
    json_decref(answer);

    static const char *const WRONG[] = {
        "{\"volumes\":[{\"kind\":\"named\",\"owner\":\"0a\",\"source\":\"../x\",\"path\":\"/data\"}]}",
        "{\"volumes\":[{\"kind\":\"named\",\"owner\":\"0a\",\"source\":\"x\",\"path\":\"/data/../proc\"}]}",
        "{\"volumes\":[{\"kind\":\"host\",\"source\":\"/srv\",\"sub_path\":\"../etc\",\"path\":\"/data\"}]}",
        "{\"volumes\":[{\"kind\":\"other\",\"path\":\"/data\"}]}",
        "{\"volumes\":[{},{},{},{},{},{},{},{},{}]}",
        "{\"snapshot\":\"../../etc\"}",
        "{\"open_files\":-1}",
        "{\"commands\":1.5}",
        "{\"entrypoint\":[]}",
        "{\"entrypoint\":[1]}",
        "{\"epoch\":0}",
    };
    for (size_t i = 0; i < sizeof WRONG / sizeof *WRONG; i++) {
        json_error_t broken;
        json_t *wrong = prepare_message(), *more = json_loads(WRONG[i], 0, &broken);
        CHECK(more != NULL);
        json_object_update(json_object_get(wrong, "sandbox"), more);
        json_decref(more);
        CHECK_TEXT(node_code(node_call_now(rig, wrong)), "INVALID_REQUEST");
    }
}

static json_t *entrypoint_message(const char *text)
{
    json_t *message = prepare_message();
    json_object_set_new(json_object_get(message, "sandbox"), "entrypoint", json_pack("[s,s,s]", "/bin/sh", "-c", text));
    return message;
}

static void prepare_with(const struct front_rig *rig, json_t *asked, bool reused)
{
    struct front_launcher_message message;
    int fd = node_ask(rig, asked);
    front_expect(rig, FL_PREPARE, &message);
    front_tell_sandbox(rig, message.request, reused);
    CHECK_TEXT(node_code(node_answer_of(rig, fd)), "ok");
}

/* Once: not again by the same prepare, nor by one of a sandbox that has been there for long. */
static void test_entrypoint(struct front_rig *rig)
{
    rig->age_ms = 3600000;
    prepare_with(rig, entrypoint_message("echo too late"), true);
    AUTO_REPLY none = front_call(rig, "GET", "/processes/entrypoint", rig->token, NULL);
    CHECK(none.status == 404);
    rig->age_ms = 0;
    prepare_with(rig, entrypoint_message("echo first $GIVEN; pwd; exit 3"), false);
    AUTO_REPLY first = front_call(rig, "GET", "/processes/entrypoint/output?follow=1", rig->token, NULL);
    AUTO_FREE char *text = front_join(&first, "stdout", NULL);
    CHECK(first.status == 200 && strstr(first.body, "\"exit_code\":3"));
    CHECK_TEXT(text, "first by-launcher\n/usr\n");
    prepare_with(rig, entrypoint_message("echo second"), true);
    prepare_with(rig, entrypoint_message("echo second"), false);
    AUTO_REPLY again = front_call(rig, "GET", "/processes/entrypoint/output?follow=1", rig->token, NULL);
    CHECK(again.status == 200 && strstr(again.body, "first") && !strstr(again.body, "second"));
    prepare_with(rig, entrypoint_message("echo $((6 * 7))"), false);
}

static void test_prepare_again_and_refused(const struct front_rig *rig)
{
    struct front_launcher_message message;
    int fd = node_ask(rig, prepare_message());
    front_expect(rig, FL_PREPARE, &message);
    front_send_sandbox(rig, message.request);
    json_t *again = node_answer_of(rig, fd);
    CHECK(json_is_true(json_object_get(json_object_get(again, "sandbox"), "reused")));
    json_decref(again);

    fd = node_ask(rig, prepare_message());
    front_expect(rig, FL_PREPARE, &message);
    struct front_launcher_message refusal = {.type = FL_REFUSED, .request = message.request};
    error_set(&refusal.as.refused, ERROR_NO_CAPACITY, "all slots are taken");
    front_send(rig, &refusal);
    json_t *refused = node_answer_of(rig, fd);
    const json_t *error = json_object_get(refused, "error");
    CHECK_TEXT(json_string_value(json_object_get(error, "code")), "NO_CAPACITY");
    CHECK_TEXT(json_string_value(json_object_get(error, "message")), "all slots are taken");
    json_decref(refused);

    json_t *broken = node_answer_of(rig, node_ask(rig, json_pack("{s:s,s:{}}", "call", "prepare", "sandbox")));
    CHECK_TEXT(json_string_value(json_object_get(json_object_get(broken, "error"), "code")), "INVALID_REQUEST");
    json_decref(broken);
    json_t *large = prepare_message();
    json_object_set_new(json_object_get(json_object_get(large, "sandbox"), "env"), "LARGE", json_sprintf("%04095d", 1));
    json_t *too_large = node_answer_of(rig, node_ask(rig, large));
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
    struct link_head heads[] = {node_next_head(rig), node_next_head(rig), node_next_head(rig), node_next_head(rig),
                                node_next_head(rig)};
    strcpy(heads[1].node, "n2");
    heads[2].incarnation++;
    heads[3].in_reply_to = 5;
    for (size_t i = 0; i < 5; i++) {
        json_t *message = json_pack("{s:s,s:s,s:s,s:I}", "call", "destroy", "id", FRONT_SANDBOX, "reason", "stolen",
                                    "time", (json_int_t)clock_wall_ms() - (i == 4 ? 60000 : 0));
        AUTO_REPLY reply = front_read(node_send_sealed(rig, heads[i], i == 0 ? &wrong : &right, message));
        CHECK(reply.status == 401);
    }
    AUTO_REPLY garbage = front_read(front_send_request(rig, "POST", "/node/v1/message", NULL, "PL1", 3));
    CHECK(garbage.status == 401);
    /* A number is good once. */
    struct link_head once = node_next_head(rig);
    AUTO_REPLY first = front_read(node_send_sealed(rig, once, &right, json_pack("{s:s}", "call", "nothing")));
    AUTO_REPLY second = front_read(node_send_sealed(rig, once, &right, json_pack("{s:s}", "call", "nothing")));
    CHECK(first.status == 200 && second.status == 401);
}

static void test_deadline(const struct front_rig *rig)
{
    struct front_launcher_message message;
    int fd = node_ask(rig, json_pack("{s:s,s:s,s:I}", "call", "deadline", "id", FRONT_SANDBOX, "deadline",
                                     (json_int_t)(clock_wall_ms() + 7200000)));
    front_expect(rig, FL_DEADLINE, &message);
    CHECK(message.as.deadline.deadline_wall_ms > clock_wall_ms() + 3600000);
    front_send_sandbox(rig, message.request);
    json_t *answer = node_answer_of(rig, fd);
    CHECK(json_is_true(json_object_get(answer, "ok")));
    json_decref(answer);
    json_t *unknown = node_answer_of(rig, node_ask(rig, json_pack("{s:s,s:s,s:I}", "call", "deadline", "id", "sbx_none",
                                                                  "deadline", (json_int_t)clock_wall_ms())));
    CHECK_TEXT(json_string_value(json_object_get(json_object_get(unknown, "error"), "code")), "NOT_FOUND");
    json_decref(unknown);
}

/* When the heartbeat goes: heartbeat_test.c. This front has no negotiator to tell. */
static void test_beat(const struct front_rig *rig)
{
    json_t *answer = node_answer_of(rig, node_ask(rig, json_pack("{s:s}", "call", "beat")));
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
    json_t *answer = node_answer_of(
        rig, node_ask(rig, json_pack("{s:s,s:s,s:s}", "call", "destroy", "id", FRONT_SANDBOX, "reason", "released")));
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
    json_t *again = node_answer_of(rig, node_ask(rig, prepare_message()));
    CHECK_TEXT(json_string_value(json_object_get(json_object_get(again, "error"), "code")), "GONE");
    json_decref(again);
}

static void tell_end(const struct front_rig *rig, const struct fl_destroy *destroy, uint64_t request,
                     const char *reason)
{
    struct front_launcher_message message = {.type = FL_ENDED, .request = request};
    memcpy(message.as.ended.id, destroy->id, sizeof message.as.ended.id);
    strcpy(message.as.ended.reason, reason);
    message.as.ended.epoch = 1;
    front_send(rig, &message);
}

/* What this front has not got: the launcher is asked, so that nothing is born that nobody wants any more. */
static void test_destroy_of_one_being_born(const struct front_rig *rig)
{
    struct front_launcher_message message, prepared;
    json_t *asked = prepare_message();
    json_object_set_new(json_object_get(asked, "sandbox"), "id", json_string(BEING_BORN));
    int fd = node_ask(rig, asked);
    front_expect(rig, FL_PREPARE, &prepared);
    CHECK_TEXT(node_code(node_call_now(
                   rig, json_pack("{s:s,s:s,s:s}", "call", "destroy", "id", BEING_BORN, "reason", "no longer wanted"))),
               "ok");
    front_expect(rig, FL_DESTROY, &message);
    CHECK_TEXT(message.as.destroy.id, BEING_BORN);
    CHECK_TEXT(message.as.destroy.reason, "no longer wanted");
    struct front_launcher_message refused = {.type = FL_REFUSED, .request = prepared.request};
    error_set(&refused.as.refused, ERROR_GONE, "deleted");
    front_send(rig, &refused);
    tell_end(rig, &message.as.destroy, message.request, "no longer wanted");
    CHECK_TEXT(node_code(node_answer_of(rig, fd)), "GONE");
}

/* One that there never was has not ended: its id may still be used. */
static void test_destroy_of_an_unknown_one(const struct front_rig *rig)
{
    struct front_launcher_message message;
    const char *id = "sbx_uuuuuuuuuuuuuuuuuuuu";
    CHECK_TEXT(
        node_code(node_call_now(rig, json_pack("{s:s,s:s,s:s}", "call", "destroy", "id", id, "reason", "deleted"))),
        "ok");
    front_expect(rig, FL_DESTROY, &message);
    tell_end(rig, &message.as.destroy, message.request, "unknown");
    json_t *asked = prepare_message();
    json_object_set_new(json_object_get(asked, "sandbox"), "id", json_string(id));
    int fd = node_ask(rig, asked);
    front_expect(rig, FL_PREPARE, &message);
    struct front_launcher_message refused = {.type = FL_REFUSED, .request = message.request};
    error_set(&refused.as.refused, ERROR_NO_CAPACITY, "not here");
    front_send(rig, &refused);
    CHECK_TEXT(node_code(node_answer_of(rig, fd)), "NO_CAPACITY");
}

int main(void)
{
    struct front_rig rig;
    front_rig_open(&rig);
    rig.workdir = "/usr";
    front_start(&rig, false);
    test_prepare(&rig);
    test_prepare_in_full(&rig);
    test_entrypoint(&rig);
    test_prepare_again_and_refused(&rig);
    test_strangers(&rig);
    test_deadline(&rig);
    test_beat(&rig);
    test_destroy_of_one_being_born(&rig);
    test_destroy_of_an_unknown_one(&rig);
    test_destroy(&rig);
    CHECK(front_stop(&rig, SIGTERM) == 0);
    front_rig_close(&rig);
    return check_done();
}
