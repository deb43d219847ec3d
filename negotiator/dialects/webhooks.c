/* webhooks.c - the native dialect's webhooks: where a principal's events are sent (specs/webhooks.md). */
#include "negotiator/dialects/errand.h"
#include "negotiator/dialects/shown.h"
#include "negotiator/dialects/waiting.h"
#include "negotiator/webhooks/courier.h"
#include "shared/base/memory.h"
#include "shared/base/text.h"

#include <stdlib.h>
#include <string.h>

enum { BODY_BYTES = 8192 };

struct inquiry {
    struct errand errand;
    struct webhook_question *question; /* owned; the rules' until they answer */
    char types[EVENT_TYPES_BYTES];
    bool is_list_of_attempts;
    struct webhook_note tested; /* TEST */
};

/* --- what is printed --- */

static json_t *shown_types(const char *types)
{
    json_t *list = json_array();
    for (const char *at = types; *at; at += strspn(at, ",")) {
        size_t length = strcspn(at, ",");
        json_array_append_new(list, json_stringn(at, length));
        at += length;
    }
    return list;
}

static json_t *shown_webhook(const struct webhook *webhook)
{
    json_t *json = json_pack("{s:s, s:s, s:s, s:o, s:b, s:b, s:o, s:I, s:I}", "id", webhook->id, "principal",
                             webhook->principal, "url", webhook->url, "types", shown_types(webhook->types), "all",
                             webhook->all, "enabled", webhook->enabled, "created_at", shown_time(webhook->created_at),
                             "cursor", (json_int_t)webhook->cursor, "attempts", (json_int_t)webhook->attempts);
    if (webhook->reason[0])
        json_object_set_new(json, "reason", json_string(webhook->reason));
    if (webhook->failing_since > 0)
        json_object_set_new(json, "failing_since", shown_time(webhook->failing_since));
    if (webhook->enabled && webhook->next_at > 0)
        json_object_set_new(json, "next_attempt_at", shown_time(webhook->next_at));
    return json;
}

static void print_with_secret(struct http_request *request, const struct webhook_question *q, int status)
{
    char secret[WEBHOOK_SECRET_BYTES];
    json_t *json = shown_webhook(&q->webhook);
    webhook_secret(plane_of(request)->leasing, q->webhook.id, q->webhook.secret, secret);
    json_object_set_new(json, "secret", json_string(secret));
    explicit_bzero(secret, sizeof secret);
    http_reply_header(request, "Cache-Control", "no-store");
    http_reply_json(request, status, json);
}

static void print_list(struct http_request *request, const struct webhook_question *q)
{
    json_t *list = json_array();
    for (size_t i = 0; i < q->count; i++)
        json_array_append_new(list, shown_webhook(&q->list[i]));
    http_reply_json(request, 200, json_pack("{s:o}", "webhooks", list));
}

static void print_test(struct http_request *request, const struct webhook_note *note)
{
    json_t *json = json_pack("{s:b, s:I}", "delivered", note->delivered, "took_ms", (json_int_t)note->took_ms);
    if (note->status > 0)
        json_object_set_new(json, "status", json_integer(note->status));
    if (note->error[0])
        json_object_set_new(json, "error", json_string(note->error));
    http_reply_json(request, 200, json);
}

static void print(struct http_request *request, struct errand *errand)
{
    const struct inquiry *inquiry = (struct inquiry *)errand;
    const struct webhook_question *q = inquiry->question;
    if (q->refusal.kind != ERROR_NONE)
        waiting_refuse(request, &q->refusal);
    else if (q->verb == WEBHOOK_MAKE || q->verb == WEBHOOK_ROTATE)
        print_with_secret(request, q, q->verb == WEBHOOK_MAKE ? 201 : 200);
    else if (q->verb == WEBHOOK_LIST)
        print_list(request, q);
    else if (q->verb == WEBHOOK_DROP)
        http_reply_empty(request, 204);
    else if (q->verb == WEBHOOK_TEST)
        print_test(request, &inquiry->tested);
    else if (inquiry->is_list_of_attempts)
        http_reply_json(request, 200, json_pack("{s:O}", "deliveries", q->webhook.last));
    else
        http_reply_json(request, 200, shown_webhook(&q->webhook));
}

/* --- its way --- */

static void free_inquiry(struct errand *errand)
{
    struct inquiry *inquiry = (struct inquiry *)errand;
    webhook_question_free(inquiry->question);
    free(inquiry);
}

