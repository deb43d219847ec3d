#include "negotiator/dialects/opensandbox/osb_errors.h"

#include "negotiator/dialects/opensandbox/opensandbox.h"
#include "negotiator/dialects/opensandbox/osb_codes.h"
#include "negotiator/dialects/waiting.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

bool osb_refusal_set(struct osb_refusal *refusal, const char *code, enum error_kind kind, const char *format, ...)
{
    char text[ERROR_MESSAGE_BYTES];
    va_list arguments;
    va_start(arguments, format);
    (void)vsnprintf(text, sizeof text, format, arguments); /* a longer sentence is cut */
    va_end(arguments);
    refusal->code = code;
    return error_set(&refusal->err, kind, "%s", text);
}

static const char UNKNOWN[] = "GENERAL::UNKNOWN_ERROR";

const char *osb_code(enum error_kind kind, bool of_snapshot)
{
    static const char *const CODES[ERROR_KINDS] = {[ERROR_INVALID] = OSB_INVALID,
                                                   [ERROR_NOT_FOUND] = "DOCKER::SANDBOX_NOT_FOUND",
                                                   [ERROR_GONE] = "DOCKER::SANDBOX_NOT_FOUND",
                                                   [ERROR_CONFLICT] = "SANDBOX::INVALID_STATE",
                                                   [ERROR_STARTING] = "SANDBOX::INVALID_STATE",
                                                   [ERROR_FORBIDDEN] = "SANDBOX::FORBIDDEN",
                                                   [ERROR_CAPABILITY_DENIED] = "SANDBOX::FORBIDDEN",
                                                   [ERROR_FROZEN] = "SANDBOX::FROZEN",
                                                   [ERROR_QUOTA] = "SANDBOX::QUOTA_EXCEEDED",
                                                   [ERROR_RATE_LIMITED] = "GENERAL::RATE_LIMITED",
                                                   [ERROR_NO_CAPACITY] = "SANDBOX::NO_CAPACITY",
                                                   [ERROR_NODE_UNREACHABLE] = "SANDBOX::NODE_UNREACHABLE",
                                                   [ERROR_METHOD] = "GENERAL::METHOD_NOT_ALLOWED",
                                                   [ERROR_TOO_LARGE] = "GENERAL::TOO_LARGE",
                                                   [ERROR_TIMEOUT] = "GENERAL::TIMEOUT",
                                                   [ERROR_BAD_GATEWAY] = "GENERAL::BAD_GATEWAY",
                                                   [ERROR_DISK_FULL] = "GENERAL::DISK_FULL"};
    if (of_snapshot && (kind == ERROR_NOT_FOUND || kind == ERROR_GONE))
        return OSB_NO_SNAPSHOT;
    if (of_snapshot && (kind == ERROR_CONFLICT || kind == ERROR_STARTING))
        return "SNAPSHOT::INVALID_STATE";
    return kind < ERROR_KINDS && CODES[kind] ? CODES[kind] : UNKNOWN;
}

static bool starts(const char *text, const char *prefix)
{
    return text && text_starts_with(text, prefix);
}

static bool is_about_snapshot(const struct http_request *request)
{
    const struct http_route *route = http_request_route(request);
    return route && starts(route->path, "/v1/snapshots");
}

/* What a kind means on some routes alone; NULL: what it means on all. */
static const char *code_of_route(const struct http_request *request, enum error_kind kind)
{
    static const struct {
        const char *end; /* of the route's path */
        enum error_kind kind;
        const char *code;
    } CODES[] = {{"/pause", ERROR_CONFLICT, OSB_NOT_RUNNING},
                 {"/pause", ERROR_STARTING, OSB_NOT_RUNNING},
                 {"/resume", ERROR_CONFLICT, OSB_NOT_PAUSED},
                 {"/resume", ERROR_STARTING, OSB_NOT_PAUSED},
                 {"/renew-expiration", ERROR_INVALID, OSB_INVALID_EXPIRATION},
                 {"/snapshots", ERROR_CONFLICT, "SNAPSHOT::INVALID_STATE"}};
    const struct http_route *route = http_request_route(request);
    for (size_t i = 0; route && i < sizeof CODES / sizeof *CODES; i++) {
        if (CODES[i].kind == kind && text_equal(strrchr(route->path, '/'), CODES[i].end))
            return CODES[i].code;
    }
    return NULL;
}

const char *osb_code_of(const struct http_request *request, enum error_kind kind)
{
    const char *code = code_of_route(request, kind);
    if (code)
        return code;
    if (kind == ERROR_UNAUTHENTICATED)
        return http_request_credential(request) ? "INVALID_API_KEY" : "MISSING_API_KEY";
    if (kind == ERROR_TOKEN_EXPIRED || kind == ERROR_TOKEN_REVOKED)
        return "INVALID_API_KEY";
    if (kind == ERROR_NOT_FOUND && http_request_route(request) == NULL)
        return "GENERAL::NOT_FOUND";
    return osb_code(kind, is_about_snapshot(request));
}

static json_t *body_of(const char *code, const struct error *err)
{
    size_t length = strnlen(err->message, sizeof err->message);
    return json_pack("{s:s, s:o}", "code", code, "message",
                     json_stringn(err->message, text_utf8_prefix(err->message, length)));
}

json_t *opensandbox_error(const struct http_request *request, const struct error *err)
{
    const struct http_route *route = http_request_route(request);
    const char *path = route ? route->path : http_request_path(request);
    if (path == NULL) /* a head that was too broken, or too long, to have one */
        return NULL;
    if (starts(path, "/v1/sandboxes/") && strstr(path, "/port/18080")) /* as text */
        return json_stringn(err->message, text_utf8_prefix(err->message, strnlen(err->message, sizeof err->message)));
    bool is_passed_on = strstr(path, "/proxy/{port}") != NULL;
    bool is_theirs = is_passed_on || starts(path, "/v1/") || (route && strcmp(path, "/health") == 0);
    return is_theirs ? body_of(osb_code_of(request, err->kind), err) : NULL;
}

/* As statuses go there: what has ended is not there, what is being made is in the wrong state. */
static struct error translated(const struct error *err)
{
    struct error as = *err;
    if (as.kind == ERROR_GONE)
        as.kind = ERROR_NOT_FOUND;
    else if (as.kind == ERROR_STARTING)
        as.kind = ERROR_CONFLICT;
    return as;
}

void osb_answer(struct http_request *request, const struct error *err)
{
    struct error as = translated(err);
    waiting_refuse(request, &as);
}

void osb_refuse_quietly(struct http_request *request, const struct osb_refusal *refusal)
{
    int status = refusal->status ? refusal->status : error_http_status(refusal->err.kind);
    if (refusal->code == NULL)
        osb_answer(request, &refusal->err);
    else
        http_reply_json(request, status, body_of(refusal->code, &refusal->err));
}

void osb_refuse(struct http_request *request, const struct osb_refusal *refusal)
{
    plane_record_refusal(request, &refusal->err);
    osb_refuse_quietly(request, refusal);
}
