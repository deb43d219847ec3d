#include "shared/http/chunks.h"

enum { DIGITS_MAX = 16, SKIPPED_MAX = 8192 };

static int hex_digit(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    c = (char)(c | 0x20);
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

static bool broken(struct error *err)
{
    return error_set(err, ERROR_INVALID, "the body's chunks are not well-formed");
}

static bool take_size(struct http_chunks *chunks, char c, struct error *err)
{
    int digit = hex_digit(c);
    if (digit >= 0) {
        if (chunks->digits == DIGITS_MAX || chunks->left > INT64_MAX / 16)
            return error_set(err, ERROR_INVALID, "a chunk of the body is too long to be true");
        chunks->digits++;
        chunks->left = chunks->left * 16 + (uint64_t)digit;
        return true;
    }
    chunks->skipped = 0;
    chunks->state = c == '\r' ? HTTP_CHUNK_SIZE_LF : HTTP_CHUNK_EXTENSION;
    bool is_end = c == '\r' || c == ';' || c == ' ' || c == '\t';
    return (chunks->digits > 0 && is_end) || broken(err);
}

/* A byte of an extension or a trailer; CR leads to `next`. */
static bool skip(struct http_chunks *chunks, char c, enum http_chunk_state next, struct error *err)
{
    if (c == '\r') {
        chunks->state = next;
        return true;
    }
    unsigned char byte = (unsigned char)c;
    if ((byte < 0x20 && c != '\t') || byte == 0x7F)
        return broken(err);
    return ++chunks->skipped <= SKIPPED_MAX ||
           error_set(err, ERROR_INVALID, "the body has over %d bytes of trailers or of one extension", SKIPPED_MAX);
}

static bool expect(struct http_chunks *chunks, char c, char wanted, enum http_chunk_state next, struct error *err)
{
    chunks->state = next;
    return c == wanted || broken(err);
}

static void start_size(struct http_chunks *chunks)
{
    chunks->left = 0;
    chunks->digits = 0;
}

static bool take(struct http_chunks *chunks, char c, struct error *err)
{
    switch (chunks->state) {
    case HTTP_CHUNK_SIZE:
        return take_size(chunks, c, err);
    case HTTP_CHUNK_EXTENSION:
        return skip(chunks, c, HTTP_CHUNK_SIZE_LF, err);
    case HTTP_CHUNK_SIZE_LF:
        return expect(chunks, c, '\n', chunks->left > 0 ? HTTP_CHUNK_DATA : HTTP_CHUNK_TRAILER, err);
    case HTTP_CHUNK_DATA_CR:
        return expect(chunks, c, '\r', HTTP_CHUNK_DATA_LF, err);
    case HTTP_CHUNK_DATA_LF:
        start_size(chunks);
        return expect(chunks, c, '\n', HTTP_CHUNK_SIZE, err);
    case HTTP_CHUNK_TRAILER:
        if (c == '\r')
            return expect(chunks, c, '\r', HTTP_CHUNK_LAST_LF, err);
        chunks->state = HTTP_CHUNK_TRAILER_LINE;
        return skip(chunks, c, HTTP_CHUNK_TRAILER_LF, err);
    case HTTP_CHUNK_TRAILER_LINE:
        return skip(chunks, c, HTTP_CHUNK_TRAILER_LF, err);
    case HTTP_CHUNK_TRAILER_LF:
        return expect(chunks, c, '\n', HTTP_CHUNK_TRAILER, err);
    case HTTP_CHUNK_LAST_LF:
        return expect(chunks, c, '\n', HTTP_CHUNK_END, err);
    case HTTP_CHUNK_DATA:
    case HTTP_CHUNK_END:
        break;
    }
    return broken(err);
}

bool http_chunks_read(struct http_chunks *chunks, const char *data, size_t size, size_t *used, struct error *err)
{
    if (chunks->state == HTTP_CHUNK_DATA && chunks->left == 0)
        chunks->state = HTTP_CHUNK_DATA_CR;
    size_t at = 0;
    while (at < size && chunks->state != HTTP_CHUNK_DATA && chunks->state != HTTP_CHUNK_END) {
        if (!take(chunks, data[at++], err))
            return false;
    }
    *used = at;
    return true;
}
