/* error_test.c - kinds, codes and statuses; sentences that do not fit; an error between clone and exec. */
#include "shared/base/error.h"
#include "tests/unit/check.h"

#include "shared/base/text.h"

#include <errno.h>
#include <malloc.h>

/* Golden: protocol.md, 6. */
static const struct {
    enum error_kind kind;
    const char *code;
    int status;
    bool retryable;
} GOLDEN[] = {
    {ERROR_INVALID, "INVALID_REQUEST", 400, false},
    {ERROR_UNAUTHENTICATED, "UNAUTHENTICATED", 401, false},
    {ERROR_TOKEN_EXPIRED, "TOKEN_EXPIRED", 401, false},
    {ERROR_TOKEN_REVOKED, "TOKEN_REVOKED", 401, false},
    {ERROR_FORBIDDEN, "FORBIDDEN", 403, false},
    {ERROR_CAPABILITY_DENIED, "CAPABILITY_DENIED", 403, false},
    {ERROR_NOT_FOUND, "NOT_FOUND", 404, false},
    {ERROR_METHOD, "METHOD_NOT_ALLOWED", 405, false},
    {ERROR_CONFLICT, "CONFLICT", 409, false},
    {ERROR_TOKEN_REUSED, "TOKEN_REUSED", 409, false},
    {ERROR_GONE, "GONE", 410, false},
    {ERROR_PRECONDITION, "PRECONDITION_FAILED", 412, false},
    {ERROR_UPGRADE, "UPGRADE_REQUIRED", 426, false},
    {ERROR_TOO_LARGE, "TOO_LARGE", 413, false},
    {ERROR_RANGE, "RANGE_NOT_SATISFIABLE", 416, false},
    {ERROR_STARTING, "STARTING", 423, true},
    {ERROR_RATE_LIMITED, "RATE_LIMITED", 429, true},
    {ERROR_QUOTA, "QUOTA_EXCEEDED", 429, false},
    {ERROR_INTERNAL, "INTERNAL", 500, false},
    {ERROR_BAD_GATEWAY, "BAD_GATEWAY", 502, true},
    {ERROR_NO_CAPACITY, "NO_CAPACITY", 503, true},
    {ERROR_NODE_UNREACHABLE, "NODE_UNREACHABLE", 503, true},
    {ERROR_TIMEOUT, "TIMEOUT", 504, true},
    {ERROR_DISK_FULL, "DISK_FULL", 507, false},
    {ERROR_FROZEN, "FROZEN", 403, false},
};

static void test_table(void)
{
    size_t count = sizeof GOLDEN / sizeof GOLDEN[0];
    CHECK(count == ERROR_KINDS - 1);
    for (size_t i = 0; i < count; i++) {
        CHECK_TEXT(error_code(GOLDEN[i].kind), GOLDEN[i].code);
        CHECK(error_kind_of_code(GOLDEN[i].code) == GOLDEN[i].kind);
        CHECK(error_http_status(GOLDEN[i].kind) == GOLDEN[i].status);
        CHECK(error_retryable(GOLDEN[i].kind) == GOLDEN[i].retryable);
    }
    CHECK(error_http_status(ERROR_NONE) == 200);
    CHECK_TEXT(error_code(ERROR_KINDS), "INTERNAL");
    CHECK(error_http_status((enum error_kind)4711) == 500);
    CHECK(error_kind_of_code("NO_SUCH") == ERROR_INTERNAL);
    CHECK(error_kind_of_code("") == ERROR_INTERNAL);
    CHECK(error_kind_of_code(NULL) == ERROR_INTERNAL);
    CHECK(error_kind_of_http_status(401) == ERROR_UNAUTHENTICATED);
    CHECK(error_kind_of_http_status(429) == ERROR_RATE_LIMITED);
    CHECK(error_kind_of_http_status(418) == ERROR_INVALID);
    CHECK(error_kind_of_http_status(302) == ERROR_INTERNAL);
    CHECK(error_kind_of_http_status(599) == ERROR_INTERNAL);
    CHECK(error_kind_of_http_status(204) == ERROR_NONE);
}