static void tested(void *cookie, const struct webhook_note *note)
{
    struct inquiry *inquiry = cookie;
    inquiry->tested = *note;
    errand_return(&inquiry->errand);
}

static void answered(void *cookie, struct webhook_question *q)
{
    struct inquiry *inquiry = cookie;
    struct courier *courier = inquiry->errand.plane->courier;
    inquiry->question = q;
    bool is_done = q->refusal.kind == ERROR_NONE;
    if (is_done && q->verb == WEBHOOK_TEST) {
        if (courier_test(courier, &q->webhook, tested, inquiry))
            return;
        error_set(&q->refusal, ERROR_RATE_LIMITED, "too many tests of webhooks are under way");
    } else if (is_done && q->verb != WEBHOOK_LIST && q->verb != WEBHOOK_FIND) {
        courier_changed(courier, q->webhook.id);
    }
    errand_return(&inquiry->errand);
}

/* --- what is read --- */

static bool read_types(struct inquiry *inquiry, const json_t *value, struct error *err)
{
    size_t index, length = 0;
    json_t *word;
    bool good = json_is_array(value);
    json_array_foreach (value, index, word) {
        const char *text = json_string_value(word);
        size_t size = text ? strlen(text) : 0;
        good = good && size > 0 && strchr(text, ',') == NULL && length + size + 2 <= sizeof inquiry->types;
        if (!good)
            break;
        if (length > 0)
            inquiry->types[length++] = ',';
        memcpy(inquiry->types + length, text, size + 1);
        length += size;
    }
    if (!good)
        return error_set(err, ERROR_INVALID, "types must be a list of types like \"exec.*\", %d bytes in all at most",
                         EVENT_TYPES_BYTES - 1);
    inquiry->question->types = inquiry->types;
    return length == 0 || event_check_types(inquiry->types, err);
}

static bool read_bool(const char *name, const json_t *value, bool *to, bool *has, struct error *err)
{
    if (!json_is_boolean(value))
        return error_set(err, ERROR_INVALID, "%s must be true or false", name);
    *to = json_is_true(value);
    *has = true;
    return true;
}

static bool read_url(const struct http_request *request, struct webhook_question *q, const json_t *value,
                     struct error *err)
{
    bool is_admin = q->caller.principal.role == ROLE_ADMIN;
    if (!json_is_string(value))
        return error_set(err, ERROR_INVALID, "url must be a text");
    q->url = json_string_value(value);
    return courier_check_url(plane_of(request)->courier, q->url, is_admin, err);
}

static bool read_grace(struct webhook_question *q, const json_t *value, struct error *err)
{
    json_int_t grace = json_is_integer(value) ? json_integer_value(value) : -1;
    q->grace_s = grace;
    return (grace >= 0 && grace <= WEBHOOK_GRACE_MAX_S) ||
           error_set(err, ERROR_INVALID, "grace must be 0 to %d seconds", WEBHOOK_GRACE_MAX_S);
}

static bool read_field(const struct http_request *request, struct inquiry *inquiry, const char *name,
                       const json_t *value, struct error *err)
{
    struct webhook_question *q = inquiry->question;
    bool is_rotation = q->verb == WEBHOOK_ROTATE;
    if (json_is_null(value))
        return true;
    if (is_rotation && strcmp(name, "grace") == 0)
        return read_grace(q, value, err);
    if (!is_rotation && strcmp(name, "url") == 0)
        return read_url(request, q, value, err);
    if (!is_rotation && strcmp(name, "types") == 0)
        return read_types(inquiry, value, err);
    if (!is_rotation && strcmp(name, "all") == 0)
        return read_bool(name, value, &q->all, &q->has_all, err);
    if (q->verb == WEBHOOK_CHANGE && strcmp(name, "enabled") == 0)
        return read_bool(name, value, &q->enabled, &q->has_enabled, err);
    return error_set(err, ERROR_INVALID, "unknown field %.64s; allowed: %s", name,
                     is_rotation                 ? "grace"
                     : q->verb == WEBHOOK_CHANGE ? "url, types, all, enabled"
                                                 : "url, types, all");
}

