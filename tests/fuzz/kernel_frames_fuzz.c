/* kernel_frames_fuzz.c - any bytes as what a context's process writes. In whatever pieces they come the same frames are
 * read out of them, and what is told of one has the types that the header promises and can be told on. */
#include "sandboxd/sandbox/kernels/kernel_frames.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size); /* NOLINT: libFuzzer's name */

static void require(bool condition)
{
    if (!condition)
        abort();
}

static void check_text(const char *text, size_t room)
{
    size_t length = strnlen(text, room);
    require(length < room && text_utf8_prefix(text, length) == length && !strchr(text, '\n'));
}

static void check_frame(const struct kernel_frame *frame, struct text *told)
{
    require(json_is_object(frame->body));
    check_text(frame->version, sizeof frame->version);
    check_text(frame->implementation, sizeof frame->implementation);
    check_text(frame->message, sizeof frame->message);
    require(strnlen(frame->run, sizeof frame->run) < sizeof frame->run);
    if (frame->kind == KERNEL_FRAME_STDOUT || frame->kind == KERNEL_FRAME_STDERR)
        require(json_is_string(json_object_get(frame->body, "text")));
    if (frame->kind == KERNEL_FRAME_DISPLAY || frame->kind == KERNEL_FRAME_RESULT)
        require(json_is_object(json_object_get(frame->body, "data")) &&
                json_is_object(json_object_get(frame->body, "metadata")));
    if (frame->kind == KERNEL_FRAME_ERROR)
        require(json_is_array(json_object_get(frame->body, "traceback")));
    char *text = json_dumps(frame->body, JSON_COMPACT);
    require(text != NULL);
    text_append_format(told, "%d %llu %s %s|", (int)frame->kind, (unsigned long long)frame->count, frame->run, text);
    free(text);
}

static void read_all(const uint8_t *data, size_t size, size_t piece, struct text *told)
{
    struct kernel_lines lines = {0};
    struct error err = {0};
    for (size_t at = 0; at < size; at += piece) {
        size_t part = size - at < piece ? size - at : piece;
        require(kernel_lines_add(&lines, data + at, part, &err));
        const char *line;
        size_t length;
        while (kernel_lines_next(&lines, &line, &length)) {
            struct kernel_frame frame = {0};
            if (kernel_frame_parse(line, length, &frame, &err))
                check_frame(&frame, told);
            else
                text_append_format(told, "no %d|", (int)err.kind);
            kernel_frame_done(&frame);
        }
    }
    kernel_lines_done(&lines);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size == 0)
        return 0;
    AUTO_TEXT whole = {0};
    AUTO_TEXT pieces = {0};
    read_all(data + 1, size - 1, size, &whole);
    read_all(data + 1, size - 1, 1U + data[0], &pieces);
    require(whole.length == pieces.length && (whole.length == 0 || memcmp(whole.data, pieces.data, whole.length) == 0));
    return 0;
}
