/** websocket.h - a request that becomes a WebSocket (RFC 6455), with back-pressure both ways. Built on libh2o's HTTP/1
 *  upgrade and wslay's framing. Belongs to the request's loop. The request lives on as long as the socket:
 * http_requests_each finds it, http_request_revoke ends it (events->cut, then close 4401), its identity may be set
 * anew. */
#pragma once

#include "shared/http/server.h"

#define HTTP_WEBSOCKET_FULL_BYTES  (256 * 1024)  /* of what waits to be sent: stop until drained */
#define HTTP_WEBSOCKET_MESSAGE_MAX (1024 * 1024) /* of one message that comes in; more: close 1009 */
/* A ping after so long without a byte from the peer, and the end (4408) when nothing comes for so long after it, nor is
 * anything taken that was sent before it; or when nothing is taken for both. */
#define HTTP_WEBSOCKET_PING_MS 20000
#define HTTP_WEBSOCKET_PONG_MS 20000

struct http_websocket;

struct http_websocket_events {
    /** One whole message; text is valid UTF-8. `data` is good during the call. The socket may be closed inside. */
    void (*message)(struct http_websocket *socket, void *cookie, bool is_text, const char *data, size_t size);
    /** What waited to be sent has gone; may be NULL. */
    void (*drained)(struct http_websocket *socket, void *cookie);
    /** The credential holds no more: say the last frame; then it is closed with 4401. Not followed by `closed`. */
    void (*cut)(struct http_websocket *socket, void *cookie, const struct error *err);
    /** The last: the peer closed or is gone, or broke the protocol. Not after http_websocket_close. */
    void (*closed)(void *cookie);
};

/** Whether the request asks for a WebSocket: GET with Upgrade, Connection and Sec-WebSocket-Version 13, else
 * ERROR_UPGRADE (http_reply_error makes that a 426 that names the version); and a sound key, else INVALID. An Origin
 * that is not this host's is FORBIDDEN unless a credential came, or is asked for later: all of our carriers are such
 * that browsers do not add them by themselves. */
bool http_websocket_check(const struct http_request *request, struct error *err) MUST_USE;

/** Answers 101 (with `protocol` when not NULL and offered by the client) and hands over. After http_websocket_check
 * said yes; NULL only for a request that was answered already. `message_max`: of incoming messages for now. */
struct http_websocket *http_websocket_accept(struct http_request *request, const char *protocol, size_t message_max,
                                             const struct http_websocket_events *events, void *cookie) MUST_USE;

/** The cookie of the open socket whose request has that number on the calling loop; NULL when it is over: for answers that
 *  come later. */
void *http_websocket_find(struct loop *loop, uint64_t number) MUST_USE;

struct http_request *http_websocket_request(const struct http_websocket *socket) MUST_USE;
void http_websocket_set_message_max(struct http_websocket *socket, size_t message_max);

/** Queues a message (copied). Returns how many bytes wait in all; at HTTP_WEBSOCKET_FULL_BYTES or more stop until
 * drained. A sender that lets 8 MiB wait is cut: `closed` comes at the end of the turn. Nothing after a close. While
 * over twice FULL wait nothing is read from the peer. */
size_t http_websocket_send(struct http_websocket *socket, bool is_text, const void *data, size_t size);

/** While true nothing is read from the peer (its pings neither, so keep it short of HTTP_WEBSOCKET_PONG_MS in spirit:
 * the ping timer rests meanwhile; a peer that goes away is noticed all the same). */
void http_websocket_pause(struct http_websocket *socket, bool is_paused);

/** Sends what waits and a close frame (1000, 1001, 4000..4499; reason <= 123 bytes UTF-8), waits up to 2 s for the
 * peer's, and frees it. No event comes any more; the socket is dead for the caller. Allowed inside its events. */
void http_websocket_close(struct http_websocket *socket, int code, const char *reason);

/** The bearer of a subprotocol list "parley.v1, bearer.<token>": points to the token (*size bytes) or NULL. */
const char *http_websocket_bearer(const struct http_request *request, size_t *size) MUST_USE;
