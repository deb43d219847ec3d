/* keys.c - the native dialect's API keys: make, list, look at, change, rotate, delete (protocol.md, 1). A key's text is
 * in the answer that makes it, and in no other. */
#include "negotiator/dialects/shown.h"
#include "negotiator/dialects/visit.h"
#include "negotiator/leasing/keys/keying.h"
#include "shared/base/clock.h"
#include "shared/base/memory.h"
#include "shared/base/text.h"

#include <string.h>

enum { BODY_BYTES = 8192 };
static const int64_t TTL_MAX_S = (int64_t)3650 * 86400;

/* --- how they look --- */

static void show_limit(json_t *limits, const char *name, int64_t value)
{
    if (value > 0)
        json_object_set_new(limits, name, json_integer(value));
}

static json_t *shown_limits(const struct quota *quota)
{
    json_t *limits = json_object();
    show_limit(limits, "sandboxes", quota->sandboxes);
    show_limit(limits, "cpu_milli", quota->cpu_milli);
    show_limit(limits, "memory_mb", quota->memory_mb);
    show_limit(limits, "disk_mb", quota->disk_mb);
    show_limit(limits, "creates_per_minute", quota->creates_per_minute);
    return limits;
}

static json_t *shown_time_or_null(int64_t at)
{
    return at ? shown_time(at) : json_null();
}

static json_t *shown_key(const struct api_key *key)
{
    bool in_grace = key->old_hash[0] && key->old_until > clock_wall_ms();
    return json_pack("{s:s, s:s, s:s, s:s?, s:o, s:s, s:o, s:o, s:o, s:o, s:o}", "id", key->id, "principal",
                     key->principal, "role", role_name(key->role), "actor", key->actor[0] ? key->actor : NULL, "limits",
                     shown_limits(&key->limits), "note", key->note, "created_at", shown_time(key->created_at),
                     "expires_at", shown_time_or_null(key->expires_at), "last_used_at",
                     shown_time_or_null(key->last_use), "rotated_at", shown_time_or_null(key->rotated_at), "old_until",
                     in_grace ? shown_time(key->old_until) : json_null());
}

/* --- one question on its way through the rules --- */

DEFINE_VISIT(keying)

static void print_list(struct http_request *request, const struct keying *k)
{
    json_t *list = json_array();
    for (size_t i = 0; i < k->count; i++)
        json_array_append_new(list, shown_key(&k->list[i]));
    http_reply_json(request, 200, json_pack("{s:o, s:s*}", "keys", list, "next_cursor", k->next[0] ? k->next : NULL));
}

static void print_one(struct http_request *request, const struct keying *k)
{
    json_t *body = json_pack("{s:o}", "key", shown_key(k->list));
    if (k->text[0]) {
        json_object_set_new(body, "api_key", json_string(k->text));
        http_reply_header(request, "Cache-Control", "no-store");
        http_reply_header(request, "Referrer-Policy", "no-referrer");
    }
    http_reply_json(request, k->verb == KEYING_ADD ? 201 : 200, body);
}

static void print(struct http_request *request, const struct keying *k)
{
    if (k->verb == KEYING_LIST)
        print_list(request, k);
    else if (k->verb == KEYING_DELETE)
        http_reply_empty(request, 204);
    else
        print_one(request, k);
}

static struct keying *new_question(enum keying_verb verb)
{
    struct keying *k = keying_new();
    k->verb = verb;
    return k;
}

/* Takes the question; asks when `read`, else the request ends with err. */
static void ask(struct http_request *request, struct keying *k, bool read, const struct error *err)
{
    bool changes = k->verb != KEYING_FIND && k->verb != KEYING_LIST;
    if (read) {
        leasing_key(plane_of(request)->leasing, keying_visit(request, k, print));
        return;
    }
    keying_free(k);
    if (changes)
        plane_refuse(request, err);
    else
        http_reply_error(request, err);
}

/* --- what a body says --- */

static bool read_role(struct keying *k, const json_t *value, struct error *err)
{
    k->given |= KEYING_ROLE;
    return role_parse(json_string_value(value), &k->wanted.role) ||
           error_set(err, ERROR_INVALID, "role must be viewer, user or admin");
}

static bool read_actor(struct keying *k, const json_t *value, struct error *err)
{
    const char *text = json_string_value(value);
    k->given |= KEYING_ACTOR;
    return json_is_null(value) ||
           (api_key_is_actor(text) && text_copy(k->wanted.actor, sizeof k->wanted.actor, text)) ||
           error_set(err, ERROR_INVALID, "actor must be \"human:<id>\" or \"agent:<id>\"; an id is of A-Za-z0-9._:@+-");
}

