/** websocket_handshake.h - the HTTP before a WebSocket, the client's side (RFC 6455, 4.1): the request, and whether the
 *  answer is the right one. Pure. Inside libparley. */
#pragma once

#include "shared/base/error.h"
#include "shared/base/text.h"

#include <stdbool.h>

#define WEBSOCKET_KEY_BYTES      25 /* base64 of 16 bytes, with the NUL */
#define WEBSOCKET_ACCEPT_BYTES   29 /* base64 of 20 bytes, with the NUL */
#define WEBSOCKET_HEAD_MAX_BYTES (16 * 1024)
#define WEBSOCKET_BODY_MAX_BYTES (64 * 1024) /* of a refusal */

/** A fresh Sec-WebSocket-Key. */
void websocket_key(char to[static WEBSOCKET_KEY_BYTES]);

/** What the server must answer to it. */
void websocket_accept_key(char to[static WEBSOCKET_ACCEPT_BYTES], const char *key);

/** Appends the request. ERROR_INVALID when the URL is none of http(s). */
bool websocket_request(struct text *to, const char *url, const char *credential, const char *key,
                       struct error *err) MUST_USE;

enum websocket_answer { WEBSOCKET_ANSWER_PARTIAL, WEBSOCKET_ANSWER_GOOD, WEBSOCKET_ANSWER_REFUSED };

/** Looks at the bytes that have come so far; `ended`: no more will. GOOD: *used bytes were the answer, frames follow.
 *  REFUSED: *err has the server's kind and sentence, or what is wrong with the answer. */
enum websocket_answer websocket_answer(const struct text *got, bool ended, const char *key, size_t *used,
                                       struct error *err) MUST_USE;
