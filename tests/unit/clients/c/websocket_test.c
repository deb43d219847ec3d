/* The client's side of a WebSocket against a server written by hand, frame by frame. */
#include "clients/c/websocket.h"
#include "clients/c/websocket_handshake.h"

#include "shared/base/clock.h"
#include "shared/base/memory.h"
#include "shared/base/text.h"

#include "tests/unit/check.h"

#include <arpa/inet.h>
#include <pthread.h>
#include <signal.h>
#include <sys/socket.h>

/* ---- the server ---- */

struct server {
    int listener, port;
    void (*talk)(struct server *server, int fd);
    const char *answer; /* instead of the right one */
    pthread_t thread;
    bool saw_credential, saw_masks;
    char key[WEBSOCKET_KEY_BYTES];
};

static void say(int fd, const void *data, size_t size)
{
    for (size_t sent = 0; sent < size;) {
        ssize_t part = send(fd, (const char *)data + sent, size - sent, MSG_NOSIGNAL);
        if (part <= 0)
            return;
        sent += (size_t)part;
    }
}

static bool hear(int fd, void *data, size_t size)
{
    for (size_t got = 0; got < size;) {
        ssize_t part = recv(fd, (char *)data + got, size - got, 0);
        if (part <= 0)
            return false;
        got += (size_t)part;
    }
    return true;
}

static void say_frame(int fd, unsigned char first, const void *data, size_t size)
{
    unsigned char head[10] = {first};
    size_t length = 2;
    if (size < 126) {
        head[1] = (unsigned char)size;
    } else if (size < 65536) {
        head[1] = 126, head[2] = (unsigned char)(size >> 8), head[3] = (unsigned char)size;
        length = 4;
    } else {
        head[1] = 127;
        for (int i = 0; i < 8; i++)
            head[2 + i] = (unsigned char)(size >> (56 - 8 * i));
        length = 10;
    }
    AUTO_TEXT whole = {0};
    text_append(&whole, head, length);
    text_append(&whole, data, size);
    say(fd, whole.data, whole.length);
}

/* One frame of the client; its payload, unmasked. */
static bool hear_frame(struct server *server, int fd, unsigned char *first, struct text *payload)
{
    unsigned char head[8], mask[4];
    if (!hear(fd, head, 2))
        return false;
    *first = head[0];
    server->saw_masks = server->saw_masks && (head[1] & 0x80);
    size_t size = head[1] & 0x7f;
    size_t more = size == 126 ? 2 : size == 127 ? 8 : 0;
    if (more && !hear(fd, head, more))
        return false;
    for (size_t i = 0; more && i < more; i++)
        size = (i ? size : 0) << 8 | head[i];
    AUTO_FREE char *data = memory_new(size + 1);
    if (!hear(fd, mask, 4) || !hear(fd, data, size))
        return false;
    for (size_t i = 0; i < size; i++)
        data[i] = (char)(data[i] ^ mask[i % 4]);
    payload->length = 0;
    text_append(payload, data, size);
    return true;
}

static void *serve(void *cookie)
{
    struct server *server = cookie;
    AUTO_FD int fd = accept(server->listener, NULL, NULL);
    AUTO_TEXT request = {0};
    char byte;
    while ((!request.data || !strstr(request.data, "\r\n\r\n")) && hear(fd, &byte, 1))
        text_append(&request, &byte, 1);
    const char *key = request.data ? strstr(request.data, "Sec-WebSocket-Key: ") : NULL;
    server->saw_credential = request.data && strstr(request.data, "Authorization: Bearer secret\r\n");
    server->saw_masks = true;
    if (!key || strncmp(request.data, "GET /s/x/ws?a=b HTTP/1.1\r\n", 26) != 0)
        return NULL;
    snprintf(server->key, sizeof server->key, "%.24s", key + 19);
    if (server->answer) {
        say(fd, server->answer, strlen(server->answer));
        return NULL;
    }
    server->talk(server, fd);
    return NULL;
}

