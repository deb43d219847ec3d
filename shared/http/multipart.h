/** multipart.h - reads a multipart/form-data body as it comes (RFC 7578; RFC 2046, 5.1), in pieces cut anywhere: what
 *  parts there are, and their bytes. Holds one header line and never a part. Knows no sockets; the fuzzer's target.
 *
 *  Names and file names are taken as clients write them: quoted or not; `\"` and `\\` in quotes are escapes, any other
 *  backslash is itself; %22, %0D and %0A are what browsers and curl make of `"`, CR and LF (WHATWG, "multipart form
 *  data"), any other % is itself; a filename* in UTF-8 (RFC 8187), which .NET adds, beats filename. They are a
 *  stranger's bytes: a file name may be "../x", and need not be UTF-8.
 *
 *  Refused, as readers differ about it: lines that end in LF alone, folded lines, control characters, repeated fields
 *  or parameters, a delimiter with anything but blanks behind it, transfer encodings, parts that are multipart. */
#pragma once

#include "shared/base/cleanup.h"
#include "shared/base/error.h"

#include <stddef.h>

#define HTTP_MULTIPART_BOUNDARY_MAX 70    /* RFC 2046, 5.1.1 */
#define HTTP_MULTIPART_HEAD_MAX     16384 /* bytes of one part's header lines */
#define HTTP_MULTIPART_FIELDS_MAX   32    /* header lines of one part */
#define HTTP_MULTIPART_OUTSIDE_MAX  8192  /* bytes before the first delimiter, and behind the last */

struct http_multipart;

/** NUL-terminated; they belong to the reader and are good until the next part begins. */
struct http_multipart_part {
    const char *name;     /* not empty */
    const char *filename; /* NULL: it has none, so it is no file; may be "" (a browser's empty choice) */
    const char *type;     /* its Content-Type as it came; NULL: none, which means text/plain */
};

enum http_multipart_kind {
    HTTP_MULTIPART_NONE,     /* more bytes are needed */
    HTTP_MULTIPART_PART,     /* one begins */
    HTTP_MULTIPART_DATA,     /* bytes of it, at least one */
    HTTP_MULTIPART_PART_END, /* it is whole */
    HTTP_MULTIPART_END       /* the last delimiter was there; what follows is skipped */
};

struct http_multipart_event {
    enum http_multipart_kind kind;
    const struct http_multipart_part *part; /* PART */
    const char *data; /* DATA: `size` bytes, in what was given or in the reader; good until the next call */
    size_t size;
};

/** Whether a Content-Type (NULL: none) is multipart/form-data at all, whatever its parameters. */
bool http_multipart_is(const char *content_type) MUST_USE;

/** A reader for a body of this Content-Type (NULL: none) with at most `parts_max` parts. NULL with ERROR_INVALID when
 *  it is not multipart/form-data with one sound boundary. The caller owns it. */
struct http_multipart *http_multipart_new(const char *content_type, unsigned parts_max, struct error *err) MUST_USE;
void http_multipart_free(struct http_multipart *reader);
DEFINE_AUTO(http_multipart)

/** Takes bytes of data[0..size) up to the next event, or all of them with the event NONE; *used says how many, and may
 *  be 0 with an event. The sequence of events, with the DATA of a part joined, does not depend on how the body is cut.
 *  False with ERROR_INVALID or ERROR_TOO_LARGE (too many parts, too much in a head): nothing can be read after it. */
bool http_multipart_next(struct http_multipart *reader, const char *data, size_t size, size_t *used,
                         struct http_multipart_event *event, struct error *err) MUST_USE;

/** At the body's end: ERROR_INVALID when its last delimiter has not come. */
bool http_multipart_finish(const struct http_multipart *reader, struct error *err) MUST_USE;
