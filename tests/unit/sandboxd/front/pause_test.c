/* pause_test.c - a front with a real init behind it: what is paused does not run, by a counter; what wakes it and what
 * does not; through kill -9 of the front; snapshots, which freeze it for their time; its end. */
#include "tests/unit/sandboxd/front/node_rig.h"

#define SNAPSHOT "snp_testtesttesttest0000"

static char counter[64]; /* the file in which a command counts */

/* ---- what can be seen of it ---- */

static long count_now(void)
{
    char text[32] = "";
    int fd = open(counter, O_RDONLY | O_CLOEXEC);
    ssize_t got = fd < 0 ? -1 : read(fd, text, sizeof text - 1);
    close(fd);
    return got > 0 ? atol(text) : -1;
}

/* Half a second of nothing; the same command counts thousands in that time when it runs (moves_on). */
static bool stands_still(void)
{
    long before = count_now();
    usleep(500000);
    return count_now() == before;
}

static bool moves_on(void)
{
    long before = count_now();
    for (int i = 0; i < 1000; i++) {
        usleep(10000);
        if (count_now() > before)
            return true;
    }
    return false;
}

static bool is_frozen(const struct front_rig *rig)
{
    char path[600], text[128] = "";
    snprintf(path, sizeof path, "%s/run/cgroup.events", rig->init.cgroup);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    bool frozen = fd >= 0 && read(fd, text, sizeof text - 1) > 0 && strstr(text, "frozen 1");
    close(fd);
    return frozen;
}

static bool becomes_frozen(const struct front_rig *rig, bool frozen)
{
    for (int i = 0; i < 1000 && is_frozen(rig) != frozen; i++)
        usleep(10000);
    return is_frozen(rig) == frozen;
}

static bool info_says(const struct front_rig *rig, const char *state)
{
    char wanted[64];
    AUTO_REPLY info = front_call(rig, "GET", "/info", rig->token, NULL);
    snprintf(wanted, sizeof wanted, "\"state\":\"%s\"", state);
    return info.status == 200 && strstr(info.body, wanted);
}

/* ---- what is asked ---- */

static const char *call(const struct front_rig *rig, const char *name)
{
    return node_code(node_call_now(rig, json_pack("{s:s,s:s}", "call", name, "id", FRONT_SANDBOX)));
}

static int ask_snapshot(const struct front_rig *rig, const char *snapshot)
{
    return node_ask(rig, json_pack("{s:s,s:s,s:s}", "call", "snapshot", "id", FRONT_SANDBOX, "snapshot", snapshot));
}

static void send_kept(const struct front_rig *rig, uint64_t request)
{
    struct front_launcher_message message = {.type = FL_KEPT, .request = request};
    strcpy(message.as.kept.id, FRONT_SANDBOX);
    strcpy(message.as.kept.snapshot, SNAPSHOT);
    strcpy(message.as.kept.template_name, "base");
    strcpy(message.as.kept.storage, "btrfs");
    message.as.kept.size_bytes = 12345;
    front_send(rig, &message);
}

static void send_refused(const struct front_rig *rig, uint64_t request)
{
    struct front_launcher_message message = {.type = FL_REFUSED, .request = request};
    error_set(&message.as.refused, ERROR_DISK_FULL, "the pool is full");
    front_send(rig, &message);
}

static void start_counting(const struct front_rig *rig)
{
    char body[256];
    snprintf(body, sizeof body,
             "{\"cmd\":\"trap 'echo term > %s' TERM; n=0; while :; do n=$((n+1)); echo $n > %s; done\",\"cwd\":\"/\","
             "\"id\":\"count\",\"detach\":true}",
             counter, counter);
    AUTO_REPLY started = front_exec(rig, body);
    CHECK(started.status == 201 && moves_on());
}

static bool runs(const struct front_rig *rig)
{
    AUTO_REPLY reply = front_exec(rig, "{\"cmd\":\"echo here\",\"cwd\":\"/\",\"stream\":\"none\"}");
    return reply.status == 200 && strstr(reply.body, "here\\n");
}

/* ---- the tests ---- */

static void test_pause_and_resume(const struct front_rig *rig)
{
    CHECK_TEXT(call(rig, "pause"), "ok");
    CHECK(is_frozen(rig) && stands_still() && info_says(rig, "paused"));
    CHECK_TEXT(call(rig, "pause"), "ok");
    CHECK_TEXT(call(rig, "resume"), "ok");
    CHECK(moves_on() && becomes_frozen(rig, false) && info_says(rig, "active"));
    CHECK_TEXT(call(rig, "resume"), "ok");
    CHECK_TEXT(node_code(node_call_now(rig, json_pack("{s:s,s:s}", "call", "pause", "id", "sbx_none"))), "NOT_FOUND");
    CHECK_TEXT(node_code(node_call_now(rig, json_pack("{s:s}", "call", "pause"))), "INVALID_REQUEST");
}

