/** websocket_client.h - a raw WebSocket client: frames as the test wants them, wrong ones too. */
#pragma once

#include "client.h"

struct frame {
    int opcode; /* -1: none came, the connection ended or timed out */
    bool is_final;
    size_t size;
    char data[1 << 16]; /* its start, NUL-terminated */
};

#define KEY_LINES     "Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"
#define UPGRADE_LINES "Host: h\r\nConnection: keep-alive, Upgrade\r\nUpgrade: websocket\r\n" KEY_LINES

/* Sends the handshake of `path` with more header lines; the reply's head in `reply`. */
UNUSED_HELPER static int ws_open_with(const char *path, const char *lines, char *reply, size_t size)
{
    int fd = client_open();
    char request[4096];
    snprintf(request, sizeof request, "GET %s HTTP/1.1\r\n" UPGRADE_LINES "%s\r\n", path, lines);
    client_say(fd, request);
    client_read_reply(fd, reply, size);
    return fd;
}

UNUSED_HELPER static int ws_open(const char *path)
{
    char reply[4096];
    int fd = ws_open_with(path, "", reply, sizeof reply);
    if (strncmp(reply, "HTTP/1.1 101 ", 13) == 0)
        return fd;
    fprintf(stderr, "no WebSocket at %s: %s\n", path, reply);
    close(fd);
    return -1;
}

/* Writes a frame to `to` (size + 14 bytes); returns its length. `first` is FIN, RSV and opcode. */
UNUSED_HELPER static size_t ws_frame(char *to, int first, bool is_masked, const void *data, size_t size)
{
    size_t at = 0;
    to[at++] = (char)first;
    size_t more = size < 126 ? 0 : size < 65536 ? 2 : 8;
    to[at++] = (char)((is_masked ? 0x80 : 0) | (more == 0 ? (int)size : more == 2 ? 126 : 127));
    for (size_t i = 0; i < more; i++)
        to[at++] = (char)((uint64_t)size >> (8 * (more - 1 - i)));
    static const char MASK[4] = {0x11, 0x22, 0x33, 0x44};
    if (is_masked) {
        memcpy(to + at, MASK, 4);
        at += 4;
    }
    for (size_t i = 0; i < size; i++)
        to[at++] = (char)(((const char *)data)[i] ^ (is_masked ? MASK[i % 4] : 0));
    return at;
}

UNUSED_HELPER static bool ws_send(int fd, int first, const void *data, size_t size)
{
    char *frame = malloc(size + 14);
    size_t length = ws_frame(frame, first, true, data, size);
    bool is_sent = client_send(fd, frame, length);
    free(frame);
    return is_sent;
}

UNUSED_HELPER static bool ws_say(int fd, const char *text)
{
    return ws_send(fd, 0x81, text, strlen(text));
}

UNUSED_HELPER static bool ws_read_exactly(int fd, char *to, size_t size, int timeout_ms)
{
    for (size_t used = 0; used < size;) {
        struct pollfd ready = {.fd = fd, .events = POLLIN};
        if (poll(&ready, 1, timeout_ms) <= 0)
            return false;
        ssize_t got = recv(fd, to + used, size - used, 0);
        if (got <= 0)
            return false;
        used += (size_t)got;
    }
    return true;
}

UNUSED_HELPER static void ws_read(int fd, struct frame *frame, int timeout_ms)
{
    unsigned char head[10];
    *frame = (struct frame){.opcode = -1};
    if (!ws_read_exactly(fd, (char *)head, 2, timeout_ms))
        return;
    size_t more = (head[1] & 0x7F) == 127 ? 8 : (head[1] & 0x7F) == 126 ? 2 : 0;
    if ((head[1] & 0x80) != 0 || !ws_read_exactly(fd, (char *)head + 2, more, timeout_ms))
        return;
    frame->size = more == 0 ? head[1] : 0;
    for (size_t i = 0; i < more; i++)
        frame->size = frame->size << 8 | head[2 + i];
    for (size_t left = frame->size, kept = 0; left > 0;) {
        char scrap[65536];
        size_t part = left < sizeof scrap ? left : sizeof scrap;
        if (!ws_read_exactly(fd, scrap, part, timeout_ms))
            return;
        size_t keep = part < sizeof frame->data - 1 - kept ? part : sizeof frame->data - 1 - kept;
        memcpy(frame->data + kept, scrap, keep);
        kept += keep;
        left -= part;
    }
    frame->is_final = (head[0] & 0x80) != 0;
    frame->opcode = head[0] & 0x0F;
}

/* The code of the close frame that comes next but for data, pings and pongs; 0: an empty one, -1: none. */
UNUSED_HELPER static int ws_read_close(int fd, struct frame *frame, int timeout_ms)
{
    do
        ws_read(fd, frame, timeout_ms);
    while (frame->opcode != 8 && frame->opcode != -1);
    if (frame->opcode == -1)
        return -1;
    return frame->size < 2 ? 0 : (unsigned char)frame->data[0] << 8 | (unsigned char)frame->data[1];
}

UNUSED_HELPER static bool ws_send_close(int fd, int code)
{
    char data[2] = {(char)(code >> 8), (char)code};
    return ws_send(fd, 0x88, data, 2);
}