static bool read_note(struct keying *k, const json_t *value, struct error *err)
{
    const char *text = json_string_value(value);
    k->given |= KEYING_NOTE;
    return json_is_null(value) || (text && text_copy(k->wanted.note, sizeof k->wanted.note, text)) ||
           error_set(err, ERROR_INVALID, "note must be a text of at most %d bytes", API_KEY_NOTE_BYTES - 1);
}

static bool read_expires_at(struct keying *k, const json_t *value, struct error *err)
{
    k->given |= KEYING_EXPIRES;
    return json_is_null(value) ||
           (json_is_string(value) && clock_parse(json_string_value(value), &k->wanted.expires_at) &&
            k->wanted.expires_at > 0) ||
           error_set(err, ERROR_INVALID, "expires_at must be a time like \"2026-11-22T01:02:03Z\", or null: never");
}

static bool read_ttl(struct keying *k, const json_t *value, struct error *err)
{
    k->given |= KEYING_EXPIRES;
    k->ttl_s = json_integer_value(value);
    return (json_is_integer(value) && k->ttl_s >= 1 && k->ttl_s <= TTL_MAX_S) ||
           error_set(err, ERROR_INVALID, "ttl must be 1 to %lld seconds", (long long)TTL_MAX_S);
}

static bool read_limit(struct quota *quota, const char *name, const json_t *value, struct error *err)
{
    int64_t *const fields[] = {&quota->sandboxes, &quota->cpu_milli, &quota->memory_mb, &quota->disk_mb,
                               &quota->creates_per_minute};
    static const char *const NAMES[] = {"sandboxes", "cpu_milli", "memory_mb", "disk_mb", "creates_per_minute"};
    for (size_t i = 0; i < sizeof NAMES / sizeof *NAMES; i++) {
        if (strcmp(name, NAMES[i]) != 0)
            continue;
        *fields[i] = json_integer_value(value);
        return (json_is_integer(value) && *fields[i] >= 1) ||
               error_set(err, ERROR_INVALID, "limits.%s must be a whole number from 1 on", name);
    }
    return error_set(err, ERROR_INVALID,
                     "unknown field limits.%.64s; there are sandboxes, cpu_milli, memory_mb, disk_mb, "
                     "creates_per_minute",
                     name);
}

static bool read_limits(struct keying *k, json_t *value, struct error *err)
{
    const char *name;
    json_t *each;
    k->given |= KEYING_LIMITS;
    if (!json_is_object(value) && !json_is_null(value))
        return error_set(err, ERROR_INVALID, "limits must be an object, or null: none");
    json_object_foreach (value, name, each) {
        if (!read_limit(&k->wanted.limits, name, each, err))
            return false;
    }
    return true;
}

static bool read_principal(struct keying *k, const json_t *value, struct error *err)
{
    const char *text = json_string_value(value);
    return (api_key_is_local_name(text) && text_copy(k->wanted.principal, sizeof k->wanted.principal, text)) ||
           error_set(err, ERROR_INVALID, "principal must be 1 to %d of A-Za-z0-9._@+-", PRINCIPAL_BYTES - 1);
}

static bool read_field(struct keying *k, const char *name, json_t *value, struct error *err)
{
    if (strcmp(name, "principal") == 0 && k->verb == KEYING_ADD)
        return read_principal(k, value, err);
    if (strcmp(name, "role") == 0)
        return read_role(k, value, err);
    if (strcmp(name, "actor") == 0)
        return read_actor(k, value, err);
    if (strcmp(name, "note") == 0)
        return read_note(k, value, err);
    if (strcmp(name, "limits") == 0)
        return read_limits(k, value, err);
    if (strcmp(name, "expires_at") == 0)
        return read_expires_at(k, value, err);
    if (strcmp(name, "ttl") == 0)
        return read_ttl(k, value, err);
    return error_set(err, ERROR_INVALID, "unknown field \"%.64s\"", name);
}

static bool read_body(const struct http_request *request, struct keying *k, struct error *err)
{
    const char *name;
    json_t *value, *body = http_request_json(request, err);
    bool read = body != NULL;
    k->wanted.limits = QUOTA_NONE;
    json_object_foreach (body, name, value)
        read = read && read_field(k, name, value, err);
    if (read && json_object_get(body, "ttl") && json_object_get(body, "expires_at"))
        read = error_set(err, ERROR_INVALID, "ttl and expires_at say the same: give one");
    json_decref(body);
    return read;
}

/* --- the routes --- */