static void check_does_not_wake(const struct front_rig *rig, const char *method, const char *path, const char *body,
                                int status)
{
    AUTO_REPLY reply = front_call(rig, method, path, rig->token, body);
    if (reply.status != status)
        fprintf(stderr, "%s %s: %d %s\n", method, path, reply.status, reply.body);
    CHECK(reply.status == status && is_frozen(rig));
}

static void test_what_does_not_wake(const struct front_rig *rig)
{
    CHECK_TEXT(call(rig, "pause"), "ok");
    long before = count_now();
    check_does_not_wake(rig, "GET", "/info", NULL, 200);
    check_does_not_wake(rig, "GET", "/processes", NULL, 200);
    check_does_not_wake(rig, "GET", "/processes/count", NULL, 200);
    check_does_not_wake(rig, "GET", "/processes/count/output", NULL, 200);
    /* What is not valid. */
    check_does_not_wake(rig, "POST", "/exec", "{\"cmd\":\"\"}", 400);
    check_does_not_wake(rig, "POST", "/exec", "{\"cmd\":\"other\",\"id\":\"count\"}", 409);
    check_does_not_wake(rig, "POST", "/exec", "{\"cmd\":\"id\",\"user\":\"root\"}", 403);
    check_does_not_wake(rig, "POST", "/processes/none/signal", "{\"signal\":\"TERM\"}", 404);
    check_does_not_wake(rig, "DELETE", "/processes/none", NULL, 404);
    check_does_not_wake(rig, "POST", "/processes/count/resize", "{\"cols\":80,\"rows\":24}", 409);
    struct front_launcher_message message;
    int fd = front_send_request(rig, "GET", "/s/" FRONT_SANDBOX "/metrics", rig->token, "", 0);
    struct pollfd ends[] = {{.fd = fd, .events = POLLIN}, {.fd = rig->launcher, .events = POLLIN}};
    while (poll(ends, 2, 20000) > 0 && !ends[0].revents) { /* unless it was asked within the last second */
        front_expect(rig, FL_USAGE, &message);
        front_send_used(rig, message.request);
    }
    AUTO_REPLY metrics = front_read(fd);
    CHECK(metrics.status == 200 && strstr(metrics.body, "\"paused\":true"));
    CHECK(front_number(&metrics, "disk", "used_bytes") == 5 << 20 &&
          front_number(&metrics, "commands", "running") == 1);
    CHECK(front_number(&metrics, "cpu", "used_ms") > 0 && front_number(&metrics, "output", "limit_bytes") == 16 << 20);
    CHECK(is_frozen(rig) && stands_still() && count_now() == before);
    CHECK_TEXT(call(rig, "resume"), "ok");
    CHECK(moves_on());
}

static void check_wakes(const struct front_rig *rig, const char *method, const char *path, const char *token,
                        const char *body, int status)
{
    CHECK_TEXT(call(rig, "pause"), "ok");
    CHECK(is_frozen(rig));
    AUTO_REPLY reply = front_call(rig, method, path, token, body);
    if (reply.status != status)
        fprintf(stderr, "%s %s: %d %s\n", method, path, reply.status, reply.body);
    CHECK(reply.status == status && becomes_frozen(rig, false) && moves_on() && info_says(rig, "active"));
}

static void test_what_wakes(const struct front_rig *rig)
{
    char files[CAPABILITY_TEXT_BYTES];
    front_mint(rig, FRONT_SANDBOX, "fs:rw", 600, files);
    AUTO_REPLY reader = front_exec(
        rig, "{\"cmd\":\"cat; sleep 60\",\"cwd\":\"/\",\"id\":\"reader\",\"stdin_open\":true,\"detach\":true}");
    CHECK(reader.status == 201);
    check_wakes(rig, "POST", "/exec", rig->token, "{\"cmd\":\"true\",\"cwd\":\"/\",\"stream\":\"none\"}", 200);
    check_wakes(rig, "POST", "/processes/reader/stdin", rig->token, "line\n", 200);
    check_wakes(rig, "POST", "/processes/reader/signal", rig->token, "{\"signal\":\"CONT\"}", 204);
    check_wakes(rig, "DELETE", "/processes/reader", rig->token, NULL, 204);
    check_wakes(rig, "GET", "/files/etc/passwd?stat=1", files, NULL, 200);
    CHECK_TEXT(call(rig, "pause"), "ok");
    int driver = front_send_request(rig, "GET", "/s/" FRONT_SANDBOX "/processes/count/output?follow=1&drive=1",
                                    rig->token, "", 0);
    CHECK(becomes_frozen(rig, false) && moves_on());
    close(driver);
}

