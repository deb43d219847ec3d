/** multipart_head.h - the header lines of one part, and the boundary in a Content-Type; multipart.c's own. */
#pragma once

#include "shared/base/text.h"
#include "shared/http/multipart.h"

/** What the lines read so far have said. Embedded; zero is the start of a part. */
struct multipart_head {
    struct text name, filename, type;
    bool has_disposition, has_filename, has_type, has_encoding;
    bool is_extended; /* the file name is that of filename* */
    unsigned fields;
};

/** Forgets the part, keeps the memory. */
void multipart_head_clear(struct multipart_head *head);
void multipart_head_done(struct multipart_head *head);

/** Reads one line (its CR LF taken off; NUL-terminated, `length` bytes; is cut up). Fields that say nothing here are
 *  checked and skipped (RFC 7578, 4.8). ERROR_INVALID, ERROR_TOO_LARGE. */
bool multipart_head_line(struct multipart_head *head, char *line, size_t length, struct error *err) MUST_USE;

/** After the last line: ERROR_INVALID when it is no form-data with a name. */
bool multipart_head_finish(const struct multipart_head *head, struct error *err) MUST_USE;

/** The boundary that a request's Content-Type names. */
bool multipart_boundary(const char *content_type, char to[static HTTP_MULTIPART_BOUNDARY_MAX + 1],
                        struct error *err) MUST_USE;
