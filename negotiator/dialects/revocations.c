/* revocations.c - the native dialect's revocations: make one, look at one, list them (protocol.md, 4). */
#include "negotiator/dialects/plane.h"
#include "negotiator/dialects/shown.h"
#include "negotiator/dialects/waiting.h"
#include "shared/base/clock.h"
#include "shared/base/memory.h"
#include "shared/base/text.h"

#include <string.h>

enum { BODY_BYTES = 16384 };

/* --- the answer --- */

static json_t *shown_selector(const struct mark *mark)
{
    const char *name = mark_kind_name(mark->kind);
    json_t *value = mark->kind == MARK_ALL ? json_true() : json_string(mark->value);
    return json_pack("{s:o}", name, value);
}

static json_t *shown_missing(const struct revocation *revocation)
{
    json_t *list = json_array();
    for (size_t i = 0; i < revocation->missing_count && i < REVOCATION_NODES_MAX; i++)
        json_array_append_new(list, json_string(revocation->missing[i]));
    return list;
}

static json_t *shown_revocation(const struct revocation *revocation)
{
    const struct mark *mark = &revocation->mark;
    bool any_time = mark->before == MARK_ANY_TIME;
    return json_pack("{s:s, s:I, s:o, s:s?, s:o, s:s, s:s?, s:o, s:s, s:o, s:I, s:o}", "id", revocation->id, "n",
                     (json_int_t)mark->number, "selector", shown_selector(mark), "principal",
                     mark->principal[0] ? mark->principal : NULL, "before",
                     any_time ? json_null() : shown_time(mark->before * 1000), "reason", revocation->reason, "by",
                     revocation->by[0] ? revocation->by : NULL, "created_at", shown_time(revocation->created_ms),
                     "state", revocation->in_force ? "in_force" : "pending", "missing", shown_missing(revocation),
                     "missing_count", (json_int_t)revocation->missing_count, "usable_until",
                     revocation->usable_until ? shown_time(revocation->usable_until * 1000) : json_null());
}

void revocations_print_one(struct http_request *request, const struct revoking *r)
{
    int status = r->verb == REVOKING_MAKE && !r->list->in_force ? 202 : 200;
    http_reply_json(request, status, json_pack("{s:o}", "revocation", shown_revocation(r->list)));
}

static void print_list(struct http_request *request, const struct revoking *r)
{
    json_t *list = json_array();
    for (size_t i = 0; i < r->count; i++)
        json_array_append_new(list, shown_revocation(&r->list[i]));
    http_reply_json(request, 200, json_pack("{s:o, s:s?}", "revocations", list, "next", r->next[0] ? r->next : NULL));
}

/* --- making one --- */

/* False when the value is not what the selector wants. */
static bool take_selector(struct revoking *r, const char *name, const json_t *value)
{
    if (strcmp(name, "token") == 0) {
        if (!json_is_string(value) || json_string_length(value) >= CAPABILITY_TEXT_BYTES)
            return false;
        r->token = memory_string(json_string_value(value));
        return true;
    }
    if (r->kind == MARK_ALL)
        return json_is_true(value);
    return json_is_string(value) && json_string_length(value) > 0 &&
           text_copy(r->value, sizeof r->value, json_string_value(value));
}

static bool read_before(struct revoking *r, const json_t *value, struct error *err)
{
    return (json_is_string(value) && clock_parse(json_string_value(value), &r->before_ms) && r->before_ms > 0) ||
           error_set(err, ERROR_INVALID, "before must be a time like \"2026-11-22T01:02:03Z\"");
}

static bool read_reason(struct revoking *r, const json_t *value, struct error *err)
{
    return (json_string_length(value) > 0 && text_copy(r->reason, sizeof r->reason, json_string_value(value))) ||
           error_set(err, ERROR_INVALID, "reason must be a text of 1 to %d bytes", REVOCATION_REASON_BYTES - 1);
}

static bool read_field(struct revoking *r, const char *name, const json_t *value, bool *selected, struct error *err)
{
    if (strcmp(name, "before") == 0)
        return json_is_null(value) || read_before(r, value, err);
    if (strcmp(name, "reason") == 0)
        return read_reason(r, value, err);
    if (strcmp(name, "token") != 0 && !mark_kind_parse(name, &r->kind))
        return error_set(err, ERROR_INVALID, "unknown field \"%.64s\"", name);
    if (*selected)
        return error_set(err, ERROR_INVALID, "only one selector may be given");
    *selected = true;
    return take_selector(r, name, value) || error_set(err, ERROR_INVALID, "%s is not what this selector takes", name);
}

