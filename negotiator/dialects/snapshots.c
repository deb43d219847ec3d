/* snapshots.c - the native dialect's snapshots: take one, list, look at one, delete one; and what there is to begin
 * with: templates (protocol.md, 2). */
#include "negotiator/dialects/shown.h"
#include "negotiator/dialects/visit.h"
#include "negotiator/leasing/keeping/keeping.h"
#include "shared/base/memory.h"
#include "shared/base/text.h"

#include <string.h>

enum { TAKE_BODY_BYTES = 4096 };

/* --- how they look --- */

static json_t *shown_snapshot(const struct snapshot *snapshot)
{
    json_t *json = json_pack("{s:s, s:s, s:s, s:s, s:s, s:s, s:s, s:o}", "id", snapshot->id, "name", snapshot->name,
                             "state", snapshot_state_name(snapshot->state), "sandbox_id", snapshot->sandbox_id,
                             "template", snapshot->template_name, "node", snapshot->node, "owner", snapshot->principal,
                             "created_at", shown_time(snapshot->created_at));
    if (snapshot->state != SNAPSHOT_READY)
        return json;
    json_object_set_new(json, "storage", json_string(snapshot->storage));
    json_object_set_new(json, "size_bytes", json_integer((json_int_t)snapshot->size_bytes));
    return json;
}

/* --- one question on its way through the rules, and a node --- */

DEFINE_VISIT(keeping)

static void print_list(struct http_request *request, const struct keeping *k)
{
    json_t *list = json_array();
    for (size_t i = 0; i < k->count; i++)
        json_array_append_new(list, shown_snapshot(&k->list[i]));
    http_reply_json(request, 200,
                    json_pack("{s:o, s:s*}", "snapshots", list, "next_cursor", k->next[0] ? k->next : NULL));
}

static void print_page(struct http_request *request, const struct keeping *k)
{
    json_t *list = json_array();
    for (size_t i = 0; i < k->count; i++)
        json_array_append_new(list, shown_snapshot(&k->list[i]));
    http_reply_json(request, 200,
                    json_pack("{s:o, s:I, s:I, s:b}", "snapshots", list, "offset", (json_int_t)k->offset, "total",
                              (json_int_t)k->total, "truncated", (int)k->is_cut));
}

static void print_taken(struct http_request *request, const struct keeping *k)
{
    http_reply_json(request, 201,
                    json_pack("{s:o, s:{s:I, s:b}}", "snapshot", shown_snapshot(&k->snapshot), "processes", "running",
                              (json_int_t)k->running, "included", 0));
}

static void print(struct http_request *request, const struct keeping *k)
{
    if (k->verb == KEEPING_LIST)
        print_list(request, k);
    else if (k->verb == KEEPING_PAGE)
        print_page(request, k);
    else if (k->verb == KEEPING_TAKE)
        print_taken(request, k);
    else if (k->verb == KEEPING_DROP)
        http_reply_empty(request, 204);
    else
        http_reply_json(request, 200, json_pack("{s:o}", "snapshot", shown_snapshot(&k->snapshot)));
}

static struct keeping *new_question(enum keeping_verb verb)
{
    struct keeping *k = keeping_new();
    k->verb = verb;
    return k;
}

/* Takes the question; asks when `read`, else the request ends with err. */
static void ask(struct http_request *request, struct keeping *k, bool read, const struct error *err)
{
    bool changes = k->verb == KEEPING_TAKE || k->verb == KEEPING_DROP;
    if (read) {
        leasing_keep(plane_of(request)->leasing, keeping_visit(request, k, print));
        return;
    }
    keeping_free(k);
    if (err->kind == ERROR_UNAUTHENTICATED)
        leasing_stranger(plane_of(request)->leasing, http_request_remote(request));
    if (changes)
        plane_refuse(request, err);
    else
        http_reply_error(request, err);
}

/* --- taking one --- */

static bool read_asker(const struct http_request *request, struct keeping *k, struct error *err)
{
    if (http_request_identity(request))
        return plane_caller(request, &k->caller, err);
    const char *token = http_request_credential(request);
    if (token == NULL)
        return error_set(err, ERROR_UNAUTHENTICATED, "this needs an API key, or a capability with scope snapshot");
    if (http_request_query(request, "principal"))
        return error_set(err, ERROR_INVALID, "?principal= goes with an API key");
    k->token = memory_string(token);
    return plane_holder(request, &k->caller, err);
}

static bool read_name(struct keeping *k, const char *name, struct error *err)
{
    return (sandbox_is_name(name) && text_copy(k->name, sizeof k->name, name)) ||
           error_set(err, ERROR_INVALID, "name must be 1 to %d of a-z0-9-, not beginning or ending with '-'",
                     SANDBOX_NAME_BYTES - 1);
}

static bool read_body(const json_t *body, struct keeping *k, struct error *err)
{
    const json_t *name = json_object_get(body, "name");
    if (json_object_size(body) != (name ? 1U : 0U))
        return error_set(err, ERROR_INVALID, "the body must be {\"name\"?}");
    return name == NULL || json_is_null(name) || read_name(k, json_string_value(name), err);
}

static bool read_sandbox(struct keeping *k, const char *id, struct error *err)
{
    return (random_is_id(id, "sbx") && text_copy(k->sandbox_id, sizeof k->sandbox_id, id)) ||
           error_set(err, ERROR_NOT_FOUND, "no such sandbox; an id looks like sbx_ and 20 of a-z0-9");
}

