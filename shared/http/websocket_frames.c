#include "shared/http/websocket_frames.h"

#include "shared/base/memory.h"

#include <string.h>
#include <wslay/wslay.h>

enum { KEEP_BYTES = 4096 }; /* a larger buffer goes when its message was taken */

struct http_frames {
    wslay_frame_context_ptr wslay;
    ssize_t (*read)(void *cookie, void *to, size_t size);
    void *cookie;
    size_t message_max;
    struct text message; /* what there is of it */
    bool is_text, is_joining, is_taken;
    bool is_ignoring, is_dry;
    bool is_inside; /* of a frame */
    uint64_t left;  /* bytes of its payload to come */
    char control[HTTP_CONTROL_BYTES + 1];
    size_t control_bytes;
};

static ssize_t on_read(uint8_t *to, size_t size, int flags UNUSED, void *cookie)
{
    struct http_frames *frames = cookie;
    ssize_t got = frames->read(frames->cookie, to, size);
    frames->is_dry = got <= 0;
    return got > 0 ? got : -1;
}

struct http_frames *http_frames_new(ssize_t (*read)(void *cookie, void *to, size_t size), void *cookie,
                                    size_t message_max)
{
    struct http_frames *frames = memory_new(sizeof *frames);
    frames->read = read;
    frames->cookie = cookie;
    frames->message_max = message_max;
    const struct wslay_frame_callbacks callbacks = {.recv_callback = on_read};
    if (wslay_frame_context_init(&frames->wslay, &callbacks, frames) != 0)
        abort(); /* out of memory, as memory_new does */
    return frames;
}

void http_frames_free(struct http_frames *frames)
{
    if (frames == NULL)
        return;
    wslay_frame_context_free(frames->wslay);
    text_done(&frames->message);
    free(frames);
}

void http_frames_set_max(struct http_frames *frames, size_t message_max)
{
    frames->message_max = message_max;
}

static void drop_message(struct http_frames *frames)
{
    if (frames->message.capacity > KEEP_BYTES)
        text_done(&frames->message);
    frames->message.length = 0;
    frames->is_taken = false;
}

void http_frames_ignore(struct http_frames *frames)
{
    frames->is_ignoring = true; /* the message that its reader holds now stays until the next call */
}

size_t http_frames_held(const struct http_frames *frames)
{
    return frames->is_taken || frames->is_ignoring ? 0 : frames->message.length;
}

static enum http_frames_kind broken(struct http_frames_event *event, int code)
{
    *event = (struct http_frames_event){.data = "", .code = code};
    return HTTP_FRAMES_BROKEN;
}

static bool is_control(const struct wslay_frame_iocb *chunk)
{
    return wslay_is_ctrl_frame(chunk->opcode);
}

/* Judges a frame by its head; the code to close with, or 0. */
static int begin(struct http_frames *frames, const struct wslay_frame_iocb *chunk)
{
    bool is_known = is_control(chunk) ? chunk->opcode <= WSLAY_PONG : chunk->opcode <= WSLAY_BINARY_FRAME;
    bool is_first = !is_control(chunk) && chunk->opcode != WSLAY_CONTINUATION_FRAME;
    if (!chunk->mask || chunk->rsv != 0 || !is_known)
        return WSLAY_CODE_PROTOCOL_ERROR;
    if (is_control(chunk)) {
        frames->control_bytes = 0;
    } else {
        if (is_first == frames->is_joining)
            return WSLAY_CODE_PROTOCOL_ERROR; /* a message inside of another, or the rest of none */
        size_t there = frames->message.length;
        bool is_long = there > frames->message_max || chunk->payload_length > frames->message_max - there;
        if (is_long && !frames->is_ignoring)
            return WSLAY_CODE_MESSAGE_TOO_BIG;
        if (is_first)
            frames->is_text = chunk->opcode == WSLAY_TEXT_FRAME;
        frames->is_joining = !chunk->fin;
    }
    frames->is_inside = true;
    frames->left = chunk->payload_length;
    return 0;
}

/* The codes that may be in a close frame (RFC 6455, 7.4; IANA's registry). */
static bool is_close_code(int code)
{
    return (code >= 3000 && code <= 4999) || (code >= 1000 && code <= 1014 && (code < 1004 || code > 1006));
}

