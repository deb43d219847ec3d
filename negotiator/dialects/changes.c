/* changes.c - the native dialect's changes of a living sandbox: pause, resume, renew, PATCH (protocol.md, 2). */
#include "negotiator/dialects/shown.h"
#include "negotiator/dialects/visit.h"
#include "negotiator/dialects/wish.h"
#include "negotiator/leasing/changing.h"
#include "shared/base/clock.h"
#include "shared/base/text.h"

enum { CHANGE_BODY_BYTES = 65536, EMPTY_BODY_BYTES = 1024 };

DEFINE_VISIT(changing)

static void print(struct http_request *request, const struct changing *changing)
{
    http_reply_json(request, 200, json_pack("{s:o}", "sandbox", shown_sandbox(&changing->sandbox)));
}

/* Of a change that is one verb: what of it can be said. */
static bool read_verb(struct changing *changing, const json_t *body, struct error *err)
{
    const json_t *strict = json_object_get(body, "strict");
    if (json_object_size(body) > (strict ? 1U : 0U) || (strict && !json_is_boolean(strict)))
        return error_set(err, ERROR_INVALID, "the body must be {}, or {\"strict\": true or false}");
    changing->is_strict = json_is_true(strict);
    return true;
}

static bool read_renewal(struct changing *changing, const json_t *body, struct error *err)
{
    const char *at = json_string_value(json_object_get(body, "expires_at"));
    return (json_object_size(body) == 1 && at && clock_parse(at, &changing->expires_at)) ||
           error_set(err, ERROR_INVALID, "the body must be {\"expires_at\": \"2026-01-01T00:00:00Z\"}, a time");
}

static bool read_body(struct changing *changing, json_t *body, struct error *err)
{
    switch (changing->verb) {
    case CHANGING_UPDATE:
        if (changing->metadata_patch == NULL)
            return wish_read_change(&changing->wanted, body, err);
        json_decref(changing->metadata_patch);
        changing->metadata_patch = json_deep_copy(body);
        return true;
    case CHANGING_RENEW:
        return read_renewal(changing, body, err);
    case CHANGING_PAUSE:
    case CHANGING_RESUME:
        break;
    }
    return read_verb(changing, body, err);
}

static bool read_change(const struct http_request *request, struct changing *changing, struct error *err)
{
    const char *id = http_request_parameter(request, "sandbox_id");
    if (!plane_caller(request, &changing->caller, err))
        return false;
    if (!random_is_id(id, "sbx") || !text_copy(changing->sandbox_id, sizeof changing->sandbox_id, id))
        return error_set(err, ERROR_NOT_FOUND, "no such sandbox; an id looks like sbx_ and 20 of a-z0-9");
    json_t *body = http_request_json(request, err);
    if (body == NULL)
        return false;
    bool read = read_body(changing, body, err);
    json_decref(body);
    return read;
}

static void ask(struct http_request *request, struct changing *question)
{
    struct error err = {0};
    AUTO(changing) *changing = question;
    if (read_change(request, changing, &err)) {
        struct changing *asked = changing_visit(request, TAKE(changing), print);
        if (leasing_change(plane_of(request)->leasing, asked, &err))
            return; /* the rules have it */
        changing_visit_cancel(asked);
    }
    plane_refuse(request, &err);
}

static void change(struct http_request *request, enum changing_verb verb)
{
    struct changing *changing = changing_new();
    changing->verb = verb;
    ask(request, changing);
}

static void pause_sandbox(struct http_request *request)
{
    change(request, CHANGING_PAUSE);
}

static void resume_sandbox(struct http_request *request)
{
    change(request, CHANGING_RESUME);
}

static void update_sandbox(struct http_request *request)
{
    change(request, CHANGING_UPDATE);
}

static void renew_sandbox(struct http_request *request)
{
    change(request, CHANGING_RENEW);
}

static void patch_metadata(struct http_request *request)
{
    struct changing *changing = changing_new();
    changing->verb = CHANGING_UPDATE;
    changing->metadata_patch = json_object(); /* the body takes its place */
    ask(request, changing);
}

struct plane_rows changes_rows(void)
{
    static const struct http_route ROWS[] = {
        {"PATCH", "/sandboxes/{sandbox_id}", HTTP_BEARER | HTTP_API_KEY, "user", CHANGE_BODY_BYTES, update_sandbox},
        {"POST", "/sandboxes/{sandbox_id}/pause", HTTP_BEARER | HTTP_API_KEY, "user", EMPTY_BODY_BYTES, pause_sandbox},
        {"POST", "/sandboxes/{sandbox_id}/resume", HTTP_BEARER | HTTP_API_KEY, "user", EMPTY_BODY_BYTES,
         resume_sandbox},
        {"POST", "/sandboxes/{sandbox_id}/renew", HTTP_BEARER | HTTP_API_KEY, "user", EMPTY_BODY_BYTES, renew_sandbox},
        {"PATCH", "/sandboxes/{sandbox_id}/metadata", HTTP_BEARER | HTTP_API_KEY, "user", CHANGE_BODY_BYTES,
         patch_metadata},
    };
    return (struct plane_rows){ROWS, sizeof ROWS / sizeof *ROWS};
}
