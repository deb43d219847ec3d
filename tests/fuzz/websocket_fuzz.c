/* websocket_fuzz.c - any bytes as what the client of a WebSocket sends. Whatever pieces they come in, the same is read
 * out of them; and what is told is what the header promises: bounded messages, UTF-8, sound codes. */
#include "shared/http/websocket_frames.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

enum { MESSAGE_MAX = 1000 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size); /* NOLINT: libFuzzer's name */

struct source {
    const uint8_t *data;
    size_t left, piece;
    bool is_halted; /* once between two pieces */
};

static void require(bool condition)
{
    if (!condition)
        abort();
}

static ssize_t give(void *cookie, void *to, size_t size)
{
    struct source *source = cookie;
    source->is_halted = !source->is_halted;
    if (source->left == 0 || source->is_halted)
        return -1;
    size_t part = source->left < source->piece ? source->left : source->piece;
    part = part < size ? part : size;
    memcpy(to, source->data, part);
    source->data += part;
    source->left -= part;
    return (ssize_t)part;
}

static void check_event(enum http_frames_kind kind, const struct http_frames_event *event)
{
    require(strlen(event->data) <= event->size || event->size == 0);
    if (kind == HTTP_FRAMES_MESSAGE) {
        require(event->size <= MESSAGE_MAX && event->data[event->size] == '\0');
        require(!event->is_text || text_utf8_prefix(event->data, event->size) == event->size);
    } else if (kind == HTTP_FRAMES_CLOSE) {
        require(event->code == 0 || (event->code >= 1000 && event->code <= 4999));
        require(event->size <= HTTP_CONTROL_BYTES - 2);
    } else if (kind == HTTP_FRAMES_BROKEN) {
        require(event->code == 1002 || event->code == 1007 || event->code == 1009);
    } else {
        require(event->size <= HTTP_CONTROL_BYTES);
    }
}

/* All that is told, in one text. */
static void read_all(struct source source, bool is_ignoring, struct text *told)
{
    AUTO(http_frames) *frames = http_frames_new(give, &source, MESSAGE_MAX);
    if (is_ignoring)
        http_frames_ignore(frames);
    enum http_frames_kind kind = HTTP_FRAMES_NONE;
    while (kind != HTTP_FRAMES_BROKEN && kind != HTTP_FRAMES_CLOSE) {
        struct http_frames_event event;
        size_t before = source.left;
        bool was_halted = source.is_halted;
        kind = http_frames_next(frames, &event);
        if (kind == HTTP_FRAMES_NONE && source.left == 0 && before == 0 && !was_halted)
            return;
        if (kind == HTTP_FRAMES_NONE)
            continue;
        check_event(kind, &event);
        require(!is_ignoring || kind == HTTP_FRAMES_BROKEN || kind == HTTP_FRAMES_CLOSE);
        text_append_format(told, "%d %d %d %zu ", (int)kind, (int)event.is_text, event.code, event.size);
        text_append(told, event.data, event.size);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size == 0)
        return 0;
    bool is_ignoring = (data[0] & 0x80) != 0;
    AUTO_TEXT whole = {0};
    AUTO_TEXT pieces = {0};
    read_all((struct source){data + 1, size - 1, size, false}, is_ignoring, &whole);
    read_all((struct source){data + 1, size - 1, 1U + (data[0] & 0x7FU), false}, is_ignoring, &pieces);
    require(whole.length == pieces.length);
    require(whole.length == 0 || memcmp(whole.data, pieces.data, whole.length) == 0);
    return 0;
}
