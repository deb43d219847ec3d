/** websocket_frames.h - messages of a WebSocket out of bytes that a client sent, and frames for it (RFC 6455, 5), over
 *  wslay's framing: joins fragments, bounds them, and says with which code to close what is wrong. Knows no sockets;
 * the fuzzer's target. */
#pragma once

#include "shared/base/text.h"

#include <sys/types.h>

struct http_frames;

enum { HTTP_CONTROL_BYTES = 125 }; /* a ping's, pong's or close's most */

enum http_frames_kind {
    HTTP_FRAMES_NONE,    /* more bytes are needed */
    HTTP_FRAMES_MESSAGE, /* whole, joined; text is UTF-8 */
    HTTP_FRAMES_PING,
    HTTP_FRAMES_PONG,
    HTTP_FRAMES_CLOSE, /* code: the peer's, 0 when it gave none */
    HTTP_FRAMES_BROKEN /* code: 1002, 1007 or 1009. Nothing can be read after it */
};

struct http_frames_event {
    bool is_text;
    const char *data; /* good until the next call; NUL-terminated */
    size_t size;
    int code;
};

/** read(cookie, to, size) gives 1..size bytes, or nothing for now: <= 0. The caller owns it. */
struct http_frames *http_frames_new(ssize_t (*read)(void *cookie, void *to, size_t size), void *cookie,
                                    size_t message_max);
void http_frames_free(struct http_frames *frames);
DEFINE_AUTO(http_frames)

/** For messages of which a frame begins from now on. */
void http_frames_set_max(struct http_frames *frames, size_t message_max);
/** From now on only CLOSE and BROKEN are told, and nothing of messages is kept. */
void http_frames_ignore(struct http_frames *frames);

/** Bytes of a message that is not whole yet. */
size_t http_frames_held(const struct http_frames *frames) MUST_USE;

enum http_frames_kind http_frames_next(struct http_frames *frames, struct http_frames_event *event) MUST_USE;

enum http_opcode {
    HTTP_OPCODE_TEXT = 1,
    HTTP_OPCODE_BINARY = 2,
    HTTP_OPCODE_CLOSE = 8,
    HTTP_OPCODE_PING = 9,
    HTTP_OPCODE_PONG = 10
};

/** Appends one whole frame as a server sends it. */
void http_frame_append(struct text *to, enum http_opcode opcode, const void *data, size_t size);
