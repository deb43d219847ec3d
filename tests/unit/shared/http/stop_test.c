/* stop_test.c - stopping a server: running requests finish, streams get the grace and are cut, nothing is accepted,
 * hooks and posts run where they should. */
#include "fixture.h"

static char reply[1 << 16];
static atomic_uint started, ending, late_posts;

static void on_started(struct loop *loop, void *context)
{
    if (loop_current() == loop && context == &started)
        atomic_fetch_add(&started, 1);
}

static void on_ending(struct loop *loop, void *context)
{
    if (loop_current() == loop && context == &started)
        atomic_fetch_add(&ending, 1);
}

static void start(void)
{
    atomic_store(&started, 0);
    atomic_store(&ending, 0);
    atomic_store(&handled, 0);
    atomic_store(&gone, 0);
    fixture_start((struct http_server_options){
        .loops = 3, .loop_started = on_started, .loop_ending = on_ending, .context = &started});
    CHECK(atomic_load(&started) == 3);
}

static void *stop_in_thread(void *cookie)
{
    http_server_stop(fixture, *(unsigned *)cookie);
    return NULL;
}

static void test_running_finish(void)
{
    start();
    int idle = client_open(), slow = client_open(), partial = client_open();
    client_say(idle, "GET /hello HTTP/1.1\r\nHost: h\r\n\r\n");
    client_read_reply(idle, reply, sizeof reply);
    client_say(partial, "GET /hel");
    client_say(slow, "GET /slow?ms=400 HTTP/1.1\r\nHost: h\r\n\r\n");
    CHECK(wait_for(&handled, 2, 1000));
    unsigned grace_ms = 5000;
    pthread_t thread;
    double begin = seconds_now();
    CHECK(pthread_create(&thread, NULL, stop_in_thread, &grace_ms) == 0);
    CHECK(client_is_closed(idle, 1000));
    CHECK(client_is_closed(partial, 1000));
    int refused = client_open();
    for (int i = 0; i < 100 && refused != -1; i++) { /* until the last loop has closed its listener */
        close(refused);
        sleep_ms(5);
        refused = client_open();
    }
    CHECK(refused == -1);
    client_read_all(slow, reply, sizeof reply, 2000);
    CHECK(strncmp(reply, "HTTP/1.1 200 ", 13) == 0);
    CHECK(strstr(reply, "Connection: close\r\n") != NULL);
    pthread_join(thread, NULL);
    CHECK(seconds_now() - begin < 3);
    CHECK(atomic_load(&ending) == 3);
    close(idle);
    close(slow);
    close(partial);
    fixture_stop(0);
}

static void test_streams_are_cut(void)
{
    start();
    int stream = client_open(), never = client_open(), body = client_open();
    client_say(stream, "GET /idle?first=1 HTTP/1.1\r\nHost: h\r\n\r\n");
    client_say(never, "GET /never HTTP/1.1\r\nHost: h\r\n\r\n");
    client_say(body, "PUT /large HTTP/1.1\r\nHost: h\r\nContent-Length: 1000\r\n\r\nabc");
    CHECK(wait_for(&handled, 2, 1000));
    double begin = seconds_now();
    http_server_stop(fixture, 300);
    double took = seconds_now() - begin;
    CHECK(took >= 0.28 && took < 2);
    CHECK(atomic_load(&gone) == 2);
    client_read_all(stream, reply, sizeof reply, 1000);
    CHECK(strstr(reply, "\r\n0\r\n\r\n") == NULL); /* it cannot be taken for complete */
    CHECK(client_is_closed(never, 100));
    CHECK(client_is_closed(body, 100));
    close(stream);
    close(never);
    close(body);
    fixture_stop(0);
}

static void count_late(void *cookie)
{
    if (loop_current() == cookie && http_request_find(cookie, 1) == NULL)
        atomic_fetch_add(&late_posts, 1);
}

static void test_posts_to_a_stopped_loop(void)
{
    start();
    struct loop *loop = http_server_loop(fixture, 1);
    http_server_stop(fixture, 0);
    loop_post(loop, count_late, loop);
    loop_post(loop, count_late, loop);
    http_server_free(fixture);
    CHECK(atomic_load(&late_posts) == 2);
    CHECK(loop_current() == NULL);
}

/* Free without stop, and many short lives: neither descriptors nor memory stay. */
static void test_free_alone(void)
{
    int before = dup(0), after;
    close(before);
    for (int i = 0; i < 10; i++) {
        start();
        CHECK(client_ask("GET /hello HTTP/1.1\r\nHost: h\r\n\r\n", reply, sizeof reply) == 200);
        http_server_free(fixture);
    }
    after = dup(0);
    close(after);
    CHECK(after == before);
}

int main(void)
{
    test_running_finish();
    test_streams_are_cut();
    test_posts_to_a_stopped_loop();
    test_free_alone();
    return check_done();
}
