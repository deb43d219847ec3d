/** client.h - a raw client on 127.0.0.1 for the tests of this room: nothing between the test and the bytes. */
#pragma once

#include "tls_client.h"

#include <arpa/inet.h>
#include <errno.h>
#include <poll.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define UNUSED_HELPER __attribute__((unused))

static uint16_t client_port;

/* Every test here can be run over TLS, too. */
UNUSED_HELPER static bool client_is_tls(void)
{
    return getenv("PARLEY_TEST_TLS") != NULL;
}

UNUSED_HELPER static double seconds_now(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

UNUSED_HELPER static void sleep_ms(unsigned ms)
{
    poll(NULL, 0, (int)ms);
}

/* `receive_bytes` 0: the kernel's own buffer. */
UNUSED_HELPER static int client_open_small(int receive_bytes)
{
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (receive_bytes > 0)
        setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &receive_bytes, sizeof receive_bytes);
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_port = htons(client_port)};
    at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    if (connect(fd, (struct sockaddr *)&at, sizeof at) != 0) {
        close(fd);
        return -1;
    }
    return client_is_tls() ? tls_wrap(fd) : fd;
}

UNUSED_HELPER static int client_open(void)
{
    return client_open_small(0);
}

UNUSED_HELPER static bool client_send(int fd, const char *data, size_t size)
{
    while (size > 0) {
        ssize_t sent = send(fd, data, size, MSG_NOSIGNAL);
        if (sent <= 0)
            return false;
        data += sent;
        size -= (size_t)sent;
    }
    return true;
}

UNUSED_HELPER static bool client_say(int fd, const char *text)
{
    return client_send(fd, text, strlen(text));
}

/* Reads until the connection ends, `size` is full, or nothing came for `timeout_ms`. NUL-terminates. */
UNUSED_HELPER static size_t client_read_all(int fd, char *to, size_t size, int timeout_ms)
{
    size_t used = 0;
    while (used + 1 < size) {
        struct pollfd ready = {.fd = fd, .events = POLLIN};
        if (poll(&ready, 1, timeout_ms) <= 0)
            break;
        ssize_t got = recv(fd, to + used, size - 1 - used, 0);
        if (got <= 0)
            break;
        used += (size_t)got;
    }
    to[used] = '\0';
    return used;
}

/* True when the server has closed or reset within `timeout_ms`; what still comes is thrown away. */
UNUSED_HELPER static bool client_is_closed(int fd, int timeout_ms)
{
    double until = seconds_now() + timeout_ms / 1e3;
    for (;;) {
        int left = (int)((until - seconds_now()) * 1e3);
        struct pollfd ready = {.fd = fd, .events = POLLIN};
        if (left < 0 || poll(&ready, 1, left) <= 0)
            return false;
        char scrap[4096];
        ssize_t got = recv(fd, scrap, sizeof scrap, 0);
        if (got <= 0)
            return true;
    }
}

/* Reads exactly one reply with a Content-Length (not for HEAD): head and body, NUL-terminated. */
UNUSED_HELPER static size_t client_read_reply(int fd, char *to, size_t size)
{
    size_t used = 0, wanted = SIZE_MAX;
    while (used < wanted && used + 1 < size) {
        struct pollfd ready = {.fd = fd, .events = POLLIN};
        if (poll(&ready, 1, 60000) <= 0)
            break;
        size_t room = wanted == SIZE_MAX ? 1 : wanted - used; /* byte by byte up to the body: never too much */
        if (room > size - 1 - used)
            room = size - 1 - used;
        ssize_t got = recv(fd, to + used, room, 0);
        if (got <= 0)
            break;
        used += (size_t)got;
        to[used] = '\0';
        if (wanted == SIZE_MAX && used >= 4 && memcmp(to + used - 4, "\r\n\r\n", 4) == 0) {
            const char *length = strstr(to, "Content-Length: ");
            wanted = used + (length != NULL ? strtoul(length + 16, NULL, 10) : 0);
        }
    }
    to[used] = '\0';
    return used;
}

/* One request on its own connection; returns the status, the reply in `to`. */
UNUSED_HELPER static int client_ask(const char *request, char *to, size_t size)
{
    int fd = client_open();
    client_say(fd, request);
    client_read_reply(fd, to, size);
    close(fd);
    return strncmp(to, "HTTP/1.1 ", 9) == 0 ? atoi(to + 9) : 0;
}

/* The body of a reply; NULL when it has none. */
UNUSED_HELPER static const char *client_body(const char *reply)
{
    const char *end = strstr(reply, "\r\n\r\n");
    return end != NULL ? end + 4 : NULL;
}
