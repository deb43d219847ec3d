/* lines.c - a line is never held: its bytes go on as they are read, a \r at their end once it is known what follows. */
#include "sandboxd/helpers/files/lines.h"

#include "shared/base/memory.h"

#include <errno.h>
#include <string.h>

enum { DATA_BYTES = 32768 };

struct lines {
    struct helper *helper;
    uint64_t at, first, left; /* the line being read, from 1; where it begins; how many are wanted still */
    bool begun, has_return;   /* of a wanted line: bytes were seen; the last of them was \r, and is held back */
    size_t size;
    char out[DATA_BYTES];
};

static bool flush(struct lines *lines, struct error *err)
{
    const struct files_record data = {.kind = FILES_DATA, .text = {.data = lines->out, .size = lines->size}};
    if (lines->size == 0)
        return true;
    lines->size = 0;
    return helper_record(lines->helper, &data, err) && helper_flush(lines->helper, err);
}

static bool put(struct lines *lines, const char *bytes, size_t size, struct error *err)
{
    while (size > 0) {
        size_t room = sizeof lines->out - lines->size, part = size < room ? size : room;
        memcpy(lines->out + lines->size, bytes, part);
        lines->size += part;
        bytes += part;
        size -= part;
        if (lines->size == sizeof lines->out && !flush(lines, err))
            return false;
    }
    return true;
}

/* Bytes of one wanted line. */
static bool take_bytes(struct lines *lines, const char *bytes, size_t size, struct error *err)
{
    if (!lines->begun) {
        lines->begun = true;
        if (lines->helper->count++ > 0 && !put(lines, "\n", 1, err))
            return false;
    }
    if (size == 0)
        return true;
    if (lines->has_return && !put(lines, "\r", 1, err))
        return false;
    lines->has_return = bytes[size - 1] == '\r';
    return put(lines, bytes, size - lines->has_return, err);
}

static bool take(struct lines *lines, const char *bytes, size_t size, struct error *err)
{
    while (size > 0 && lines->left > 0) {
        const char *end = memchr(bytes, '\n', size);
        size_t part = end ? (size_t)(end - bytes) : size;
        bool is_wanted = lines->at >= lines->first;
        if (is_wanted && !take_bytes(lines, bytes, part, err))
            return false;
        if (!end)
            return true;
        lines->at++;
        lines->left -= is_wanted;
        lines->begun = lines->has_return = false;
        bytes += part + 1;
        size -= part + 1;
    }
    return true;
}

bool lines_send(struct helper *helper, int fd, struct error *err)
{
    char bytes[DATA_BYTES];
    AUTO_FREE struct lines *lines = memory_new(sizeof *lines);
    lines->helper = helper;
    lines->at = 1;
    lines->first = helper->request->offset;
    lines->left = helper->request->size;
    while (lines->left > 0) {
        ssize_t got = read(fd, bytes, sizeof bytes);
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            return fail_errno(err, "read");
        if (got == 0)
            break;
        if (!take(lines, bytes, (size_t)got, err))
            return false;
    }
    return flush(lines, err);
}