static bool read_take(const struct http_request *request, struct keeping *k, struct error *err)
{
    if (!read_asker(request, k, err) || !read_sandbox(k, http_request_parameter(request, "sandbox_id"), err))
        return false;
    json_t *body = http_request_json(request, err);
    bool read = body && read_body(body, k, err);
    json_decref(body);
    return read;
}

static void take(struct http_request *request)
{
    struct error err = {0};
    struct keeping *k = new_question(KEEPING_TAKE);
    bool read = read_take(request, k, &err);
    ask(request, k, read, &err);
}

/* --- the others --- */

static bool read_one(const struct http_request *request, struct keeping *k, struct error *err)
{
    const char *id = http_request_parameter(request, "snapshot_id");
    return plane_caller(request, &k->caller, err) &&
           ((random_is_id(id, "snp") && text_copy(k->snapshot_id, sizeof k->snapshot_id, id)) ||
            error_set(err, ERROR_NOT_FOUND, "no such snapshot; an id looks like snp_ and 20 of a-z0-9"));
}

static void show(struct http_request *request)
{
    struct error err = {0};
    struct keeping *k = new_question(KEEPING_FIND);
    bool read = read_one(request, k, &err);
    ask(request, k, read, &err);
}

static void drop(struct http_request *request)
{
    struct error err = {0};
    struct keeping *k = new_question(KEEPING_DROP);
    bool read = read_one(request, k, &err);
    ask(request, k, read, &err);
}

static bool read_list(const struct http_request *request, struct keeping *k, struct error *err)
{
    const char *name = http_request_query(request, "name"), *sandbox = http_request_query(request, "sandbox");
    const char *cursor = http_request_query(request, "cursor"), *limit = http_request_query(request, "limit");
    const char *offset = http_request_query(request, "offset");
    uint64_t number = KEEPING_LIST_MAX, from = 0;
    if (!plane_caller(request, &k->caller, err) || (name && !read_name(k, name, err)))
        return false;
    if (sandbox && (!random_is_id(sandbox, "sbx") || !text_copy(k->sandbox_id, sizeof k->sandbox_id, sandbox)))
        return error_set(err, ERROR_INVALID, "sandbox must be the id of one: sbx_ and 20 of a-z0-9");
    if (cursor && (!random_is_id(cursor, "snp") || !text_copy(k->cursor, sizeof k->cursor, cursor)))
        return error_set(err, ERROR_INVALID, "cursor must be the next_cursor of an earlier answer");
    if (limit && (!text_parse_u64(limit, strlen(limit), KEEPING_LIST_MAX, &number) || number == 0))
        return error_set(err, ERROR_INVALID, "limit must be 1 to %d", KEEPING_LIST_MAX);
    if (offset && (cursor || !text_parse_u64(offset, strlen(offset), LEASING_PAGE_MAX, &from)))
        return error_set(err, ERROR_INVALID, "offset must be 0 to %d, and goes without cursor", LEASING_PAGE_MAX);
    k->offset = (size_t)from;
    k->limit = (size_t)number;
    return true;
}

static void list(struct http_request *request)
{
    struct error err = {0};
    struct keeping *k = new_question(http_request_query(request, "offset") ? KEEPING_PAGE : KEEPING_LIST);
    bool read = read_list(request, k, &err);
    ask(request, k, read, &err);
}

/* --- templates --- */

/* A viewer begins nothing: shown what users may. */
static void list_templates(struct http_request *request)
{
    struct error err = {0};
    struct caller caller = {.owner = ""};
    const struct plane *plane = plane_of(request);
    size_t i;
    json_t *each;
    if (!plane_caller(request, &caller, &err)) {
        http_reply_error(request, &err);
        return;
    }
    enum role role = caller.principal.role;
    json_t *all = fleet_templates(plane->fleet), *shown = json_array();
    json_array_foreach (all, i, each) {
        const char *name = json_string_value(json_object_get(each, "name"));
        if (role != ROLE_ADMIN && !leasing_allows_template(plane->leasing, ROLE_USER, caller.principal.name, name))
            continue;
        int64_t created = json_integer_value(json_object_get(each, "created_at"));
        json_object_set_new(each, "created_at", created > 0 ? shown_time(created) : json_null());
        json_object_set_new(each, "allowed",
                            json_boolean(leasing_allows_template(plane->leasing, role, caller.principal.name, name)));
        json_array_append(shown, each);
    }
    json_decref(all);
    http_reply_json(request, 200, json_pack("{s:o}", "templates", shown));
}

struct plane_rows snapshots_rows(void)
{
    static const struct http_route ROWS[] = {
        {"POST", "/sandboxes/{sandbox_id}/snapshots", HTTP_BEARER | HTTP_API_KEY, PLANE_HOLDER, TAKE_BODY_BYTES, take},
        {"GET", "/snapshots", HTTP_BEARER | HTTP_API_KEY, "viewer", 0, list},
        {"GET", "/snapshots/{snapshot_id}", HTTP_BEARER | HTTP_API_KEY, "viewer", 0, show},
        {"DELETE", "/snapshots/{snapshot_id}", HTTP_BEARER | HTTP_API_KEY, "user", 0, drop},
        {"GET", "/templates", HTTP_BEARER | HTTP_API_KEY, "viewer", 0, list_templates},
    };
    return (struct plane_rows){ROWS, sizeof ROWS / sizeof *ROWS};
}
