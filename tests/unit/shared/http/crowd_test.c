/* crowd_test.c - more connections than there may be: those that say nothing make room, those that are served stay. */
#include "fixture.h"

enum { MAX = 16 /* of a server whose descriptors are all spoken for */, CROWD = 100 };

static char reply[1 << 16];

static void check_hello(int fd)
{
    client_say(fd, "GET /hello HTTP/1.1\r\nHost: h\r\n\r\n");
    client_read_reply(fd, reply, sizeof reply);
    CHECK(strncmp(reply, "HTTP/1.1 200 ", 13) == 0);
}

static void test_the_silent_make_room(void)
{
    int served[MAX / 2], crowd[CROWD];
    for (int i = 0; i < MAX / 2; i++) {
        served[i] = client_open();
        client_say(served[i], "GET /slow?ms=1500 HTTP/1.1\r\nHost: h\r\n\r\n");
    }
    CHECK(wait_for(&handled, MAX / 2, 3000));
    for (int i = 0; i < CROWD; i++) {
        crowd[i] = client_open();
        if (i % 2)
            client_say(crowd[i], "GET /hello HTTP/1.1\r\nX-Slow: ");
    }
    int late = client_open();
    check_hello(late);
    CHECK(client_is_closed(crowd[0], 1000));
    for (int i = 0; i < MAX / 2; i++) {
        client_read_reply(served[i], reply, sizeof reply);
        CHECK(strncmp(reply, "HTTP/1.1 200 ", 13) == 0);
        close(served[i]);
    }
    for (int i = 0; i < CROWD; i++)
        close(crowd[i]);
    close(late);
}

/* All that there may be is served: then the next is turned away, and nobody else. */
static void test_nobody_who_is_served(void)
{
    int served[MAX];
    atomic_store(&handled, 0);
    for (int i = 0; i < MAX; i++) {
        served[i] = client_open();
        client_say(served[i], "GET /slow?ms=1000 HTTP/1.1\r\nHost: h\r\n\r\n");
    }
    CHECK(wait_for(&handled, MAX, 3000));
    int late = client_open();
    CHECK(client_is_closed(late, 900));
    for (int i = 0; i < MAX; i++) {
        client_read_reply(served[i], reply, sizeof reply);
        CHECK(strncmp(reply, "HTTP/1.1 200 ", 13) == 0);
        close(served[i]);
    }
    close(late);
    late = client_open();
    check_hello(late);
    close(late);
}

int main(void)
{
    fixture_start((struct http_server_options){.loops = 1, .descriptors_apart = 1U << 30});
    test_the_silent_make_room();
    test_nobody_who_is_served();
    fixture_stop(1000);
    return check_done();
}
