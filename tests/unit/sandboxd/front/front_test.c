/* front_test.c - a front with a real init behind it: exec in its forms, replay, authorisation, bounds, adoption. */
#include "tests/unit/sandboxd/front/front_rig.h"

static bool has(const struct front_reply *reply, const char *text)
{
    bool found = strstr(reply->body, text) != NULL;
    if (!found)
        fprintf(stderr, "not in the reply (%d): %s\n%.600s\n", reply->status, text, reply->body);
    return found;
}

static void test_open_routes(const struct front_rig *rig)
{
    AUTO_REPLY health = front_read(front_send_request(rig, "GET", "/healthz", NULL, "", 0));
    CHECK(health.status == 200 && has(&health, "\"ok\""));
    AUTO_REPLY info = front_call(rig, "GET", "/info", rig->token, NULL);
    CHECK(info.status == 200 && has(&info, "\"tok_test\"") && has(&info, "\"process\""));
}

static void test_exec(const struct front_rig *rig)
{
    AUTO_REPLY one = front_exec(rig, "{\"cmd\":\"echo out; echo err >&2; exit 3\",\"cwd\":\"/\",\"stream\":\"none\"}");
    CHECK(one.status == 200 && has(&one, "\"stdout\":\"out\\n\"") && has(&one, "\"stderr\":\"err\\n\""));
    CHECK(has(&one, "\"exit_code\":3") && has(&one, "\"truncated\":false") && has(&one, "\"timed_out\":false"));
    AUTO_REPLY events = front_exec(rig, "{\"argv\":[\"/bin/echo\",\"a b\"],\"cwd\":\"/\"}");
    CHECK(events.status == 200 && has(&events, "{\"type\":\"started\",\"id\":\"exe_"));
    CHECK(has(&events, "{\"type\":\"stdout\",\"offset\":0,\"data\":\"a b\\n\"}"));
    CHECK(has(&events, "{\"type\":\"exit\",\"exit_code\":0,\"usage\":{\"wall_ms\":"));
    AUTO_REPLY sse = front_exec(rig, "{\"cmd\":\"echo x\",\"cwd\":\"/\",\"stream\":\"sse\"}");
    CHECK(has(&sse, "event: stdout\ndata: {\"type\":\"stdout\"") && strcasestr(sse.head, "text/event-stream"));
    AUTO_REPLY env = front_exec(
        rig, "{\"cmd\":\"echo $HOME $USER $A $PWD $TMPDIR\",\"cwd\":\"/usr\",\"env\":{\"A\":\"1\",\"TMPDIR\":\"/var\"},"
             "\"stream\":\"none\"}");
    CHECK(has(&env, "/workspace user 1 /usr /var"));
    AUTO_REPLY killed = front_exec(rig, "{\"cmd\":\"kill -9 $$\",\"cwd\":\"/\",\"stream\":\"none\"}");
    CHECK(has(&killed, "\"exit_code\":137") && has(&killed, "\"signal\":\"SIGKILL\""));
    AUTO_REPLY late =
        front_exec(rig, "{\"cmd\":\"(sleep 60 &) ; sleep 60\",\"cwd\":\"/\",\"timeout\":0.3,\"stream\":\"none\"}");
    CHECK(has(&late, "\"timed_out\":true"));
    AUTO_REPLY binary = front_exec(rig, "{\"cmd\":\"printf '\\\\377'\",\"cwd\":\"/\",\"stream\":\"none\"}");
    CHECK(has(&binary, "\"stdout_b64\":\"/w==\""));
    AUTO_REPLY split = front_exec(
        rig, "{\"cmd\":\"printf '\\\\342\\\\202'; sleep 0.2; printf '\\\\254'; printf '\\\\303'\",\"cwd\":\"/\"}");
    CHECK(has(&split, "\"offset\":0,\"data\":\"\xe2\x82\xac\"") && has(&split, "\"offset\":3,\"data_b64\":\"ww==\""));
    /* A background child that keeps the pipe open does not delay the end. */
    uint64_t before = clock_boot_ns();
    AUTO_REPLY background = front_exec(rig, "{\"cmd\":\"sleep 20 & echo now\",\"cwd\":\"/\",\"id\":\"bg\"}");
    CHECK(has(&background, "\"exit_code\":0") && clock_boot_ns() - before < UINT64_C(10000000000));
    AUTO_REPLY gone = front_call(rig, "DELETE", "/processes/bg", rig->token, NULL);
    CHECK(gone.status == 204);
}