static void say_welcome(const struct server *server, int fd, const char *behind, size_t size)
{
    char accept_key[WEBSOCKET_ACCEPT_BYTES];
    websocket_accept_key(accept_key, server->key);
    AUTO_TEXT text = {0};
    text_append_format(&text,
                       "HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nUPGRADE: WebSocket\r\n"
                       "Sec-WebSocket-Accept:   %s \r\n\r\n",
                       accept_key);
    text_append(&text, behind, size);
    say(fd, text.data, text.length);
}

static void server_start(struct server *server)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof address;
    server->listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    CHECK(bind(server->listener, (struct sockaddr *)&address, size) == 0 && listen(server->listener, 4) == 0);
    CHECK(getsockname(server->listener, (struct sockaddr *)&address, &size) == 0);
    server->port = ntohs(address.sin_port);
    CHECK(pthread_create(&server->thread, NULL, serve, server) == 0);
}

/* ---- the client ---- */

struct heard {
    struct text texts;   /* of the messages, "t:" or "b:" before and ";" behind each */
    size_t bytes, count; /* in all */
    struct websocket *socket;
    bool answers; /* each message is sent back */
    bool pauses;  /* after each message, until nothing has come for a while */
};

static void on_message(void *cookie, bool is_text, const char *data, size_t size)
{
    struct heard *heard = cookie;
    if (size < 100)
        text_append_format(&heard->texts, "%c:%.*s;", is_text ? 't' : 'b', (int)size, data);
    heard->bytes += size;
    heard->count++;
    if (heard->pauses)
        websocket_pause(heard->socket, true);
    if (heard->answers)
        websocket_send(heard->socket, is_text, data, size);
}

/* Until it is closed. */
static struct websocket_end run(struct server *server, struct heard *heard, size_t sends)
{
    struct websocket_end end = {.code = -1};
    struct error err = {0};
    server_start(server);
    CURLM *multi = curl_multi_init();
    AUTO_FREE char *url = memory_printf("http://127.0.0.1:%d/s/x/ws?a=b", server->port);
    const struct websocket_wanted wanted = {.url = url, .credential = "secret", .message = on_message, .cookie = heard};
    struct websocket *socket = websocket_new(&wanted, multi, &err);
    CHECK(socket != NULL);
    heard->socket = socket;
    bool sent = false;
    uint64_t until = clock_boot_ns() + UINT64_C(20000000000);
    while (socket && websocket_state(socket, &end) != WEBSOCKET_CLOSED && clock_boot_ns() < until) {
        int running, left;
        curl_multi_perform(multi, &running);
        for (CURLMsg *message; (message = curl_multi_info_read(multi, &left)) != NULL;)
            CHECK(websocket_done(socket, message->easy_handle, message->data.result));
        bool more = websocket_turn(socket);
        if (websocket_state(socket, NULL) == WEBSOCKET_OPEN && !sent && sends) {
            AUTO_FREE char *big = memory_new(sends);
            websocket_send(socket, false, big, sends);
            websocket_send(socket, true, "behind", 6);
            sent = true;
        }
        struct curl_waitfd wait;
        unsigned count = websocket_wait(socket, &wait);
        int came = 0;
        if (websocket_state(socket, NULL) != WEBSOCKET_CLOSED)
            curl_multi_poll(multi, &wait, count, more ? 0 : 100, &came);
        if (heard->pauses && came == 0 && !more)
            websocket_pause(socket, false);
    }
    CHECK(websocket_state(socket, &end) == WEBSOCKET_CLOSED);
    websocket_free(socket);
    curl_multi_cleanup(multi);
    shutdown(server->listener, SHUT_RDWR);
    pthread_join(server->thread, NULL);
    close(server->listener);
    CHECK(server->saw_credential);
    return end;
}

/* ---- what they talk about ---- */

