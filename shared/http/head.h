/** head.h - the head of one HTTP/1 request, read strictly: what this reader accepts every other reads the same way
 *  (RFC 9112). Knows no sockets; the fuzzer's target. */
#pragma once

#include "shared/base/error.h"

#include <stddef.h>
#include <stdint.h>

#define HTTP_HEAD_MAX_BYTES    65536
#define HTTP_FIELDS_MAX        100
#define HTTP_QUERY_MAX         64
#define HTTP_QUERY_REPEATS_MAX 1024 /* where names may come again */

struct http_pair {
    const char *name, *value;
};

/** Embedded; zero is empty. Every text points into `text`. */
struct http_head {
    char *text; /* a copy of the head, cut up by NULs */
    const char *method;
    const char *path;                         /* as it came, without the query */
    char *query;                              /* as it came; NULL without '?' */
    struct http_pair fields[HTTP_FIELDS_MAX]; /* names in lower case, values trimmed */
    size_t field_count;
    bool is_1_1;
    bool is_chunked;
    bool expects_continue;
    uint64_t content_length; /* 0 when none is given, or when chunked */
};

/** Length of the head with its empty line at the start of `data`, 0 while it is not whole. `*scanned` is where to go
 *  on; 0 at first. */
size_t http_head_length(const char *data, size_t size, size_t *scanned) MUST_USE;

/** Reads a whole head of `length` bytes. ERROR_INVALID says what is wrong; the fields read so far stay. Refused: bare
 *  CR or LF, folded lines, control characters, repeated Host, Content-Length, Authorization and the like,
 *  Content-Length beside Transfer-Encoding, a target that is no clean path (http_path_check). */
bool http_head_parse(struct http_head *head, const char *data, size_t length, struct error *err) MUST_USE;
void http_head_done(struct http_head *head);

/** Value of a field by lower-case name; NULL when missing. */
const char *http_head_field(const struct http_head *head, const char *name) MUST_USE;

/** '/' first, whole percent escapes, no segment that decodes to "." or "..", no NUL: 400 else. Any other bytes: what
 * must be UTF-8 is seen where it is a parameter. */
bool http_path_check(const char *path, struct error *err) MUST_USE;

/** Decodes percent escapes of from[0..length) into `to` (length + 1 bytes, may be `from`), NUL-terminated. False on a
 *  broken escape or a NUL. */
bool http_percent_decode_bytes(char *to, const char *from, size_t length) MUST_USE;

/** As that; '+' is a blank when `is_query`, and false on invalid UTF-8 too. */
bool http_percent_decode(char *to, const char *from, size_t length, bool is_query) MUST_USE;

/** Cuts up and decodes `query` in place into pairs[HTTP_QUERY_MAX]. A repeated name is ERROR_INVALID; if they may be,
 *  only a repeated `token` is, and there is room for HTTP_QUERY_REPEATS_MAX. */
bool http_query_parse(char *query, bool may_repeat, struct http_pair *pairs, size_t *count, struct error *err) MUST_USE;