static bool read_body(const struct http_request *request, struct inquiry *inquiry, struct error *err)
{
    struct webhook_question *q = inquiry->question;
    const char *name;
    json_t *value;
    q->body = http_request_json(request, err);
    if (q->body == NULL)
        return false;
    q->grace_s = WEBHOOK_GRACE_S;
    json_object_foreach (q->body, name, value) {
        if (!read_field(request, inquiry, name, value, err))
            return false;
    }
    return q->verb != WEBHOOK_MAKE || q->url || error_set(err, ERROR_INVALID, "url is missing");
}

static bool read_question(const struct http_request *request, struct inquiry *inquiry, struct error *err)
{
    struct webhook_question *q = inquiry->question;
    const char *id = http_request_parameter(request, "webhook_id"), *all = http_request_query(request, "all");
    bool has_body = q->verb == WEBHOOK_MAKE || q->verb == WEBHOOK_CHANGE || q->verb == WEBHOOK_ROTATE;
    if (!plane_caller(request, &q->caller, err))
        return false;
    if (id && (!random_is_id(id, "whk") || !text_copy(q->id, sizeof q->id, id)))
        return error_set(err, ERROR_NOT_FOUND, "no such webhook; an id looks like whk_ and 20 of a-z0-9");
    if (all && strcmp(all, "1") != 0)
        return error_set(err, ERROR_INVALID, "all must be 1");
    if (q->verb == WEBHOOK_LIST)
        q->all = all != NULL;
    return !has_body || read_body(request, inquiry, err);
}

static void ask(struct http_request *request, enum webhook_verb verb, bool is_list_of_attempts)
{
    struct error err = {0};
    struct inquiry *inquiry = memory_new(sizeof *inquiry);
    errand_begin(&inquiry->errand, request);
    inquiry->errand.print = print;
    inquiry->errand.free = free_inquiry;
    inquiry->is_list_of_attempts = is_list_of_attempts;
    struct webhook_question *q = inquiry->question = webhook_question_new();
    q->verb = verb;
    q->answered = answered;
    q->cookie = inquiry;
    if (read_question(request, inquiry, &err)) {
        leasing_ask_webhooks(plane_of(request)->leasing, q);
        return;
    }
    free_inquiry(&inquiry->errand);
    if (verb == WEBHOOK_LIST || verb == WEBHOOK_FIND)
        http_reply_error(request, &err);
    else
        plane_refuse(request, &err);
}

static void make(struct http_request *request)
{
    ask(request, WEBHOOK_MAKE, false);
}

static void list(struct http_request *request)
{
    ask(request, WEBHOOK_LIST, false);
}

static void find(struct http_request *request)
{
    ask(request, WEBHOOK_FIND, false);
}

static void list_attempts(struct http_request *request)
{
    ask(request, WEBHOOK_FIND, true);
}

static void change(struct http_request *request)
{
    ask(request, WEBHOOK_CHANGE, false);
}

static void rotate(struct http_request *request)
{
    ask(request, WEBHOOK_ROTATE, false);
}

static void test(struct http_request *request)
{
    ask(request, WEBHOOK_TEST, false);
}

static void drop(struct http_request *request)
{
    ask(request, WEBHOOK_DROP, false);
}

struct plane_rows webhooks_rows(void)
{
    static const struct http_route ROWS[] = {
        {"POST", "/webhooks", HTTP_BEARER | HTTP_API_KEY, "user", BODY_BYTES, make},
        {"GET", "/webhooks", HTTP_BEARER | HTTP_API_KEY, "viewer", 0, list},
        {"GET", "/webhooks/{webhook_id}", HTTP_BEARER | HTTP_API_KEY, "viewer", 0, find},
        {"PATCH", "/webhooks/{webhook_id}", HTTP_BEARER | HTTP_API_KEY, "user", BODY_BYTES, change},
        {"DELETE", "/webhooks/{webhook_id}", HTTP_BEARER | HTTP_API_KEY, "user", 0, drop},
        {"POST", "/webhooks/{webhook_id}/rotate", HTTP_BEARER | HTTP_API_KEY, "user", BODY_BYTES, rotate},
        {"POST", "/webhooks/{webhook_id}/test", HTTP_BEARER | HTTP_API_KEY, "user", 0, test},
        {"GET", "/webhooks/{webhook_id}/deliveries", HTTP_BEARER | HTTP_API_KEY, "viewer", 0, list_attempts},
    };
    return (struct plane_rows){ROWS, sizeof ROWS / sizeof *ROWS};
}