static void talk_pieces(struct server *server, int fd)
{
    AUTO_TEXT payload = {0};
    unsigned char first;
    say_welcome(server, fd,
                "\x81\x05"
                "first",
                7); /* in the same packet as the answer */
    say_frame(fd, 0x01, "pie", 3);
    say_frame(fd, 0x89, "ping", 4); /* between two fragments */
    say_frame(fd, 0x80, "ces", 3);
    say_frame(fd, 0x82, "\x01out", 4);
    const char *const wanted[] = {"first", "ping", "pieces", "\x01out"};
    bool seen[4] = {false};
    for (int i = 0; i < 4; i++) {
        CHECK(hear_frame(server, fd, &first, &payload));
        for (int k = 0; k < 4; k++)
            seen[k] = seen[k] || (strcmp(payload.data, wanted[k]) == 0 && (first == 0x8a) == (k == 1));
    }
    CHECK(seen[0] && seen[1] && seen[2] && seen[3]);
    say_frame(fd, 0x88, "\x11\x31TOKEN_EXPIRED", 15); /* 4401 */
    CHECK(hear_frame(server, fd, &first, &payload) && first == 0x88 && payload.length >= 2);
    CHECK(server->saw_masks);
}

static void test_pieces(void)
{
    struct server server = {.talk = talk_pieces};
    struct heard heard = {.answers = true};
    struct websocket_end end = run(&server, &heard, 0);
    CHECK_TEXT(heard.texts.data, "t:first;t:pieces;b:\x01out;");
    CHECK(end.code == 4401);
    CHECK_TEXT(end.reason, "TOKEN_EXPIRED");
    text_done(&heard.texts);
}

enum { PAUSED_COUNT = 10, PAUSED_BYTES = 100 * 1024 };

static void talk_much(struct server *server, int fd)
{
    AUTO_FREE char *much = memory_new(PAUSED_BYTES);
    say_welcome(server, fd, "", 0);
    for (int i = 0; i < PAUSED_COUNT; i++)
        say_frame(fd, 0x82, much, PAUSED_BYTES);
    say_frame(fd, 0x88, "\x11\x31", 2);
    (void)!recv(fd, much, PAUSED_BYTES, 0);
}

/* Each pause lasts 100 ms, and one message comes after each. */
static void test_pauses(void)
{
    struct server server = {.talk = talk_much};
    struct heard heard = {.pauses = true};
    uint64_t before = clock_boot_ns();
    CHECK(run(&server, &heard, 0).code == 4401);
    CHECK(heard.count == PAUSED_COUNT && heard.bytes == (size_t)PAUSED_COUNT * PAUSED_BYTES);
    CHECK(clock_boot_ns() - before > (PAUSED_COUNT - 1) * UINT64_C(100000000));
    text_done(&heard.texts);
}

#define LARGE_BYTES ((size_t)3 * 1024 * 1024)

static void talk_large(struct server *server, int fd)
{
    AUTO_TEXT payload = {0};
    unsigned char first = 0;
    say_welcome(server, fd, "", 0);
    AUTO_FREE char *large = memory_new(LARGE_BYTES);
    say_frame(fd, 0x82, large, LARGE_BYTES);
    CHECK(hear_frame(server, fd, &first, &payload) && first == 0x82 && payload.length == LARGE_BYTES);
    bool zero = true;
    for (size_t i = 0; i < payload.length; i++)
        zero = zero && payload.data[i] == 0;
    CHECK(zero);
    CHECK(hear_frame(server, fd, &first, &payload) && first == 0x81 && strcmp(payload.data, "behind") == 0);
}

static void test_large_and_broken(void)
{
    struct server server = {.talk = talk_large};
    struct heard heard = {0};
    struct websocket_end end = run(&server, &heard, LARGE_BYTES);
    CHECK(heard.bytes == LARGE_BYTES && heard.count == 1);
    CHECK(end.code == 1006); /* the server left without a word */
    text_done(&heard.texts);
}