static bool read_body(struct revoking *r, json_t *body, struct error *err)
{
    const char *name;
    json_t *value;
    bool selected = false;
    json_object_foreach (body, name, value) {
        if (!read_field(r, name, value, &selected, err))
            return false;
    }
    if (!selected)
        return error_set(err, ERROR_INVALID,
                         "a selector must be given: jti, token, link, family, sandbox, thread, "
                         "principal, scope, lease, or all: true");
    if (r->token && r->before_ms)
        return error_set(err, ERROR_INVALID, "before says nothing about a token");
    return r->reason[0] != '\0' || read_reason(r, NULL, err);
}

/* Whoever holds a token may revoke it: only then is no API key needed. */
static bool read_caller(const struct http_request *request, struct revoking *r, struct error *err)
{
    if (http_request_identity(request) || r->token == NULL)
        return plane_caller(request, &r->caller, err);
    return plane_holder(request, &r->caller, err);
}

static bool read_revocation(const struct http_request *request, struct revoking *r, struct error *err)
{
    json_t *body = http_request_json(request, err);
    if (body == NULL)
        return false;
    bool read = read_body(r, body, err) && read_caller(request, r, err);
    json_decref(body);
    if (read && r->token && http_request_query(request, "principal"))
        return error_set(err, ERROR_INVALID, "?principal= says nothing about a token");
    return read;
}

static void make_revocation(struct http_request *request)
{
    struct error err = {0};
    AUTO(revoking) *r = revoking_new();
    r->verb = REVOKING_MAKE;
    if (read_revocation(request, r, &err)) {
        waiting_revoke(request, TAKE(r), revocations_print_one);
        return;
    }
    if (err.kind == ERROR_UNAUTHENTICATED)
        leasing_stranger(plane_of(request)->leasing, http_request_remote(request));
    plane_refuse(request, &err);
}

/* --- looking --- */

static void find_revocation(struct http_request *request)
{
    struct error err = {0};
    AUTO(revoking) *r = revoking_new();
    r->verb = REVOKING_FIND;
    const char *id = http_request_parameter(request, "revocation_id");
    if (!plane_caller(request, &r->caller, &err)) {
        http_reply_error(request, &err);
    } else if (!random_is_id(id, "rev") || !text_copy(r->id, sizeof r->id, id)) {
        error_set(&err, ERROR_NOT_FOUND, "no such revocation; an id looks like rev_ and 20 of a-z0-9");
        http_reply_error(request, &err);
    } else {
        waiting_revoke(request, TAKE(r), revocations_print_one);
    }
}

static bool read_list(const struct http_request *request, struct revoking *r, struct error *err)
{
    const char *limit = http_request_query(request, "limit"), *cursor = http_request_query(request, "cursor");
    const char *all = http_request_query(request, "all");
    uint64_t number = REVOCATION_LIST_MAX;
    if (!plane_caller(request, &r->caller, err))
        return false;
    if (limit && (!text_parse_u64(limit, strlen(limit), REVOCATION_LIST_MAX, &number) || number == 0))
        return error_set(err, ERROR_INVALID, "limit must be 1 to %d", REVOCATION_LIST_MAX);
    if (cursor && (!random_is_id(cursor, "rev") || !text_copy(r->id, sizeof r->id, cursor)))
        return error_set(err, ERROR_INVALID, "cursor must be the next of an earlier answer");
    if (all && strcmp(all, "1") != 0)
        return error_set(err, ERROR_INVALID, "all must be 1");
    r->limit = (size_t)number;
    r->all = all != NULL;
    return true;
}

static void list_revocations(struct http_request *request)
{
    struct error err = {0};
    AUTO(revoking) *r = revoking_new();
    r->verb = REVOKING_LIST;
    if (read_list(request, r, &err))
        waiting_revoke(request, TAKE(r), print_list);
    else
        http_reply_error(request, &err);
}

struct plane_rows revocations_rows(void)
{
    static const struct http_route ROWS[] = {
        {"POST", "/revocations", HTTP_BEARER | HTTP_API_KEY, PLANE_HOLDER, BODY_BYTES, make_revocation},
        {"GET", "/revocations", HTTP_BEARER | HTTP_API_KEY, "viewer", 0, list_revocations},
        {"GET", "/revocations/{revocation_id}", HTTP_BEARER | HTTP_API_KEY, "viewer", 0, find_revocation},
    };
    return (struct plane_rows){ROWS, sizeof ROWS / sizeof *ROWS};
}