static void test_sentences(void)
{
    struct error err = {0};
    CHECK(!error_set(&err, ERROR_NOT_FOUND, "no lease %s", "lse_1"));
    CHECK(err.kind == ERROR_NOT_FOUND && err.system_errno == 0);
    CHECK_TEXT(err.message, "no lease lse_1");
    CHECK(!error_prefix(&err, "thread %d", 7));
    CHECK_TEXT(err.message, "thread 7: no lease lse_1");
    CHECK(err.kind == ERROR_NOT_FOUND);
    CHECK(!error_set(&err, ERROR_GONE, "again: %s", err.message)); /* its own sentence as an argument */
    CHECK_TEXT(err.message, "again: thread 7: no lease lse_1");

    errno = ENOENT;
    CHECK(!error_set_errno(&err, ERROR_INTERNAL, "open %s", "/x"));
    CHECK_TEXT(err.message, "open /x: No such file or directory");
    CHECK(err.system_errno == ENOENT && errno == ENOENT);
    CHECK(!error_prefix(&err, "boot"));
    CHECK(err.system_errno == ENOENT);
    errno = 4095;
    CHECK(!error_set_errno(&err, ERROR_INTERNAL, "odd"));
    CHECK_TEXT(err.message, "odd: error 4095");

    CHECK(!error_set(NULL, ERROR_GONE, "nobody %s", "listens"));
    CHECK(!error_set_errno(NULL, ERROR_GONE, "nobody"));
    CHECK(!error_prefix(NULL, "nobody"));
}

static void test_cut(void)
{
    char longest[2 * ERROR_MESSAGE_BYTES];
    memset(longest, 'x', sizeof longest - 1);
    longest[sizeof longest - 1] = '\0';
    struct error err = {0};
    error_set(&err, ERROR_INVALID, "%s", longest);
    CHECK(strlen(err.message) == ERROR_MESSAGE_BYTES - 1);
    errno = EIO;
    error_set_errno(&err, ERROR_INVALID, "%s", longest);
    CHECK(strlen(err.message) == ERROR_MESSAGE_BYTES - 1 && err.system_errno == EIO);
    error_prefix(&err, "%s", longest);
    CHECK(strlen(err.message) == ERROR_MESSAGE_BYTES - 1);
    /* A cut sentence stays UTF-8, wherever the cut falls in a sequence of 2, 3 or 4 bytes. */
    static const char *const LETTERS[] = {"\xC3\xA4", "\xE2\x82\xAC", "\xF0\x9F\x98\x80"};
    for (size_t letter = 0; letter < 3; letter++) {
        for (int shift = 0; shift < 8; shift++) {
            char text[2 * ERROR_MESSAGE_BYTES] = "";
            size_t size = strlen(LETTERS[letter]);
            for (size_t at = 0; at + size < sizeof text; at += size)
                memcpy(text + at, LETTERS[letter], size);
            error_set(&err, ERROR_INVALID, "%.*s%s", shift, "12345678", text);
            size_t length = strlen(err.message);
            CHECK(text_utf8_prefix(err.message, length) == length);
            CHECK(length > ERROR_MESSAGE_BYTES - 5);
        }
    }
}

/* Nothing stale of a longer sentence goes through a pipe, and between clone and exec malloc must not be called. */
static void test_whole_struct(void)
{
    struct error err = {0};
    error_set(&err, ERROR_INVALID, "a sentence that held something long before");
    size_t before = mallinfo2().uordblks;
    errno = EPERM;
    error_set_errno(&err, ERROR_INTERNAL, "%s", "no");
    error_prefix(&err, "mount");
    CHECK(mallinfo2().uordblks == before);
    size_t length = strlen(err.message);
    for (size_t i = length; i < sizeof err.message; i++)
        CHECK(err.message[i] == '\0');
}

int main(void)
{
    test_table();
    test_sentences();
    test_cut();
    test_whole_struct();
    return check_done();
}
