/* stream_test.c - streams: framing, back-pressure towards a slow reader, clients that leave or half-close, with an idle
 * stream, an unanswered request, and a running one. */
#include "fixture.h"

static char reply[1 << 16];

static void reset_counters(void)
{
    atomic_store(&handled, 0);
    atomic_store(&gone, 0);
    atomic_store(&drained, 0);
    atomic_store(&most_waiting, 0);
}

static void test_framing(void)
{
    int fd = client_open();
    client_say(fd, "GET /idle?first=1 HTTP/1.1\r\nHost: h\r\n\r\n");
    client_read_all(fd, reply, sizeof reply, 200);
    CHECK(strncmp(reply, "HTTP/1.1 200 OK\r\n", 17) == 0);
    CHECK(strstr(reply, "Content-Type: text/event-stream\r\n") != NULL);
    CHECK_TEXT(client_body(reply), "1c\r\nevent: first\ndata: {\"n\":1}\n\n\r\n");
    close(fd);
    CHECK(wait_for(&gone, 1, 1000));
    /* The head is there at once, without any byte of the body. */
    fd = client_open();
    client_say(fd, "GET /idle HTTP/1.1\r\nHost: h\r\n\r\n");
    client_read_all(fd, reply, sizeof reply, 200);
    CHECK(strstr(reply, "transfer-encoding: chunked\r\n") != NULL);
    CHECK_TEXT(client_body(reply), "");
    close(fd);
    CHECK(wait_for(&gone, 2, 1000));
    fd = client_open();
    client_say(fd, "GET /lines HTTP/1.1\r\nHost: h\r\n\r\n");
    client_read_all(fd, reply, sizeof reply, 1000);
    CHECK(strncmp(reply, "HTTP/1.1 201 ", 13) == 0);
    const char *body = client_body(reply);
    CHECK(body != NULL && strstr(body, "{\"n\":0}\n") != NULL && strstr(body, "\r\n0\r\n\r\n") != NULL);
    close(fd);
    fd = client_open();
    client_say(fd, "GET /abort HTTP/1.1\r\nHost: h\r\n\r\n");
    client_read_all(fd, reply, sizeof reply, 1000);
    CHECK(strstr(reply, "0\r\n\r\n") == NULL);
    close(fd);
}

/* Sums the chunks of a reply until its end; false when it breaks. */
static bool read_chunks(int fd, size_t *total)
{
    FILE *from = fdopen(dup(fd), "r");
    char line[4096];
    bool is_body = false, is_whole = false;
    *total = 0;
    while (fgets(line, sizeof line, from) != NULL) {
        if (!is_body) {
            is_body = strcmp(line, "\r\n") == 0;
            continue;
        }
        size_t size = strtoul(line, NULL, 16);
        *total += size;
        is_whole = size == 0;
        for (size_t left = size + 2; left > 0;) {
            static char scrap[65536];
            size_t got = fread(scrap, 1, left < sizeof scrap ? left : sizeof scrap, from);
            if (got == 0)
                break;
            left -= got;
        }
        if (is_whole)
            break;
    }
    fclose(from);
    return is_whole;
}

static void test_slow_reader(void)
{
    reset_counters();
    int fd = client_open_small(4096);
    client_say(fd, "GET /flood HTTP/1.1\r\nHost: h\r\n\r\n");
    sleep_ms(300); /* reads nothing: the sender has to stand still */
    size_t waiting = atomic_load(&most_waiting);
    CHECK(waiting >= HTTP_STREAM_FULL_BYTES && waiting < HTTP_STREAM_FULL_BYTES + 8192);
    size_t total;
    CHECK(read_chunks(fd, &total));
    CHECK(total == 32u << 20);
    CHECK(atomic_load(&most_waiting) < HTTP_STREAM_FULL_BYTES + 8192);
    /* And the connection serves on. */
    client_say(fd, "GET /hello HTTP/1.1\r\nHost: h\r\n\r\n");
    client_read_reply(fd, reply, sizeof reply);
    CHECK(strncmp(reply, "HTTP/1.1 200", 12) == 0);
    close(fd);
    /* One that leaves in the middle. */
    fd = client_open_small(4096);
    client_say(fd, "GET /flood HTTP/1.1\r\nHost: h\r\n\r\n");
    sleep_ms(50);
    CHECK(atomic_load(&gone) == 0);
    close(fd);
    CHECK(wait_for(&gone, 1, 1000));
}

