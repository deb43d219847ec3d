/* websocket_test.c - WebSockets over a raw client: the handshake and its credentials, messages both ways, and
 * everything that breaks the protocol. */
#include "websocket_fixture.h"

/* ---- the handshake ---- */

static int status_of(const char *path, const char *lines)
{
    int fd = ws_open_with(path, lines, reply, sizeof reply);
    close(fd);
    return atoi(reply + 9);
}

static void test_handshake(void)
{
    reset();
    int fd = ws_open_with("/open", "Sec-WebSocket-Protocol: chat, parley.v1\r\n", reply, sizeof reply);
    CHECK(strncmp(reply, "HTTP/1.1 101 Switching Protocols\r\n", 34) == 0);
    CHECK(strstr(reply, "Sec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n") != NULL); /* RFC 6455, 1.3 */
    CHECK(strcasestr(reply, "Connection: upgrade\r\n") != NULL);
    CHECK(strstr(reply, "Upgrade: websocket\r\n") != NULL);
    CHECK(strstr(reply, "Sec-WebSocket-Protocol: parley.v1\r\n") != NULL);
    CHECK(strstr(reply, "Content-Length") == NULL);
    close(fd);
    CHECK(status_of("/open", "Sec-WebSocket-Protocol: chat\r\n") == 101);
    CHECK(strstr(reply, "Sec-WebSocket-Protocol") == NULL);
    CHECK(wait_for(&closed, 2, 1000));
    static const char *const PLAIN[] = {"GET /open HTTP/1.1\r\nHost: h\r\n\r\n",
                                        "HEAD /open HTTP/1.1\r\n" UPGRADE_LINES "\r\n",
                                        "GET /open HTTP/1.0\r\n" UPGRADE_LINES "\r\n",
                                        "GET /open HTTP/1.1\r\nHost: h\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
                                        "Sec-WebSocket-Version: 8\r\n\r\n"};
    for (size_t i = 0; i < sizeof PLAIN / sizeof PLAIN[0]; i++) {
        fd = client_open();
        client_say(fd, PLAIN[i]);
        client_read_all(fd, reply, sizeof reply, 300);
        CHECK(strncmp(reply + 8, " 426 ", 5) == 0);
        CHECK(strstr(reply, "Sec-WebSocket-Version: 13\r\n") != NULL &&
              strstr(reply, "Upgrade: websocket\r\n") != NULL);
        close(fd);
    }
    fd = client_open();
    client_say(fd, "GET /open HTTP/1.1\r\nHost: h\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
                   "Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: c2hvcnQ=\r\n\r\n");
    client_read_reply(fd, reply, sizeof reply);
    CHECK(strncmp(reply, "HTTP/1.1 400 ", 13) == 0);
    close(fd);
    CHECK(status_of("/open", "Origin: https://evil.example\r\n") == 403);
    CHECK(status_of("/open", "Origin: https://h\r\n") == 101);
}

static void test_credentials(void)
{
    reset();
    CHECK(status_of("/s/a/ws", "") == 101 && atomic_load(&authorized) == 0); /* later */
    CHECK(status_of("/s/a/ws", "Origin: https://page.example\r\n") == 101);
    CHECK(status_of("/s/a/ws", "Sec-WebSocket-Protocol: parley.v1, bearer.good\r\n") == 101);
    CHECK(strstr(reply, "parley.v1\r\n") != NULL && strstr(reply, "good") == NULL);
    CHECK(strstr(reply, "Cache-Control: no-store\r\n") != NULL);
    CHECK(atomic_load(&authorized) == 1);
    CHECK(status_of("/s/a/ws", "Sec-WebSocket-Protocol: parley.v1, bearer.bad\r\n") == 401);
    CHECK(status_of("/s/a/ws?token=bad", "") == 401);
    CHECK(status_of("/c/good/ws", "") == 101);
    CHECK(status_of("/s/a/ws", "Authorization: Bearer good\r\nSec-WebSocket-Protocol: bearer.good\r\n") == 101);
    CHECK(status_of("/s/a/ws", "Authorization: Bearer good\r\nSec-WebSocket-Protocol: bearer.other\r\n") == 400);
    CHECK(status_of("/s/a/ws", "Sec-WebSocket-Protocol: bearer.good,bearer.other\r\n") == 400);
    CHECK(status_of("/s/a/ws", "Sec-WebSocket-Protocol: bearer.good\r\nSec-WebSocket-Protocol: chat\r\n") == 400);
    CHECK(status_of("/s/a/strict", "") == 401);
    CHECK(status_of("/s/a/strict", "Origin: https://page.example\r\nSec-WebSocket-Protocol: bearer.good\r\n") == 101);
    CHECK(wait_for(&freed, 4, 1000)); /* each accepted one's identity */
    CHECK(atomic_load(&freed) == 4);
}

