/* share.c - the native dialect's shares: give another a way into a thread's sandbox, list those, end one (protocol.md,
 * 2). */
#include "negotiator/dialects/granted.h"
#include "negotiator/dialects/plane.h"
#include "negotiator/dialects/shown.h"
#include "negotiator/dialects/waiting.h"
#include "negotiator/dialects/wish.h"
#include "shared/base/clock.h"
#include "shared/base/text.h"

#include <string.h>

enum { BODY_BYTES = 16384 };

/* --- sharing --- */

static bool take_principal(struct share_wish *share, const json_t *value, struct error *err)
{
    const char *name = json_string_value(value);
    return value == NULL || (principal_is_name(name) && text_copy(share->principal, sizeof share->principal, name)) ||
           error_set(err, ERROR_INVALID, "principal must be 1 to %d of A-Za-z0-9._@:+-", PRINCIPAL_BYTES - 1);
}

static bool take_until(struct share_wish *share, const json_t *value, struct error *err)
{
    const char *text = json_string_value(value);
    return value == NULL || (text && clock_parse(text, &share->until_ms) && share->until_ms > 0) ||
           error_set(err, ERROR_INVALID, "until must be a time like \"2026-11-22T01:02:03Z\"");
}

/* What is a negotiation's is read as one's. */
static bool read_wish(struct negotiation *n, json_t *body, struct error *err)
{
    static const char *const FIELDS[] = {"principal", "scopes", "ttl", "until", "actor", "capability_url"};
    const char *name;
    json_t *value;
    json_object_foreach (body, name, value) {
        size_t i = 0;
        while (i < sizeof FIELDS / sizeof *FIELDS && strcmp(name, FIELDS[i]) != 0)
            i++;
        if (i == sizeof FIELDS / sizeof *FIELDS)
            return error_set(err, ERROR_INVALID, "unknown field \"%.64s\"", name);
    }
    if (!take_principal(&n->share, json_object_get(body, "principal"), err) ||
        !take_until(&n->share, json_object_get(body, "until"), err))
        return false;
    json_object_del(body, "principal");
    json_object_del(body, "until");
    return wish_read(&n->wanted, body, err);
}

static bool read_share(const struct http_request *request, struct negotiation *n, struct error *err)
{
    if (!plane_thread(request, n->thread_id, err) || !plane_caller(request, &n->caller, err))
        return false;
    json_t *body = http_request_json(request, err);
    if (body == NULL)
        return false;
    bool read = read_wish(n, body, err);
    json_decref(body);
    return read;
}

static void share(struct http_request *request)
{
    granted_ask(request, read_share, leasing_share);
}

/* --- looking --- */

static json_t *shown_share(const struct share *share)
{
    bool is_named = !text_starts_with(share->principal, "share:");
    return json_pack("{s:s, s:s?, s:s, s:o, s:o, s:s, s:o, s:o}", "id", share->id, "principal",
                     is_named ? share->principal : NULL, "actor", share->actor, "scopes", granted_scopes(share->scope),
                     "created_at", shown_time(share->created_ms), "jti", share->jti, "expires_at",
                     shown_time(share->expires_at * 1000), "until", shown_time(share->until * 1000));
}

static void print_shares(struct http_request *request, const struct question *q)
{
    json_t *list = json_array();
    for (size_t i = 0; i < q->share_count; i++)
        json_array_append_new(list, shown_share(&q->shares[i]));
    http_reply_json(request, 200, json_pack("{s:o}", "shares", list));
}

static void list_shares(struct http_request *request)
{
    struct error err = {0};
    AUTO(question) *q = question_new();
    q->verb = QUESTION_SHARES;
    if (plane_thread(request, q->thread_id, &err) && plane_caller(request, &q->caller, &err))
        waiting_ask(request, TAKE(q), print_shares);
    else
        http_reply_error(request, &err);
}

/* --- ending one --- */

static void end_share(struct http_request *request)
{
    struct error err = {0};
    AUTO(revoking) *r = revoking_new();
    const char *id = http_request_parameter(request, "share_id");
    r->verb = REVOKING_MAKE;
    r->kind = MARK_FAMILY;
    bool read = plane_thread(request, r->share_thread, &err) && plane_caller(request, &r->caller, &err) &&
                ((random_is_id(id, "tok") && text_copy(r->value, sizeof r->value, id)) ||
                 error_set(&err, ERROR_NOT_FOUND, "no such share; an id looks like tok_ and 20 of a-z0-9")) &&
                text_copy(r->reason, sizeof r->reason, "the share was ended");
    if (read)
        waiting_revoke(request, TAKE(r), revocations_print_one);
    else
        plane_refuse(request, &err);
}

struct plane_rows share_rows(void)
{
    static const struct http_route ROWS[] = {
        {"POST", "/threads/{thread_id}/sandbox/share", HTTP_BEARER | HTTP_API_KEY, "user", BODY_BYTES, share},
        {"GET", "/threads/{thread_id}/sandbox/shares", HTTP_BEARER | HTTP_API_KEY, "viewer", 0, list_shares},
        {"DELETE", "/threads/{thread_id}/sandbox/shares/{share_id}", HTTP_BEARER | HTTP_API_KEY, "user", 0, end_share},
    };
    return (struct plane_rows){ROWS, sizeof ROWS / sizeof *ROWS};
}