static void leave(const char *request, bool with_reset)
{
    reset_counters();
    int fd = client_open();
    client_say(fd, request);
    CHECK(wait_for(&handled, 1, 1000));
    sleep_ms(50);
    CHECK(atomic_load(&gone) == 0);
    struct linger at_once = {.l_onoff = with_reset, .l_linger = 0};
    setsockopt(fd, SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
    double start = seconds_now();
    close(fd);
    CHECK(wait_for(&gone, 1, 2000));
    double took = seconds_now() - start;
    if (took >= 1.0)
        fprintf(stderr, "%s: %.3f s\n", request, took);
    CHECK(took < 1.0);
}

static void test_leaving(void)
{
    for (int reset = 0; reset < 2; reset++) {
        leave("GET /idle HTTP/1.1\r\nHost: h\r\n\r\n", reset);
        leave("GET /idle?first=1 HTTP/1.1\r\nHost: h\r\n\r\n", reset);
        leave("GET /never HTTP/1.1\r\nHost: h\r\n\r\n", reset);
        /* Unread bytes behind the request change nothing. */
        leave("GET /never HTTP/1.1\r\nHost: h\r\n\r\nGET /hello HTTP/1.1\r\nHost: h\r\n\r\n", reset);
    }
}

/* shutdown(SHUT_WR) right after the request: it still reads, so it gets its reply. */
static void test_half_closed(void)
{
    reset_counters();
    int fd = client_open();
    client_say(fd, "GET /hello HTTP/1.1\r\nHost: h\r\n\r\n");
    shutdown(fd, SHUT_WR);
    client_read_all(fd, reply, sizeof reply, 2000);
    CHECK(strncmp(reply, "HTTP/1.1 200 ", 13) == 0);
    close(fd);
    fd = client_open();
    client_say(fd, "GET /slow?ms=100 HTTP/1.1\r\nHost: h\r\n\r\n");
    shutdown(fd, SHUT_WR);
    client_read_all(fd, reply, sizeof reply, 2000);
    CHECK(strncmp(reply, "HTTP/1.1 200 ", 13) == 0);
    CHECK_TEXT(client_body(reply), "{\"late\":true}");
    close(fd);
    /* Asked whether it is there, with an interim reply; then the reply. */
    fd = client_open();
    client_say(fd, "GET /slow?ms=500 HTTP/1.1\r\nHost: h\r\n\r\n");
    shutdown(fd, SHUT_WR);
    client_read_all(fd, reply, sizeof reply, 2000);
    CHECK(strncmp(reply, "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 ", 38) == 0);
    CHECK(strstr(reply, "{\"late\":true}") != NULL);
    CHECK(client_is_closed(fd, 1000));
    close(fd);
    /* A stream is asked with a zero that belongs to the next chunk's size. */
    fd = client_open();
    client_say(fd, "GET /idle HTTP/1.1\r\nHost: h\r\n\r\n");
    shutdown(fd, SHUT_WR);
    client_read_all(fd, reply, sizeof reply, 500);
    CHECK_TEXT(client_body(reply), "0");
    CHECK(atomic_load(&gone) == 0);
    close(fd);
    fd = client_open();
    client_say(fd, "GET /flood?kib=1024 HTTP/1.1\r\nHost: h\r\n\r\n");
    shutdown(fd, SHUT_WR);
    size_t total;
    CHECK(read_chunks(fd, &total) && total == 1 << 20);
    close(fd);
}

/* A large reply to one that does not read, and then leaves. */
static void test_big_reply(void)
{
    int fd = client_open_small(4096);
    client_say(fd, "GET /big HTTP/1.1\r\nHost: h\r\n\r\n");
    sleep_ms(50);
    close(fd);
    fd = client_open_small(4096);
    client_say(fd, "GET /big HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n");
    static char large[(8 << 20) + 4096];
    CHECK(client_read_all(fd, large, sizeof large, 2000) > 8 << 20);
    close(fd);
}

int main(void)
{
    fixture_start((struct http_server_options){0});
    test_framing();
    test_slow_reader();
    test_leaving();
    test_half_closed();
    test_big_reply();
    fixture_stop(1000);
    return check_done();
}
