/** error.h - what went wrong, as a value: a kind, an errno, one sentence.
 *  A struct error never owns memory, so it can be copied, dropped, or written whole through a pipe
 *  (its 256 bytes are below PIPE_BUF: the write is atomic). */
#pragma once

#include "shared/base/cleanup.h"

#include <stdbool.h>

/* The kinds are the protocol's error codes; one table gives each its code, its HTTP status and whether to retry. */
enum error_kind {
    ERROR_NONE,
    ERROR_INVALID,           /* 400: the request is malformed; the sentence says what is allowed */
    ERROR_UNAUTHENTICATED,   /* 401 */
    ERROR_TOKEN_EXPIRED,     /* 401 */
    ERROR_TOKEN_REVOKED,     /* 401 */
    ERROR_FORBIDDEN,         /* 403: the role or a policy says no */
    ERROR_CAPABILITY_DENIED, /* 403: the token lacks the scope */
    ERROR_NOT_FOUND,         /* 404 */
    ERROR_METHOD,            /* 405 */
    ERROR_CONFLICT,          /* 409 */
    ERROR_TOKEN_REUSED,      /* 409 */
    ERROR_GONE,              /* 410: the sentence holds the reason */
    ERROR_PRECONDITION,      /* 412: If-Match, If-None-Match */
    ERROR_TOO_LARGE,         /* 413 */
    ERROR_RANGE,             /* 416 */
    ERROR_STARTING,          /* 423 */
    ERROR_UPGRADE,           /* 426: a WebSocket is wanted here */
    ERROR_RATE_LIMITED,      /* 429 */
    ERROR_QUOTA,             /* 429 */
    ERROR_INTERNAL,          /* 500: ours, or the operating system's */
    ERROR_BAD_GATEWAY,       /* 502: another server, asked for the client, cannot be reached or makes no sense */
    ERROR_NO_CAPACITY,       /* 503 */
    ERROR_NODE_UNREACHABLE,  /* 503 */
    ERROR_TIMEOUT,           /* 504 */
    ERROR_DISK_FULL,         /* 507 */
    ERROR_FROZEN,            /* 403: an open incident; the sentence names it. New kinds come last: numbers are kept
                                between programs of before and after an upgrade */
    ERROR_KINDS
};

#define ERROR_MESSAGE_BYTES 248

struct error {
    enum error_kind kind;
    int system_errno; /* 0 when no system call failed */
    char message[ERROR_MESSAGE_BYTES];
};
_Static_assert(sizeof(struct error) == 256, "a cloned child writes an error whole to a pipe");

/** Sets `err` (NULL is allowed) and returns false, so that failing is one line. A longer sentence is cut. */
bool error_set(struct error *err, enum error_kind kind, const char *format, ...) __attribute__((format(printf, 3, 4)));

/** As error_set, with errno kept and its text appended: "open /x: No such file or directory". Does not allocate. */
bool error_set_errno(struct error *err, enum error_kind kind, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/** Puts "prefix: " before the sentence that is there, and returns false. */
bool error_prefix(struct error *err, const char *format, ...) __attribute__((format(printf, 2, 3)));

/** The wire code ("CAPABILITY_DENIED"); "INTERNAL" for a kind that is none. */
const char *error_code(enum error_kind kind) MUST_USE;

/** The kind of a wire code; ERROR_INTERNAL when unknown. */
enum error_kind error_kind_of_code(const char *code) MUST_USE;

/** 400..599; 200 for ERROR_NONE. */
int error_http_status(enum error_kind kind) MUST_USE;

/** The kind of a reply of which only the status is known: the first kind above with that status; ERROR_NONE for 2xx,
 *  ERROR_INVALID for another 4xx, else ERROR_INTERNAL. */
enum error_kind error_kind_of_http_status(int status) MUST_USE;

/** Whether the same request may succeed later. */
bool error_retryable(enum error_kind kind) MUST_USE;
