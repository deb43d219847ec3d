#include "shared/base/error.h"

#include <errno.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

struct kind_row {
    const char *code;
    int http_status;
    bool retryable;
};

static const struct kind_row KINDS[ERROR_KINDS] = {
    [ERROR_NONE] = {"INTERNAL", 200, false}, /* an error that says "none" on the wire is our mistake */
    [ERROR_INVALID] = {"INVALID_REQUEST", 400, false},
    [ERROR_UNAUTHENTICATED] = {"UNAUTHENTICATED", 401, false},
    [ERROR_TOKEN_EXPIRED] = {"TOKEN_EXPIRED", 401, false},
    [ERROR_TOKEN_REVOKED] = {"TOKEN_REVOKED", 401, false},
    [ERROR_FORBIDDEN] = {"FORBIDDEN", 403, false},
    [ERROR_CAPABILITY_DENIED] = {"CAPABILITY_DENIED", 403, false},
    [ERROR_NOT_FOUND] = {"NOT_FOUND", 404, false},
    [ERROR_METHOD] = {"METHOD_NOT_ALLOWED", 405, false},
    [ERROR_CONFLICT] = {"CONFLICT", 409, false},
    [ERROR_TOKEN_REUSED] = {"TOKEN_REUSED", 409, false},
    [ERROR_GONE] = {"GONE", 410, false},
    [ERROR_PRECONDITION] = {"PRECONDITION_FAILED", 412, false},
    [ERROR_UPGRADE] = {"UPGRADE_REQUIRED", 426, false},
    [ERROR_TOO_LARGE] = {"TOO_LARGE", 413, false},
    [ERROR_RANGE] = {"RANGE_NOT_SATISFIABLE", 416, false},
    [ERROR_STARTING] = {"STARTING", 423, true},
    [ERROR_RATE_LIMITED] = {"RATE_LIMITED", 429, true},
    [ERROR_QUOTA] = {"QUOTA_EXCEEDED", 429, false},
    [ERROR_INTERNAL] = {"INTERNAL", 500, false},
    [ERROR_BAD_GATEWAY] = {"BAD_GATEWAY", 502, true},
    [ERROR_NO_CAPACITY] = {"NO_CAPACITY", 503, true},
    [ERROR_NODE_UNREACHABLE] = {"NODE_UNREACHABLE", 503, true},
    [ERROR_TIMEOUT] = {"TIMEOUT", 504, true},
    [ERROR_DISK_FULL] = {"DISK_FULL", 507, false},
    [ERROR_FROZEN] = {"FROZEN", 403, false},
};

/* What vsnprintf or snprintf wrote: `length` is what it wanted. A cut must not halve a UTF-8 sequence, for such a
 * sentence could not be put into JSON. */
static size_t trim_cut(char *text, size_t size, int length)
{
    if (length < 0) {
        text[0] = '\0';
        return 0;
    }
    if ((size_t)length < size)
        return (size_t)length;
    size_t end = size - 1;
    size_t start = end;
    while (start > 0 && ((uint8_t)text[start - 1] & 0xC0) == 0x80)
        start--;
    if (start > 0 && (uint8_t)text[start - 1] >= 0xC0) {
        uint8_t lead = (uint8_t)text[start - 1];
        size_t wanted = lead >= 0xF0 ? 4 : lead >= 0xE0 ? 3 : 2;
        end = end - (start - 1) < wanted ? start - 1 : end;
    }
    text[end] = '\0';
    return end;
}

/* The arguments may point into err->message: the sentence is composed beside it. */
static void set(struct error *err, enum error_kind kind, int system_errno, const char *message)
{
    size_t length = strlen(message);
    err->kind = kind;
    err->system_errno = system_errno;
    memset(err->message, 0, sizeof err->message); /* no stale bytes cross a pipe */
    memcpy(err->message, message, length);
}

bool error_set(struct error *err, enum error_kind kind, const char *format, ...)
{
    if (err == NULL)
        return false;
    int saved_errno = errno;
    char message[ERROR_MESSAGE_BYTES];
    va_list arguments;
    va_start(arguments, format);
    int length = vsnprintf(message, sizeof message, format, arguments);
    va_end(arguments);
    trim_cut(message, sizeof message, length);
    set(err, kind, 0, message);
    errno = saved_errno;
    return false;
}

bool error_set_errno(struct error *err, enum error_kind kind, const char *format, ...)
{
    if (err == NULL)
        return false;
    int saved_errno = errno;
    char message[ERROR_MESSAGE_BYTES];
    va_list arguments;
    va_start(arguments, format);
    int length = vsnprintf(message, sizeof message, format, arguments);
    va_end(arguments);
    size_t used = trim_cut(message, sizeof message, length);
    const char *why = strerrordesc_np(saved_errno); /* strerror may allocate and translate */
    size_t left = sizeof message - used;
    length =
        why ? snprintf(message + used, left, ": %s", why) : snprintf(message + used, left, ": error %d", saved_errno);
    trim_cut(message + used, left, length);
    set(err, kind, saved_errno, message);
    errno = saved_errno;
    return false;
}

bool error_prefix(struct error *err, const char *format, ...)
{
    if (err == NULL)
        return false;
    int saved_errno = errno;
    char message[ERROR_MESSAGE_BYTES];
    va_list arguments;
    va_start(arguments, format);
    int length = vsnprintf(message, sizeof message, format, arguments);
    va_end(arguments);
    size_t used = trim_cut(message, sizeof message, length);
    size_t left = sizeof message - used;
    trim_cut(message + used, left, snprintf(message + used, left, ": %.*s", ERROR_MESSAGE_BYTES - 1, err->message));
    set(err, err->kind, err->system_errno, message);
    errno = saved_errno;
    return false;
}

static const struct kind_row *row_of(enum error_kind kind)
{
    return (unsigned)kind < ERROR_KINDS ? &KINDS[kind] : &KINDS[ERROR_INTERNAL];
}

const char *error_code(enum error_kind kind)
{
    return row_of(kind)->code;
}

enum error_kind error_kind_of_code(const char *code)
{
    for (int kind = ERROR_NONE + 1; code && kind < ERROR_KINDS; kind++) {
        if (strcmp(KINDS[kind].code, code) == 0)
            return (enum error_kind)kind;
    }
    return ERROR_INTERNAL;
}

int error_http_status(enum error_kind kind)
{
    return row_of(kind)->http_status;
}

enum error_kind error_kind_of_http_status(int status)
{
    for (int kind = ERROR_NONE; kind < ERROR_KINDS; kind++) {
        if (KINDS[kind].http_status == status)
            return (enum error_kind)kind;
    }
    if (status > 200 && status < 300)
        return ERROR_NONE;
    return status >= 400 && status < 500 ? ERROR_INVALID : ERROR_INTERNAL;
}

bool error_retryable(enum error_kind kind)
{
    return row_of(kind)->retryable;
}
