/* osb_changes.c - what is done to a living sandbox: metadata, pause, resume, renew (L5 to L8). */
#include "negotiator/dialects/opensandbox/opensandbox.h"
#include "negotiator/dialects/opensandbox/osb_ask.h"
#include "negotiator/dialects/opensandbox/osb_codes.h"
#include "negotiator/dialects/opensandbox/osb_shown.h"
#include "negotiator/dialects/opensandbox/osb_time.h"
#include "negotiator/dialects/opensandbox/osb_wish.h"
#include "negotiator/dialects/shown.h"
#include "negotiator/leasing/changing.h"

enum { PATCH_BODY_BYTES = 65536, RENEW_BODY_BYTES = 4096, EMPTY_BODY_BYTES = 1024 };

DEFINE_VISIT_BY(changing, osb_answer)

static void print_sandbox(struct http_request *request, const struct changing *changing)
{
    http_reply_json(request, 200, osb_shown_sandbox(&changing->sandbox));
}

static void print_accepted(struct http_request *request, const struct changing *changing UNUSED)
{
    http_reply_empty(request, 202);
}

static void print_end(struct http_request *request, const struct changing *changing)
{
    http_reply_json(request, 200, json_pack("{s:o}", "expiresAt", shown_time(changing->sandbox.deadline)));
}

/* --- what is asked for --- */

static bool read_patch(const struct http_request *request, struct changing *changing, struct osb_refusal *refusal)
{
    changing->metadata_patch = http_request_json(request, &refusal->err);
    return changing->metadata_patch && osb_metadata_check(changing->metadata_patch, true, refusal);
}

static bool read_end(const struct http_request *request, struct changing *changing, struct osb_refusal *refusal)
{
    json_t *body = http_request_json(request, &refusal->err);
    const char *end = json_string_value(json_object_get(body, "expiresAt"));
    bool good = end && osb_time_parse(end, &changing->expires_at);
    if (body && !good)
        osb_refusal_set(refusal, OSB_INVALID_EXPIRATION, ERROR_INVALID,
                        "expiresAt must be a time like 2026-01-31T12:00:00Z");
    json_decref(body);
    return good;
}

static bool read_nothing(const struct http_request *request UNUSED, struct changing *changing,
                         struct osb_refusal *refusal UNUSED)
{
    changing->is_strict = true;
    return true;
}

static void change(struct http_request *request, enum changing_verb verb,
                   bool (*read)(const struct http_request *request, struct changing *changing,
                                struct osb_refusal *refusal),
                   void (*print)(struct http_request *request, const struct changing *changing))
{
    struct osb_refusal refusal = {.code = NULL};
    AUTO(changing) *changing = changing_new();
    changing->verb = verb;
    if (plane_caller(request, &changing->caller, &refusal.err) &&
        osb_sandbox_id(request, changing->sandbox_id, &refusal.err) && read(request, changing, &refusal)) {
        struct changing *asked = changing_visit(request, TAKE(changing), print);
        if (leasing_change(plane_of(request)->leasing, asked, &refusal.err))
            return; /* the rules have it */
        changing_visit_cancel(asked);
        refusal.code = osb_code_of(request, refusal.err.kind);
    }
    osb_refuse(request, &refusal);
}

static void patch_metadata(struct http_request *request)
{
    change(request, CHANGING_UPDATE, read_patch, print_sandbox);
}

static void pause_sandbox(struct http_request *request)
{
    change(request, CHANGING_PAUSE, read_nothing, print_accepted);
}

static void resume_sandbox(struct http_request *request)
{
    change(request, CHANGING_RESUME, read_nothing, print_accepted);
}

static void renew(struct http_request *request)
{
    change(request, CHANGING_RENEW, read_end, print_end);
}

struct plane_rows osb_changes_rows(void)
{
    static const struct http_route ROWS[] = {
        {"PATCH", "/v1/sandboxes/{sandbox_id}/metadata", OSB_KEY, "user", PATCH_BODY_BYTES, patch_metadata},
        {"POST", "/v1/sandboxes/{sandbox_id}/pause", OSB_KEY, "user", EMPTY_BODY_BYTES, pause_sandbox},
        {"POST", "/v1/sandboxes/{sandbox_id}/resume", OSB_KEY, "user", EMPTY_BODY_BYTES, resume_sandbox},
        {"POST", "/v1/sandboxes/{sandbox_id}/renew-expiration", OSB_KEY, "user", RENEW_BODY_BYTES, renew},
    };
    return (struct plane_rows){ROWS, sizeof ROWS / sizeof *ROWS};
}
