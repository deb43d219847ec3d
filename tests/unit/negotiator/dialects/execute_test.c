/* POST /execute: a sandbox is made for the request, gets it under a token of its own, and goes afterwards: when it was
 * answered, when the client left at any moment, not while something is to be fetched from it. */
#include "tests/unit/negotiator/dialects/stage.h"

static const char BODY[] = "{\"code\":\"1\",\"language\":\"python\",\"timeout_s\":20}";

static void wait_for(unsigned (*count)(void), unsigned wanted)
{
    uint64_t until = clock_boot_ns() + UINT64_C(20000000000);
    while (count() < wanted && clock_boot_ns() < until)
        usleep(2000);
    CHECK(count() == wanted);
}

static unsigned destroys(void)
{
    pthread_mutex_lock(&stage.mutex);
    unsigned count = stage.destroys;
    pthread_mutex_unlock(&stage.mutex);
    return count;
}

static unsigned held(void)
{
    pthread_mutex_lock(&stage.mutex);
    unsigned count = (unsigned)stage.held_count;
    pthread_mutex_unlock(&stage.mutex);
    return count;
}

static unsigned executes(void)
{
    return atomic_load(&stage.executes);
}

/* A client that sends its request and is not there any more when `is_there` says that it got somewhere. */
static void leave(unsigned (*is_there)(void), unsigned wanted)
{
    AUTO_FREE char *header = memory_printf("X-API-Key: %s\r\n", stage.ada);
    int fd = http_connect();
    http_send(fd, "POST", "/execute", header, BODY);
    wait_for(is_there, wanted);
    struct linger at_once = {.l_onoff = 1};
    CHECK(setsockopt(fd, SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once) == 0);
    close(fd);
    for (unsigned i = 0; i < 40; i++) { /* whatever loop it was on has answered another since, so it knows */
        AUTO_ANSWER answer = as(stage.ada, "GET", "/healthz", "");
        CHECK(answer.status == 200);
    }
}

static void test_answered(void)
{
    AUTO_ANSWER answer = as(stage.ada, "POST", "/execute", BODY);
    CHECK(answer.status == 200);
    CHECK_TEXT(told(&answer, "stdout"), BODY); /* as it came */
    CHECK(executes() == 1);
    wait_for(destroys, 1);
}

static void test_kept_for_what_is_to_be_fetched(void)
{
    atomic_store(&stage.has_urls, true);
    AUTO_ANSWER answer = as(stage.ada, "POST", "/execute", BODY);
    CHECK(answer.status == 200 && !strcasestr(answer.head, "x-parley-artifacts-for"));
    atomic_store(&stage.has_urls, false);
    AUTO_ANSWER again = as(stage.ada, "POST", "/execute", BODY);
    CHECK(again.status == 200);
    wait_for(destroys, 2); /* of the second */
}

static void check_refused(const char *key, const char *body, int status, const char *word)
{
    AUTO_ANSWER answer = as(key, "POST", "/execute", body);
    CHECK(answer.status == status);
    CHECK(strstr(told(&answer, "error"), word) != NULL); /* a text, not an object */
    CHECK(json_is_integer(json_object_get(answer.json, "exit_code")) && json_object_size(answer.json) == 7);
}

static void test_refused(void)
{
    unsigned before = destroys();
    check_refused(stage.viewer, BODY, 403, "role");
    check_refused("pk_nobody", BODY, 401, "key");
    check_refused(stage.ada, "{", 400, "JSON");
    check_refused(stage.ada, "{\"timeout_s\":-1}", 400, "timeout_s");
    check_refused(stage.ada, "{\"timeout_s\":\"1\"}", 400, "timeout_s");
    atomic_store(&stage.refuses, ERROR_INVALID);
    check_refused(stage.ada, BODY, 400, "template nope");
    atomic_store(&stage.refuses, ERROR_NONE);
    wait_for(destroys, before + 1); /* of the one that the node would not make */
}

static void test_who_leaves(void)
{
    unsigned before = destroys(), ran = executes();
    atomic_store(&stage.is_mute, true);
    leave(executes, ran + 1); /* while it runs */
    wait_for(destroys, before + 1);
    atomic_store(&stage.is_mute, false);
    atomic_store(&stage.holds, true);
    leave(held, 1); /* while its sandbox is made */
    node_release();
    wait_for(destroys, before + 2);
    CHECK(executes() == ran + 1);
}

static void test_late(void)
{
    unsigned before = destroys();
    atomic_store(&stage.holds, true);
    AUTO_ANSWER answer = as(stage.ada, "POST", "/execute", "{\"code\":\"1\",\"language\":\"sh\",\"timeout_s\":0.3}");
    CHECK(answer.status == 200 && json_is_true(json_object_get(answer.json, "timed_out")));
    node_release();
    wait_for(destroys, before + 1);
}

int main(void)
{
    struct error err = {0};
    stage_open();
    json_decref(node_beat(json_array(), json_array(), &err));
    test_answered();
    test_kept_for_what_is_to_be_fetched();
    test_refused();
    test_who_leaves();
    test_late();
    atomic_store(&stage.holds, true);
    leave(held, 1);
    stage_close(); /* with one whose sandbox is still made, and nobody waits */
    return check_done();
}