static bool read_new(const struct http_request *request, struct keying *k, struct error *err)
{
    k->wanted.role = ROLE_USER;
    if (!plane_caller(request, &k->caller, err) || !read_body(request, k, err))
        return false;
    if (k->caller.owner[0])
        return error_set(err, ERROR_INVALID, "?principal= says nothing here: the body has principal");
    return k->wanted.principal[0] || error_set(err, ERROR_INVALID, "principal must be given: whose key it is");
}

static void add(struct http_request *request)
{
    struct error err = {0};
    struct keying *k = new_question(KEYING_ADD);
    bool read = read_new(request, k, &err);
    ask(request, k, read, &err);
}

static bool read_one(const struct http_request *request, struct keying *k, struct error *err)
{
    const char *id = http_request_parameter(request, "key_id");
    return plane_caller(request, &k->caller, err) &&
           ((random_is_id(id, "key") && text_copy(k->id, sizeof k->id, id)) ||
            error_set(err, ERROR_NOT_FOUND, "no such key; an id looks like key_ and 20 of a-z0-9"));
}

static void show(struct http_request *request)
{
    struct error err = {0};
    struct keying *k = new_question(KEYING_FIND);
    bool read = read_one(request, k, &err);
    ask(request, k, read, &err);
}

static void change(struct http_request *request)
{
    struct error err = {0};
    struct keying *k = new_question(KEYING_CHANGE);
    bool read = read_one(request, k, &err) && read_body(request, k, &err);
    if (read && k->given == 0)
        read = error_set(&err, ERROR_INVALID, "nothing to change: give role, actor, limits, note, expires_at or ttl");
    ask(request, k, read, &err);
}

static bool read_grace(const struct http_request *request, struct keying *k, struct error *err)
{
    json_t *body = http_request_json(request, err);
    if (body == NULL)
        return false;
    const json_t *grace = json_object_get(body, "grace");
    bool known = json_object_size(body) == (grace ? 1U : 0U) && (grace == NULL || json_is_integer(grace));
    k->grace_s = json_integer_value(grace);
    json_decref(body);
    return (known && k->grace_s >= 0 && k->grace_s <= KEYING_GRACE_MAX_S) ||
           error_set(err, ERROR_INVALID, "the body must be {\"grace\"?}: 0 to %d seconds that the old text stays good",
                     KEYING_GRACE_MAX_S);
}

static void rotate(struct http_request *request)
{
    struct error err = {0};
    struct keying *k = new_question(KEYING_ROTATE);
    bool read = read_one(request, k, &err) && read_grace(request, k, &err);
    ask(request, k, read, &err);
}

static void drop(struct http_request *request)
{
    struct error err = {0};
    struct keying *k = new_question(KEYING_DELETE);
    bool read = read_one(request, k, &err);
    ask(request, k, read, &err);
}

static bool read_list(const struct http_request *request, struct keying *k, struct error *err)
{
    const char *cursor = http_request_query(request, "cursor"), *limit = http_request_query(request, "limit");
    uint64_t number = KEYING_LIST_MAX;
    if (!plane_caller(request, &k->caller, err))
        return false;
    if (cursor && (!random_is_id(cursor, "key") || !text_copy(k->cursor, sizeof k->cursor, cursor)))
        return error_set(err, ERROR_INVALID, "cursor must be the next_cursor of an earlier answer");
    if (limit && (!text_parse_u64(limit, strlen(limit), KEYING_LIST_MAX, &number) || number == 0))
        return error_set(err, ERROR_INVALID, "limit must be 1 to %d", KEYING_LIST_MAX);
    k->limit = (size_t)number;
    return true;
}

static void list(struct http_request *request)
{
    struct error err = {0};
    struct keying *k = new_question(KEYING_LIST);
    bool read = read_list(request, k, &err);
    ask(request, k, read, &err);
}

struct plane_rows keys_rows(void)
{
    static const struct http_route ROWS[] = {
        {"POST", "/keys", HTTP_BEARER | HTTP_API_KEY, "admin", BODY_BYTES, add},
        {"GET", "/keys", HTTP_BEARER | HTTP_API_KEY, "viewer", 0, list},
        {"GET", "/keys/{key_id}", HTTP_BEARER | HTTP_API_KEY, "viewer", 0, show},
        {"PATCH", "/keys/{key_id}", HTTP_BEARER | HTTP_API_KEY, "admin", BODY_BYTES, change},
        {"POST", "/keys/{key_id}/rotate", HTTP_BEARER | HTTP_API_KEY, "user", BODY_BYTES, rotate},
        {"DELETE", "/keys/{key_id}", HTTP_BEARER | HTTP_API_KEY, "user", 0, drop},
    };
    return (struct plane_rows){ROWS, sizeof ROWS / sizeof *ROWS};
}