static void test_before_the_handshake(void)
{
    int fd = ws_open("/brief");
    ws_read(fd, &frame, 1000);
    CHECK(frame.opcode == 1 && strcmp(frame.data, "hello") == 0);
    CHECK(ws_read_close(fd, &frame, 1000) == 1000);
    ws_send_close(fd, 1000);
    CHECK(client_is_closed(fd, 1000));
    close(fd);
    /* Frames that came right behind the head. */
    char bytes[4096] = "GET /open HTTP/1.1\r\n" UPGRADE_LINES "\r\n";
    size_t length = strlen(bytes);
    length += ws_frame(bytes + length, 0x81, true, "early", 5);
    length += ws_frame(bytes + length, 0x81, true, "bird", 4);
    fd = client_open();
    client_send(fd, bytes, length);
    client_read_reply(fd, reply, sizeof reply);
    ws_read(fd, &frame, 1000);
    CHECK_TEXT(frame.data, "early");
    ws_read(fd, &frame, 1000);
    CHECK_TEXT(frame.data, "bird");
    close(fd);
}

/* ---- messages ---- */

static void check_echo(int fd, int opcode, size_t size)
{
    char *data = malloc(size + 1);
    memset(data, 'e', size + 1);
    ws_send(fd, 0x80 | opcode, data, size);
    ws_read(fd, &frame, 3000);
    CHECK(frame.opcode == opcode && frame.is_final && frame.size == size);
    size_t kept = size < sizeof frame.data ? size : sizeof frame.data - 1;
    CHECK(memcmp(frame.data, data, kept) == 0);
    free(data);
}

static void test_messages(void)
{
    reset();
    int fd = ws_open("/open");
    static const size_t SIZES[] = {0, 1, 125, 126, 127, 4096, 5000, 65535, 65536, 300000, HTTP_WEBSOCKET_MESSAGE_MAX};
    for (size_t i = 0; i < sizeof SIZES / sizeof SIZES[0]; i++) {
        check_echo(fd, 1, SIZES[i]);
        check_echo(fd, 2, SIZES[i]);
    }
    ws_send(fd, 0x01, "h\xC3", 2); /* the middle of an é */
    ws_send(fd, 0x89, "are you there", 13);
    ws_send(fd, 0x00, "", 0);
    ws_send(fd, 0x80, "\xA9llo", 4);
    ws_read(fd, &frame, 1000);
    CHECK(frame.opcode == 10 && strcmp(frame.data, "are you there") == 0);
    ws_read(fd, &frame, 1000);
    CHECK(frame.opcode == 1 && strcmp(frame.data, "h\xC3\xA9llo") == 0);
    ws_send(fd, 0x8A, "unasked", 7);
    char slow[64];
    size_t length = ws_frame(slow, 0x82, true, "byte by byte", 12);
    for (size_t i = 0; i < length; i++) {
        client_send(fd, slow + i, 1);
        sleep_ms(1);
    }
    ws_read(fd, &frame, 1000);
    CHECK(frame.opcode == 2 && strcmp(frame.data, "byte by byte") == 0);
    ws_send_close(fd, 3000);
    CHECK(ws_read_close(fd, &frame, 1000) == 3000);
    CHECK(client_is_closed(fd, 1000));
    CHECK(wait_for(&closed, 1, 1000));
    close(fd);
}

static void test_pause(void)
{
    reset();
    int fd = ws_open("/open");
    char bytes[256];
    size_t length = ws_frame(bytes, 0x81, true, "!pause", 6);
    length += ws_frame(bytes + length, 0x81, true, "one", 3); /* read already when it pauses */
    client_send(fd, bytes, length);
    ws_read(fd, &frame, 100);
    CHECK(frame.opcode == -1);
    ws_read(fd, &frame, 1000); /* although nothing comes after it */
    CHECK_TEXT(frame.data, "one");
    client_send(fd, bytes, length);
    ws_say(fd, "two");
    ws_read(fd, &frame, 1000);
    CHECK_TEXT(frame.data, "one");
    ws_read(fd, &frame, 1000);
    CHECK_TEXT(frame.data, "two");
    ws_say(fd, "!pause");
    ws_say(fd, "last");
    shutdown(fd, SHUT_WR);
    ws_read(fd, &frame, 1000); /* what came before the end is heard */
    CHECK_TEXT(frame.data, "last");
    CHECK(wait_for(&closed, 1, 1000));
    CHECK(client_is_closed(fd, 1000));
    close(fd);
}

/* ---- what breaks the protocol ---- */

