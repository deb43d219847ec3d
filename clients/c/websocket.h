/** websocket.h - one WebSocket to a server (RFC 6455, the client's side): connected by libcurl, so that TLS and proxies
 *  are its matter, framed by wslay. Steps of the user's own curl_multi loop; nothing here blocks. Inside libparley. */
#pragma once

#include "shared/base/error.h"

#include <curl/curl.h>
#include <stdbool.h>
#include <stddef.h>

#define WEBSOCKET_MESSAGE_MAX_BYTES (8 * 1024 * 1024) /* of one that comes in; more: the socket ends with 1009 */
#define WEBSOCKET_REASON_BYTES      124

struct websocket;

/** What to connect to. */
struct websocket_wanted {
    const char *url;        /* http(s)://host[:port]/path */
    const char *credential; /* sent as Bearer; NULL none */
    /** One whole message; text is valid UTF-8. `data` is good during the call. It may send, and must not free. */
    void (*message)(void *cookie, bool is_text, const char *data, size_t size);
    void *cookie;
};

enum websocket_state { WEBSOCKET_CONNECTING, WEBSOCKET_OPEN, WEBSOCKET_CLOSED };

/** How it ended. */
struct websocket_end {
    int code; /* of the peer's close frame; 1005 without one in it; 1006 broken; 0: it was never open */
    char reason[WEBSOCKET_REASON_BYTES];
    struct error error; /* never open: why: the server's own kind and sentence, NODE_UNREACHABLE, TIMEOUT */
};

/** Begins to connect on `multi`, which outlives it. ERROR_INVALID (the URL), ERROR_INTERNAL. */
struct websocket *websocket_new(const struct websocket_wanted *wanted, CURLM *multi, struct error *err) MUST_USE;

/** Says good-bye (1000) if it can at once; NULL is allowed. */
void websocket_free(struct websocket *socket);
DEFINE_AUTO(websocket)

/** A transfer of the loop ended: true when it was this socket's. It stays on the loop, only websocket_free takes it
 * off. */
bool websocket_done(struct websocket *socket, const CURL *curl, CURLcode code) MUST_USE;

/** Reads and writes what can be read and written now. True: there may be more, come again without waiting. */
bool websocket_turn(struct websocket *socket) MUST_USE;

/** What to wait for before the next turn; false: nothing but what curl itself waits for. */
bool websocket_wait(const struct websocket *socket, struct curl_waitfd *wait) MUST_USE;

/** `end` (may be NULL) is written when it is CLOSED. */
enum websocket_state websocket_state(const struct websocket *socket, struct websocket_end *end) MUST_USE;

/** Whether messages are taken. While they are not (but for those that have come already, 8 KiB at most and a message),
 *  the peer hears every 10 s that somebody is there. */
void websocket_pause(struct websocket *socket, bool pause);

/** Queues a message (copied) and sends what can be sent now; nothing when it is not OPEN. */
void websocket_send(struct websocket *socket, bool is_text, const void *data, size_t size);

/** Bytes that wait to be sent. */
size_t websocket_waiting(const struct websocket *socket) MUST_USE;

/** Queues a close frame; it is CLOSED when the peer has answered. `reason` at most 123 bytes. */
void websocket_close(struct websocket *socket, unsigned short code, const char *reason);
