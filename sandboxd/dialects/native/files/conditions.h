/** conditions.h - what RFC 9110 lets a client say about a file's state and its parts: entity tags, preconditions,
 * ranges, dates. Pure. */
#pragma once

#include "sandboxd/sandbox/files.h"

#include <stdbool.h>
#include <stdint.h>

#define CONDITIONS_ETAG_BYTES 72
#define CONDITIONS_DATE_BYTES 30

/** The strong entity tag of a version, with its quotes: four lower-case hex numbers. */
void conditions_etag(char to[static CONDITIONS_ETAG_BYTES], const struct files_version *version);

/** Reads it back; false for any other tag, which then is none of a file here. */
bool conditions_etag_read(const char *text, struct files_version *version) MUST_USE;

/** An IMF-fixdate (RFC 9110, 5.6.7), "Sun, 22 Nov 2026 08:49:37 GMT". Years 1970..9999: others are moved to the
 * nearest. */
void conditions_date(char to[static CONDITIONS_DATE_BYTES], int64_t mtime_ns);

/** Reads one; the obsolete forms are not served. */
bool conditions_date_read(const char *text, int64_t *seconds) MUST_USE;

/** The headers of a request, NULL where missing. */
struct conditions {
    const char *if_match, *if_none_match, *if_modified_since, *if_unmodified_since;
    const char *range, *if_range;
};

enum conditions_verdict { CONDITIONS_GO, CONDITIONS_NOT_MODIFIED, CONDITIONS_FAILED };

/** Whether a file of this version is to be shown (RFC 9110, 13.2.2). */
enum conditions_verdict conditions_judge(const struct conditions *asked, const struct files_version *version) MUST_USE;

enum conditions_part { CONDITIONS_WHOLE, CONDITIONS_PART, CONDITIONS_UNSATISFIABLE };

/** Which part of the file is wanted; *offset and *size are set for a part. What is malformed, in other units, several
 *  ranges or of another version (If-Range) is the whole (RFC 9110, 14.2). */
enum conditions_part conditions_range(const struct conditions *asked, const struct files_version *version,
                                      uint64_t *offset, uint64_t *size) MUST_USE;

/** If-Match and If-None-Match of a request that changes the file, as a files_request says them. ERROR_INVALID for what
 *  is not served (several tags, a date), ERROR_PRECONDITION for a tag that no file here can have. */
bool conditions_for_change(const struct conditions *asked, struct files_request *request, struct error *err) MUST_USE;

/** Content-Range of a piece: "bytes A-B/T" (size > 0), or "bytes *" "/T" (size 0): what came so far? ERROR_INVALID. */
struct conditions_piece {
    uint64_t offset, size, total;
};
bool conditions_piece_read(const char *text, struct conditions_piece *piece, struct error *err) MUST_USE;