static void check_refused(const char *bytes, size_t size, int code)
{
    reset();
    int fd = ws_open("/open");
    client_send(fd, bytes, size);
    client_send(fd, bytes, size); /* nothing of this is heard */
    CHECK(ws_read_close(fd, &frame, 1000) == code);
    CHECK(wait_for(&closed, 1, 1000));
    shutdown(fd, SHUT_WR);
    CHECK(client_is_closed(fd, 500));
    close(fd);
}

static void refuse_frame(int first, bool is_masked, const void *data, size_t size, int code)
{
    char *bytes = malloc(size + 14);
    size_t length = ws_frame(bytes, first, is_masked, data, size);
    check_refused(bytes, length, code);
    free(bytes);
}

static void test_refusals(void)
{
    static char big[HTTP_WEBSOCKET_MESSAGE_MAX + 1];
    refuse_frame(0x81, false, "unmasked", 8, 1002);
    refuse_frame(0xC1, true, "rsv1", 4, 1002);
    refuse_frame(0x91, true, "rsv3", 4, 1002);
    refuse_frame(0x83, true, "opcode 3", 8, 1002);
    refuse_frame(0x8B, true, "opcode 11", 9, 1002);
    refuse_frame(0x80, true, "continues nothing", 17, 1002);
    refuse_frame(0x09, true, "half a ping", 11, 1002);
    refuse_frame(0x89, true, big, 126, 1002);
    refuse_frame(0x81, true, "\xC3(", 2, 1007);
    refuse_frame(0x81, true, "\xED\xA0\x80", 3, 1007);
    refuse_frame(0x82, true, big, sizeof big, 1009);
    refuse_frame(0x88, true, "\x03", 1, 1002);
    refuse_frame(0x88, true, "\x03\xE7", 2, 1002); /* 999 */
    refuse_frame(0x88, true, "\x03\xED", 2, 1002); /* 1005 */
    refuse_frame(0x88, true, "\x07\xD0", 2, 1002); /* 2000 */
    refuse_frame(0x88, true, "\x03\xE8\xFF", 3, 1007);
    refuse_frame(0x88, true, "", 0, 0);
    check_refused("\x82\xFF\x7F\xFF\xFF\xFF\xFF\xFF\xFF\xFF\x01\x02\x03\x04z", 15, 1009);
    check_refused("\x82\xFE\x00\x05\x01\x02\x03\x04hello", 13, 1002); /* a length that is too long */
    char bytes[64];
    size_t length = ws_frame(bytes, 0x01, true, "a", 1);
    length += ws_frame(bytes + length, 0x81, true, "b", 1);
    check_refused(bytes, length, 1002); /* a message inside of another */
}

static void test_message_max(void)
{
    reset();
    int fd = ws_open("/open");
    ws_say(fd, "!small");
    check_echo(fd, 1, 10);
    ws_send(fd, 0x01, "123456", 6);
    ws_send(fd, 0x00, "", 0);
    ws_send(fd, 0x80, "78901", 5);
    CHECK(ws_read_close(fd, &frame, 1000) == 1009);
    close(fd);
    fd = ws_open("/open"); /* without end, in small pieces */
    ws_send(fd, 0x01, "1", 1);
    char piece[1024] = {0};
    for (int i = 0; i < 1100; i++)
        ws_send(fd, 0x00, piece, sizeof piece);
    CHECK(ws_read_close(fd, &frame, 1000) == 1009);
    close(fd);
    CHECK(wait_for(&closed, 2, 1000));
}

/* Halves of messages of many sockets together. */
static void test_budget(void)
{
    static char half[200000];
    reset();
    int first = ws_open("/open"), second = ws_open("/open");
    ws_send(first, 0x02, half, sizeof half);
    sleep_ms(50);
    ws_send(second, 0x02, half, sizeof half);
    CHECK(ws_read_close(second, &frame, 1000) == 1013);
    shutdown(second, SHUT_WR);
    CHECK(client_is_closed(second, 1000));
    ws_send(first, 0x80, half, 10000);
    ws_read(first, &frame, 1000);
    CHECK(frame.opcode == 2 && frame.size == sizeof half + 10000);
    for (int i = 0; i < 5; i++) /* what was whole is given back */
        check_echo(first, 2, sizeof half);
    close(first);
    close(second);
}

int main(void)
{
    server_start(0, 0);
    test_handshake();
    test_credentials();
    test_before_the_handshake();
    test_messages();
    test_pause();
    test_refusals();
    test_message_max();
    server_stop(1000);
    spool_max_bytes = 300000;
    server_start(0, 0);
    test_budget();
    server_stop(1000);
    return check_done();
}