/* A client that is there before keeps what it has, and hears on when all goes on. */
static void test_a_stream_through_a_pause(const struct front_rig *rig)
{
    const char *body = "{\"cmd\":\"for i in $(seq 1 400); do echo $i; sleep 0.005; done\",\"cwd\":\"/\"}";
    int fd = front_send_request(rig, "POST", "/s/" FRONT_SANDBOX "/exec", rig->token, body, strlen(body));
    struct pollfd begun = {.fd = fd, .events = POLLIN};
    CHECK(poll(&begun, 1, 20000) == 1);
    for (int i = 0; i < 3; i++) {
        CHECK_TEXT(call(rig, "pause"), "ok");
        CHECK(is_frozen(rig));
        usleep(100000);
        CHECK_TEXT(call(rig, "resume"), "ok");
    }
    AUTO_REPLY reply = front_read(fd);
    AUTO_FREE char *text = front_join(&reply, "stdout", NULL);
    CHECK(strstr(reply.body, "\"exit_code\":0") && strlen(text) == 9 * 2 + 90 * 3 + 301 * 4 && strstr(text, "\n400\n"));
}

static void test_next_front(struct front_rig *rig)
{
    CHECK_TEXT(call(rig, "pause"), "ok");
    long before = count_now();
    CHECK(front_stop(rig, SIGKILL) == -1);
    front_start(rig, true);
    CHECK(info_says(rig, "paused") && is_frozen(rig) && stands_still() && count_now() == before);
    CHECK(runs(rig) && moves_on() && info_says(rig, "active"));
    CHECK(front_stop(rig, SIGKILL) == -1);
    front_start(rig, true);
    CHECK(info_says(rig, "active") && moves_on());
}

static void test_snapshot(const struct front_rig *rig)
{
    struct front_launcher_message message;
    int fd = ask_snapshot(rig, SNAPSHOT);
    front_expect(rig, FL_SNAPSHOT, &message);
    CHECK_TEXT(message.as.snapshot.snapshot, SNAPSHOT);
    uint64_t request = message.request;
    CHECK(is_frozen(rig) && stands_still() && info_says(rig, "active")); /* it is not what one calls paused */
    CHECK_TEXT(node_code(node_answer_of(rig, ask_snapshot(rig, "snp_othrothrothrothr0000"))), "CONFLICT");
    const char *body = "{\"cmd\":\"echo waited\",\"cwd\":\"/\",\"stream\":\"none\"}";
    int exec = front_send_request(rig, "POST", "/s/" FRONT_SANDBOX "/exec", rig->token, body, strlen(body));
    CHECK(stands_still() && is_frozen(rig));
    send_kept(rig, request);
    json_t *answer = node_answer_of(rig, fd);
    CHECK(json_integer_value(json_object_get(answer, "running")) == 1);
    CHECK(json_integer_value(json_object_get(answer, "size_bytes")) == 12345);
    CHECK_TEXT(json_string_value(json_object_get(answer, "storage")), "btrfs");
    CHECK_TEXT(json_string_value(json_object_get(answer, "template")), "base");
    CHECK_TEXT(node_code(answer), "ok");
    AUTO_REPLY waited = front_read(exec);
    CHECK(waited.status == 200 && strstr(waited.body, "waited\\n") && moves_on() && becomes_frozen(rig, false));

    fd = ask_snapshot(rig, SNAPSHOT);
    front_expect(rig, FL_SNAPSHOT, &message);
    send_refused(rig, message.request);
    CHECK_TEXT(node_code(node_answer_of(rig, fd)), "DISK_FULL");
    CHECK(moves_on());
    CHECK_TEXT(node_code(node_answer_of(rig, ask_snapshot(rig, "snp_short"))), "INVALID_REQUEST");
    CHECK_TEXT(node_code(node_answer_of(rig, ask_snapshot(rig, "../../etc"))), "INVALID_REQUEST");
}

