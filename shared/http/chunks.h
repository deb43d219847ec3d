/** chunks.h - reads the framing of a chunked body (RFC 9112, 7.1), strictly: lines end in CR LF, sizes are hexadecimal,
 *  extensions and trailers are skipped and bounded. Knows no sockets; the data between is its caller's. */
#pragma once

#include "shared/base/error.h"

#include <stddef.h>
#include <stdint.h>

enum http_chunk_state {
    HTTP_CHUNK_SIZE, /* in the digits */
    HTTP_CHUNK_EXTENSION,
    HTTP_CHUNK_SIZE_LF,
    HTTP_CHUNK_DATA, /* `left` bytes of data come next */
    HTTP_CHUNK_DATA_CR,
    HTTP_CHUNK_DATA_LF,
    HTTP_CHUNK_TRAILER, /* at the start of a line behind the last chunk */
    HTTP_CHUNK_TRAILER_LINE,
    HTTP_CHUNK_TRAILER_LF,
    HTTP_CHUNK_LAST_LF,
    HTTP_CHUNK_END
};

/** Embedded; zero is the start. */
struct http_chunks {
    enum http_chunk_state state;
    uint64_t left;    /* DATA: what is missing of this chunk; its reader takes off what it took */
    unsigned digits;  /* of this size */
    unsigned skipped; /* bytes of this extension, or of all trailers */
};

/** Takes framing from data[0..size) up to the next data or the end of the body; returns how many bytes were taken.
 * False with ERROR_INVALID when it is broken. To be called again when `left` has become 0, which it sees by itself. */
bool http_chunks_read(struct http_chunks *chunks, const char *data, size_t size, size_t *used,
                      struct error *err) MUST_USE;