static void talk_too_large(struct server *server, int fd)
{
    AUTO_TEXT payload = {0};
    unsigned char first = 0;
    say_welcome(server, fd, "\x82\x7f\0\0\0\0\0\x80\0\1x", 11); /* 8 MiB and 1 */
    CHECK(hear_frame(server, fd, &first, &payload) && first == 0x88 && memcmp(payload.data, "\x03\xf1", 2) == 0);
}

static void talk_masked(struct server *server, int fd)
{
    char rest[16];
    say_welcome(server, fd, "\x81\x81\1\2\3\4x", 7); /* a server must not mask */
    while (recv(fd, rest, sizeof rest, 0) > 0)
        ;
}

static void talk_no_text(struct server *server, int fd)
{
    AUTO_TEXT payload = {0};
    unsigned char first = 0;
    say_welcome(server, fd, "\x81\x02\xc3\x28", 4);
    CHECK(hear_frame(server, fd, &first, &payload) && first == 0x88 && memcmp(payload.data, "\x03\xef", 2) == 0);
}

static void test_wrong_frames(void)
{
    struct heard heard = {0};
    struct server server = {.talk = talk_too_large};
    CHECK(run(&server, &heard, 0).code == 1009);
    server = (struct server){.talk = talk_masked};
    CHECK(run(&server, &heard, 0).code == 1002);
    server = (struct server){.talk = talk_no_text};
    CHECK(run(&server, &heard, 0).code == 1007);
    CHECK(heard.count == 0);
    text_done(&heard.texts);
}

static void test_refusals(void)
{
    static const struct {
        const char *answer;
        enum error_kind kind;
    } CASES[] = {
        {"HTTP/1.1 401 Unauthorized\r\nContent-Length: 61\r\n\r\n"
         "{\"error\":{\"code\":\"TOKEN_REVOKED\",\"message\":\"it was revoked\"}}",
         ERROR_TOKEN_REVOKED},
        {"HTTP/1.1 404 Not Found\r\n\r\n", ERROR_NOT_FOUND},
        {"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: upgrade\r\n"
         "Sec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n\r\n",
         ERROR_INTERNAL},
        {"SSH-2.0-OpenSSH_9.2\r\n\r\n", ERROR_INTERNAL},
        {"HTTP/1.1 10", ERROR_NODE_UNREACHABLE},
        {"", ERROR_NODE_UNREACHABLE},
    };
    for (size_t i = 0; i < sizeof CASES / sizeof *CASES; i++) {
        struct server server = {.answer = CASES[i].answer};
        struct heard heard = {0};
        struct websocket_end end = run(&server, &heard, 0);
        CHECK(end.code == 0 && end.error.kind == CASES[i].kind);
    }
}

static void test_handshake(void)
{
    char accept_key[WEBSOCKET_ACCEPT_BYTES];
    websocket_accept_key(accept_key, "dGhlIHNhbXBsZSBub25jZQ=="); /* RFC 6455, 1.3 */
    CHECK_TEXT(accept_key, "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=");
    AUTO_TEXT request = {0};
    struct error err = {0};
    CHECK(!websocket_request(&request, "ftp://x/", "t", "k", &err) && err.kind == ERROR_INVALID);
    CHECK(!websocket_request(&request, "http://x/", "t\r\nHost: y", "k", &err));
    CHECK(request.length == 0);
    CHECK(websocket_request(&request, "http://[::1]:80/a%20b?x=1", NULL, "k", &err));
    CHECK(strstr(request.data, "GET /a%20b?x=1 HTTP/1.1\r\nHost: [::1]:80\r\n") == request.data);
    CHECK(!strstr(request.data, "Authorization"));
}

int main(void)
{
    signal(SIGPIPE, SIG_IGN);
    curl_global_init(CURL_GLOBAL_DEFAULT);
    test_handshake();
    test_pieces();
    test_pauses();
    test_large_and_broken();
    test_wrong_frames();
    test_refusals();
    curl_global_cleanup();
    return check_done();
}