static void test_snapshot_and_pause(const struct front_rig *rig)
{
    struct front_launcher_message message;
    CHECK_TEXT(call(rig, "pause"), "ok");
    int fd = ask_snapshot(rig, SNAPSHOT);
    front_expect(rig, FL_SNAPSHOT, &message);
    send_kept(rig, message.request);
    CHECK_TEXT(node_code(node_answer_of(rig, fd)), "ok");
    CHECK(is_frozen(rig) && stands_still() && info_says(rig, "paused"));
    CHECK_TEXT(call(rig, "resume"), "ok");
    /* A pause, and then use, while a snapshot is made. */
    fd = ask_snapshot(rig, SNAPSHOT);
    front_expect(rig, FL_SNAPSHOT, &message);
    CHECK_TEXT(call(rig, "pause"), "ok");
    int resume = node_ask(rig, json_pack("{s:s,s:s}", "call", "resume", "id", FRONT_SANDBOX));
    CHECK(stands_still() && is_frozen(rig));
    send_kept(rig, message.request);
    CHECK_TEXT(node_code(node_answer_of(rig, fd)), "ok");
    CHECK_TEXT(node_code(node_answer_of(rig, resume)), "ok");
    CHECK(moves_on() && info_says(rig, "active"));
}

/* The front is killed while a snapshot is made: nobody will ever say that it is over. */
static void test_snapshot_and_next_front(struct front_rig *rig)
{
    struct front_launcher_message message;
    int fd = ask_snapshot(rig, SNAPSHOT);
    front_expect(rig, FL_SNAPSHOT, &message);
    CHECK(is_frozen(rig) && front_stop(rig, SIGKILL) == -1);
    CHECK(is_frozen(rig) && stands_still());
    close(fd);
    front_start(rig, true);
    CHECK(moves_on() && info_says(rig, "active"));
    /* Of a paused one it stays. */
    CHECK_TEXT(call(rig, "pause"), "ok");
    fd = ask_snapshot(rig, SNAPSHOT);
    front_expect(rig, FL_SNAPSHOT, &message);
    CHECK(front_stop(rig, SIGKILL) == -1);
    close(fd);
    front_start(rig, true);
    CHECK(info_says(rig, "paused") && stands_still());
    CHECK_TEXT(call(rig, "resume"), "ok");
}

/* SIGTERM would be its first thing to see when it ran again. */
static void test_end_of_a_paused_one(const struct front_rig *rig)
{
    struct front_launcher_message message;
    CHECK_TEXT(call(rig, "pause"), "ok");
    long before = count_now();
    CHECK_TEXT(node_code(node_call_now(
                   rig, json_pack("{s:s,s:s,s:s}", "call", "destroy", "id", FRONT_SANDBOX, "reason", "released"))),
               "ok");
    front_expect(rig, FL_DESTROY, &message); /* with no FL_ENDING before, which says that init was asked */
    CHECK(is_frozen(rig) && stands_still() && count_now() == before);
    CHECK_TEXT(call(rig, "resume"), "GONE");
    message = (struct front_launcher_message){.type = FL_ENDED, .request = message.request};
    strcpy(message.as.ended.id, FRONT_SANDBOX);
    strcpy(message.as.ended.reason, "released");
    message.as.ended.epoch = 1;
    kill(rig->init.pid, SIGKILL);
    front_send(rig, &message);
    char path[160];
    snprintf(path, sizeof path, "%s/sandboxd/paused/" FRONT_SANDBOX, rig->state);
    for (int i = 0; i < 1000 && access(path, F_OK) == 0; i++)
        usleep(10000);
    CHECK(access(path, F_OK) != 0 && count_now() == before);
}

int main(void)
{
    struct front_rig rig;
    front_rig_open(&rig);
    snprintf(counter, sizeof counter, "/tmp/parley-pause-test-%d", getpid());
    int fd = open(counter, O_CREAT | O_WRONLY | O_CLOEXEC, 0666);
    CHECK(fd >= 0 && fchmod(fd, 0666) == 0);
    close(fd);
    front_start(&rig, true);
    start_counting(&rig);
    test_pause_and_resume(&rig);
    test_what_does_not_wake(&rig);
    test_what_wakes(&rig);
    test_a_stream_through_a_pause(&rig);
    test_next_front(&rig);
    test_snapshot(&rig);
    test_snapshot_and_pause(&rig);
    test_snapshot_and_next_front(&rig);
    test_end_of_a_paused_one(&rig);
    CHECK(front_stop(&rig, SIGTERM) == 0);
    front_rig_close(&rig);
    unlink(counter);
    return check_done();
}