static enum http_frames_kind end_close(const struct http_frames *frames, struct http_frames_event *event)
{
    const unsigned char *data = (const unsigned char *)frames->control;
    *event = (struct http_frames_event){.data = ""};
    if (frames->control_bytes == 0)
        return HTTP_FRAMES_CLOSE;
    event->code = frames->control_bytes >= 2 ? data[0] << 8 | data[1] : 0;
    if (!is_close_code(event->code))
        return broken(event, WSLAY_CODE_PROTOCOL_ERROR);
    event->data = frames->control + 2;
    event->size = frames->control_bytes - 2;
    if (text_utf8_prefix(event->data, event->size) != event->size)
        return broken(event, WSLAY_CODE_INVALID_FRAME_PAYLOAD_DATA);
    return HTTP_FRAMES_CLOSE;
}

static enum http_frames_kind end_control(struct http_frames *frames, uint8_t opcode, struct http_frames_event *event)
{
    frames->control[frames->control_bytes] = '\0';
    if (opcode == WSLAY_CONNECTION_CLOSE)
        return end_close(frames, event);
    if (frames->is_ignoring)
        return HTTP_FRAMES_NONE;
    *event = (struct http_frames_event){.data = frames->control, .size = frames->control_bytes};
    return opcode == WSLAY_PING ? HTTP_FRAMES_PING : HTTP_FRAMES_PONG;
}

static enum http_frames_kind end_message(struct http_frames *frames, struct http_frames_event *event)
{
    struct text *message = &frames->message;
    if (frames->is_ignoring)
        return HTTP_FRAMES_NONE;
    text_append(message, NULL, 0); /* an empty one has data too */
    if (frames->is_text && text_utf8_prefix(message->data, message->length) != message->length)
        return broken(event, WSLAY_CODE_INVALID_FRAME_PAYLOAD_DATA);
    frames->is_taken = true;
    *event = (struct http_frames_event){.is_text = frames->is_text, .data = message->data, .size = message->length};
    return HTTP_FRAMES_MESSAGE;
}

static enum http_frames_kind take(struct http_frames *frames, const struct wslay_frame_iocb *chunk,
                                  struct http_frames_event *event)
{
    int code = frames->is_inside ? 0 : begin(frames, chunk);
    if (code != 0)
        return broken(event, code);
    if (is_control(chunk)) { /* wslay refuses longer ones */
        memcpy(frames->control + frames->control_bytes, chunk->data, chunk->data_length);
        frames->control_bytes += chunk->data_length;
    } else if (!frames->is_ignoring) {
        text_append(&frames->message, chunk->data, chunk->data_length);
    }
    frames->left -= chunk->data_length;
    if (frames->left > 0)
        return HTTP_FRAMES_NONE;
    frames->is_inside = false;
    if (is_control(chunk))
        return end_control(frames, chunk->opcode, event);
    return chunk->fin ? end_message(frames, event) : HTTP_FRAMES_NONE;
}

enum http_frames_kind http_frames_next(struct http_frames *frames, struct http_frames_event *event)
{
    if (frames->is_taken || frames->is_ignoring)
        drop_message(frames);
    for (;;) {
        struct wslay_frame_iocb chunk = {0};
        frames->is_dry = false;
        ssize_t got = wslay_frame_recv(frames->wslay, &chunk);
        if (got < 0 && got != WSLAY_ERR_WANT_READ)
            return broken(event, WSLAY_CODE_PROTOCOL_ERROR);
        enum http_frames_kind kind = got >= 0 ? take(frames, &chunk, event) : HTTP_FRAMES_NONE;
        if (kind != HTTP_FRAMES_NONE || (got < 0 && frames->is_dry))
            return kind;
    }
}

void http_frame_append(struct text *to, enum http_opcode opcode, const void *data, size_t size)
{
    unsigned char head[10] = {(unsigned char)(0x80U | opcode)};
    size_t length_bytes = size < 126 ? 0 : size <= UINT16_MAX ? 2 : 8;
    head[1] = (unsigned char)(length_bytes == 0 ? size : length_bytes == 2 ? 126 : 127);
    for (size_t i = 0; i < length_bytes; i++)
        head[2 + i] = (unsigned char)((uint64_t)size >> (8 * (length_bytes - 1 - i)));
    text_append(to, head, 2 + length_bytes);
    text_append(to, data, size);
}