static void test_refused_exec(const struct front_rig *rig)
{
    static const struct {
        const char *body;
        int status;
        const char *text;
    } cases[] = {
        {"{\"argv\":[\"/no/such/program\"],\"cwd\":\"/\"}", 400, "INVALID_REQUEST"},
        {"{\"cmd\":\"true\",\"cwd\":\"/no/such/folder\"}", 400, "INVALID_REQUEST"},
        {"{\"cmd\":\"true\",\"x\":1}", 400, "unknown field"},
        {"{\"cmd\":\"true\",\"user\":\"root\"}", 403, "runs no commands as root"},
        {"[]", 400, "INVALID_REQUEST"},
        {"{", 400, "INVALID_REQUEST"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        AUTO_REPLY reply = front_exec(rig, cases[i].body);
        CHECK(reply.status == cases[i].status && has(&reply, cases[i].text));
    }
}

static void test_authorisation(const struct front_rig *rig)
{
    char wrong[CAPABILITY_TEXT_BYTES], other[CAPABILITY_TEXT_BYTES], narrow[CAPABILITY_TEXT_BYTES],
        old[CAPABILITY_TEXT_BYTES];
    front_mint(rig, FRONT_SANDBOX, "process", 600, wrong);
    size_t middle = strlen(wrong) - 20;
    wrong[middle] = wrong[middle] == 'A' ? 'B' : 'A';
    front_mint(rig, "sbx_other", "process", 600, other);
    front_mint(rig, FRONT_SANDBOX, "fs:ro", 600, narrow);
    front_mint(rig, FRONT_SANDBOX, "process", -60, old);
    AUTO_REPLY none = front_call(rig, "GET", "/processes", NULL, NULL);
    CHECK(none.status == 401 && strcasestr(none.head, "www-authenticate: Bearer"));
    AUTO_REPLY bad_mac = front_call(rig, "GET", "/processes", wrong, NULL);
    CHECK(bad_mac.status == 401);
    AUTO_REPLY elsewhere = front_call(rig, "GET", "/processes", other, NULL);
    CHECK(elsewhere.status == 401);
    AUTO_REPLY unknown = front_read(front_send_request(rig, "GET", "/s/sbx_other/processes", other, "", 0));
    CHECK(unknown.status == 401);
    json_error_t json_wrong;
    json_t *a = json_loads(bad_mac.body, 0, &json_wrong), *b = json_loads(unknown.body, 0, &json_wrong);
    const char *text = json_string_value(json_object_get(json_object_get(a, "error"), "message"));
    CHECK_TEXT(json_string_value(json_object_get(json_object_get(b, "error"), "message")), text ? text : "?");
    json_decref(a);
    json_decref(b);
    AUTO_REPLY expired = front_call(rig, "GET", "/processes", old, NULL);
    CHECK(expired.status == 401 && has(&expired, "TOKEN_EXPIRED"));
    AUTO_REPLY scope = front_call(rig, "POST", "/exec", narrow, "{\"cmd\":\"true\"}");
    CHECK(scope.status == 403 && has(&scope, "CAPABILITY_DENIED") && has(&scope, "process"));
    AUTO_REPLY info = front_call(rig, "GET", "/info", narrow, NULL);
    CHECK(info.status == 200);
    char path[CAPABILITY_TEXT_BYTES + 32];
    snprintf(path, sizeof path, "/c/%s/processes", rig->token);
    AUTO_REPLY by_path = front_read(front_send_request(rig, "GET", path, NULL, "", 0));
    CHECK(by_path.status == 200);
}

static void test_ids(const struct front_rig *rig)
{
    const char *body = "{\"cmd\":\"echo once; echo x >> /dev/null\",\"cwd\":\"/\",\"id\":\"same\"}";
    AUTO_REPLY first = front_exec(rig, body);
    AUTO_REPLY second = front_exec(rig, body);
    CHECK(has(&first, "once") && has(&second, "once") && has(&second, "\"type\":\"exit\""));
    AUTO_REPLY other = front_exec(rig, "{\"cmd\":\"echo twice\",\"cwd\":\"/\",\"id\":\"same\"}");
    CHECK(other.status == 409 && has(&other, "CONFLICT"));
    AUTO_REPLY one = front_call(rig, "GET", "/processes/same", rig->token, NULL);
    CHECK(one.status == 200 && has(&one, "\"state\":\"ended\"") && has(&one, "\"exit_code\":0"));
    AUTO_REPLY list = front_call(rig, "GET", "/processes", rig->token, NULL);
    CHECK(list.status == 200 && has(&list, "\"same\""));
    AUTO_REPLY missing = front_call(rig, "GET", "/processes/nobody", rig->token, NULL);
    CHECK(missing.status == 404 && has(&missing, "NOT_FOUND"));
    AUTO_REPLY replay = front_call(rig, "GET", "/processes/same/output?stdout_offset=2", rig->token, NULL);
    CHECK(has(&replay, "{\"type\":\"stdout\",\"offset\":2,\"data\":\"ce\\n\"}") && has(&replay, "\"type\":\"exit\""));
    AUTO_REPLY beyond = front_call(rig, "GET", "/processes/same/output?stdout_offset=99", rig->token, NULL);
    CHECK(beyond.status == 416);
    AUTO_REPLY ended = front_call(rig, "POST", "/processes/same/signal", rig->token, "{\"signal\":\"TERM\"}");
    CHECK(ended.status == 409);
}

static void test_stdin(const struct front_rig *rig)
{
    AUTO_REPLY given =
        front_exec(rig, "{\"cmd\":\"cat; echo end\",\"cwd\":\"/\",\"stdin\":\"abc\",\"stream\":\"none\"}");
    CHECK(has(&given, "\"stdout\":\"abcend\\n\""));
    AUTO_REPLY without = front_exec(rig, "{\"cmd\":\"cat; echo end\",\"cwd\":\"/\",\"stream\":\"none\"}");
    CHECK(has(&without, "\"stdout\":\"end\\n\""));
    AUTO_REPLY started = front_exec(
        rig, "{\"cmd\":\"sleep 0.2; wc -c\",\"cwd\":\"/\",\"stdin_open\":true,\"detach\":true,\"id\":\"in\"}");
    CHECK(started.status == 201 && has(&started, "\"state\":\"running\""));
    static char block[900 * 1024];
    memset(block, 'x', sizeof block);
    int fd = front_send_request(rig, "POST", "/s/" FRONT_SANDBOX "/processes/in/stdin?eof=1", rig->token, block,
                                sizeof block);
    AUTO_REPLY written = front_read(fd);
    CHECK(written.status == 200);
    AUTO_REPLY closed = front_call(rig, "POST", "/processes/in/stdin", rig->token, "more");
    CHECK(closed.status == 409);
    AUTO_REPLY out = front_call(rig, "GET", "/processes/in/output?follow=1", rig->token, NULL);
    CHECK(has(&out, "\"data\":\"921600\\n\"") && has(&out, "\"type\":\"exit\""));
}

static void test_signal_and_delete(const struct front_rig *rig)
{
    AUTO_REPLY a = front_exec(rig, "{\"argv\":[\"/bin/sleep\",\"60\"],\"cwd\":\"/\",\"detach\":true,\"id\":\"sig\"}");
    CHECK(a.status == 201);
    AUTO_REPLY unknown = front_call(rig, "POST", "/processes/sig/signal", rig->token, "{\"signal\":\"NOPE\"}");
    CHECK(unknown.status == 400);
    AUTO_REPLY sent = front_call(rig, "POST", "/processes/sig/signal", rig->token, "{\"signal\":\"TERM\"}");
    CHECK(sent.status == 204);
    AUTO_REPLY end = front_call(rig, "GET", "/processes/sig/output?follow=1", rig->token, NULL);
    CHECK(has(&end, "\"signal\":\"SIGTERM\"") && has(&end, "\"exit_code\":143"));
    AUTO_REPLY b = front_exec(rig, "{\"cmd\":\"sleep 60 & sleep 60\",\"cwd\":\"/\",\"detach\":true,\"id\":\"del\"}");
    CHECK(b.status == 201);
    AUTO_REPLY deleted = front_call(rig, "DELETE", "/processes/del", rig->token, NULL);
    CHECK(deleted.status == 204);
    AUTO_REPLY over = front_call(rig, "GET", "/processes/del/output?follow=1", rig->token, NULL);
    CHECK(has(&over, "\"exit_code\":137"));
}

/* A command that floods: its own slow client blocks it, a detached one keeps the last MiB with a stated gap. */
static void test_floods(const struct front_rig *rig)
{
    const char *path = "/s/" FRONT_SANDBOX "/exec";
    const char *body = "{\"cmd\":\"head -c 30000000 /dev/zero | tr '\\\\0' x\",\"cwd\":\"/\",\"id\":\"flood\"}";
    int slow = front_send_request(rig, "POST", path, rig->token, body, strlen(body));
    usleep(1500000);
    AUTO_REPLY blocked = front_call(rig, "GET", "/processes/flood", rig->token, NULL);
    int64_t bytes = front_number(&blocked, "stdout", "bytes");
    CHECK(has(&blocked, "\"running\"") && bytes > 4000000 && bytes < 25000000);
    AUTO_REPLY all = front_read(slow);
    uint64_t start = 1;
    AUTO_FREE char *text = front_join(&all, "stdout", &start);
    CHECK(start == 0 && strlen(text) == 30000000 && has(&all, "\"exit_code\":0") && !strstr(all.body, "\"gap\""));

    AUTO_REPLY started = front_exec(rig, "{\"cmd\":\"seq 2000000\",\"cwd\":\"/\",\"detach\":true,\"id\":\"seq\"}");
    CHECK(started.status == 201);
    AUTO_REPLY waited = front_call(rig, "GET", "/processes/seq/output?follow=1", rig->token, NULL);
    CHECK(waited.status == 200);
    AUTO_REPLY replay = front_call(rig, "GET", "/processes/seq/output", rig->token, NULL);
    CHECK(has(&replay, "{\"type\":\"gap\",\"stream\":\"stdout\",\"from\":0,\"to\":"));
    AUTO_FREE char *kept = front_join(&replay, "stdout", &start);
    CHECK(strlen(kept) >= 1 << 20 && strlen(kept) < 3 << 19 && start + strlen(kept) == 14888896);
    CHECK(strcmp(kept + strlen(kept) - 8, "2000000\n") == 0);
    AUTO_REPLY tail = front_exec(rig, "{\"cmd\":\"seq 2000000\",\"cwd\":\"/\",\"stream\":\"none\"}");
    CHECK(has(&tail, "\"truncated\":true") && has(&tail, "\\n2000000\\n"));
}

/* The front is killed while a command counts; the next one finds all numbers. */
static void test_adoption(struct front_rig *rig)
{
    const char *path = "/s/" FRONT_SANDBOX "/exec";
    const char *body =
        "{\"cmd\":\"for i in $(seq 1 4000); do echo $i; [ $((i % 20)) = 0 ] && sleep 0.01; done; exit 7\","
        "\"cwd\":\"/\",\"id\":\"count\"}";
    int fd = front_send_request(rig, "POST", path, rig->token, body, strlen(body));
    usleep(300000);
    for (int i = 0; i < 3; i++) {
        CHECK(front_stop(rig, SIGKILL) == -1);
        front_start(rig, true);
        usleep(150000);
    }
    AUTO_REPLY cut = front_read(fd);
    CHECK(cut.status == 200 && !strstr(cut.body, "\"type\":\"exit\""));
    AUTO_FREE char *first = front_join(&cut, "stdout", NULL);
    char rest[128];
    snprintf(rest, sizeof rest, "/processes/count/output?follow=1&stdout_offset=%zu", strlen(first));
    AUTO_REPLY followed = front_call(rig, "GET", rest, rig->token, NULL);
    uint64_t start = 0;
    AUTO_FREE char *second = front_join(&followed, "stdout", &start);
    CHECK(start == strlen(first) && has(&followed, "\"exit_code\":7"));
    AUTO_TEXT want = {0}, got = {0};
    for (int i = 1; i <= 4000; i++)
        text_append_format(&want, "%d\n", i);
    text_append_string(&got, first);
    text_append_string(&got, second);
    CHECK(got.length == want.length && memcmp(got.data, want.data, want.length) == 0);
    /* The id is still known; the new front cannot tell commands apart by their hash, but by their end. */
    AUTO_REPLY again = front_exec(rig, body);
    CHECK(has(&again, "\"exit_code\":7"));
}

static void test_ended(const struct front_rig *rig)
{
    struct front_launcher_message message = {.type = FL_ENDED};
    strcpy(message.as.ended.id, FRONT_SANDBOX);
    strcpy(message.as.ended.reason, "max_lifetime");
    message.as.ended.epoch = 1;
    const char *body = "{\"cmd\":\"sleep 30\",\"cwd\":\"/\"}";
    int fd = front_send_request(rig, "POST", "/s/" FRONT_SANDBOX "/exec", rig->token, body, strlen(body));
    usleep(200000);
    front_send(rig, &message);
    AUTO_REPLY cut = front_read(fd);
    CHECK(cut.status == 200 && has(&cut, "\"code\":\"GONE\"") && has(&cut, "max_lifetime"));
    AUTO_REPLY gone = front_call(rig, "GET", "/processes", rig->token, NULL);
    CHECK(gone.status == 410 && has(&gone, "max_lifetime"));
    char wrong[CAPABILITY_TEXT_BYTES];
    front_mint(rig, FRONT_SANDBOX, "process", 600, wrong);
    wrong[strlen(wrong) - 20] ^= 1;
    AUTO_REPLY guess = front_call(rig, "GET", "/processes", wrong, NULL);
    CHECK(guess.status == 401); /* only a valid token learns that it ended */
}

/* The deadline moved, and the front that was to tell init is gone: the next one tells. */
static void test_missed_deadline(struct front_rig *rig)
{
    rig->lifetime_ms = 1000;
    front_start(rig, true);
    struct pollfd init = {.fd = (int)syscall(SYS_pidfd_open, rig->init.pid, 0), .events = POLLIN};
    CHECK(poll(&init, 1, 20000) == 1);
    close(init.fd);
    CHECK(front_stop(rig, SIGTERM) == 0);
}

int main(void)
{
    struct front_rig rig;
    front_rig_open(&rig);
    front_start(&rig, true);
    test_open_routes(&rig);
    test_exec(&rig);
    test_refused_exec(&rig);
    test_authorisation(&rig);
    test_ids(&rig);
    test_stdin(&rig);
    test_signal_and_delete(&rig);
    test_floods(&rig);
    test_adoption(&rig);
    test_ended(&rig);
    CHECK(front_stop(&rig, SIGTERM) == 0);
    test_missed_deadline(&rig);
    front_rig_close(&rig);
    return check_done();
}
