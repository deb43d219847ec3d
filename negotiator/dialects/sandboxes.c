/* sandboxes.c - the native dialect's sandboxes: list, look at one, end one, get a token for one (protocol.md, 2). */
#include "negotiator/dialects/granted.h"
#include "negotiator/dialects/pairs.h"
#include "negotiator/dialects/plane.h"
#include "negotiator/dialects/shown.h"
#include "negotiator/dialects/waiting.h"
#include "negotiator/dialects/wish.h"
#include "shared/base/text.h"

#include <string.h>

enum { TOKEN_BODY_BYTES = 16384 };

static void print_sandbox(struct http_request *request, const struct question *q)
{
    http_reply_json(request, 200, shown_sandbox(&q->sandbox));
}

static void print_list(struct http_request *request, const struct question *q)
{
    json_t *list = json_array();
    for (size_t i = 0; i < q->count; i++)
        json_array_append_new(list, shown_sandbox(&q->list[i]));
    http_reply_json(request, 200,
                    json_pack("{s:o, s:s*}", "sandboxes", list, "next_cursor", q->next[0] ? q->next : NULL));
}

static void ask_about_one(struct http_request *request, enum question_verb verb,
                          void (*print)(struct http_request *request, const struct question *q))
{
    struct error err = {0};
    AUTO(question) *q = question_new();
    q->verb = verb;
    const char *id = http_request_parameter(request, "sandbox_id");
    if (!plane_caller(request, &q->caller, &err)) {
        http_reply_error(request, &err);
    } else if (!random_is_id(id, "sbx") || !text_copy(q->sandbox_id, sizeof q->sandbox_id, id)) {
        error_set(&err, ERROR_NOT_FOUND, "no such sandbox; an id looks like sbx_ and 20 of a-z0-9");
        http_reply_error(request, &err);
    } else {
        waiting_ask(request, TAKE(q), print);
    }
}

static void get_sandbox(struct http_request *request)
{
    ask_about_one(request, QUESTION_SANDBOX, print_sandbox);
}

static void delete_sandbox(struct http_request *request)
{
    ask_about_one(request, QUESTION_DELETE, waiting_print_done);
}

/* "active,paused" or "all" -> bits. */
static bool read_states(const char *text, unsigned *states, struct error *err)
{
    char each[32];
    *states = 0;
    if (text == NULL)
        return true;
    if (strcmp(text, "all") == 0) {
        *states = (1U << SANDBOX_STATES) - 1;
        return true;
    }
    for (const char *at = text; at;) {
        enum sandbox_state state;
        size_t length = strcspn(at, ",");
        if (!text_format(each, sizeof each, "%.*s", (int)(length < sizeof each ? length : sizeof each), at) ||
            !sandbox_state_parse(each, &state))
            return error_set(err, ERROR_INVALID,
                             "state must be \"all\", or some of provisioning, active, idle, paused, "
                             "terminating, terminated, failed, separated by commas");
        *states |= 1U << state;
        at = at[length] ? at + length + 1 : NULL;
    }
    return true;
}

static bool read_list(const struct http_request *request, struct question *q, struct error *err)
{
    const char *name = http_request_query(request, "name");
    const char *cursor = http_request_query(request, "cursor");
    const char *limit = http_request_query(request, "limit");
    uint64_t number = QUESTION_LIST_MAX;
    if (!plane_caller(request, &q->caller, err) || !read_states(http_request_query(request, "state"), &q->states, err))
        return false;
    if (name && (!sandbox_is_name(name) || !text_copy(q->name, sizeof q->name, name)))
        return error_set(err, ERROR_INVALID, "name must be 1 to %d of a-z0-9-", SANDBOX_NAME_BYTES - 1);
    if (cursor && (!random_is_id(cursor, "sbx") || !text_copy(q->cursor, sizeof q->cursor, cursor)))
        return error_set(err, ERROR_INVALID, "cursor must be the next_cursor of an earlier answer");
    if (limit && (!text_parse_u64(limit, strlen(limit), QUESTION_LIST_MAX, &number) || number == 0))
        return error_set(err, ERROR_INVALID, "limit must be 1 to %d", QUESTION_LIST_MAX);
    q->limit = (size_t)number;
    return true;
}

/* --- by offset --- */

static void print_page(struct http_request *request, const struct question *q)
{
    json_t *list = json_array();
    for (size_t i = 0; i < q->count; i++)
        json_array_append_new(list, shown_sandbox(&q->list[i]));
    http_reply_json(request, 200,
                    json_pack("{s:o, s:I, s:I, s:b}", "sandboxes", list, "offset", (json_int_t)q->offset, "total",
                              (json_int_t)q->total, "truncated", (int)q->is_cut));
}

/* The two ways of a list say no to each other's words. */
static bool read_page(const struct http_request *request, struct question *q, struct error *err)
{
    const char *offset = http_request_query(request, "offset"), *limit = http_request_query(request, "limit");
    const char *metadata = http_request_query(request, "metadata");
    uint64_t from = 0, number = QUESTION_LIST_MAX;
    if (http_request_query(request, "cursor") || http_request_query(request, "name"))
        return error_set(err, ERROR_INVALID, "offset and metadata go without cursor and name");
    if (!plane_caller(request, &q->caller, err) || !read_states(http_request_query(request, "state"), &q->states, err))
        return false;
    if (offset && !text_parse_u64(offset, strlen(offset), LEASING_PAGE_MAX, &from))
        return error_set(err, ERROR_INVALID, "offset must be 0 to %d", LEASING_PAGE_MAX);
    if (limit && (!text_parse_u64(limit, strlen(limit), QUESTION_LIST_MAX, &number) || number == 0))
        return error_set(err, ERROR_INVALID, "limit must be 1 to %d", QUESTION_LIST_MAX);
    q->offset = (size_t)from;
    q->limit = (size_t)number;
    q->metadata = metadata ? pairs_read(metadata, err) : NULL;
    return metadata == NULL || q->metadata != NULL;
}

static void list_sandboxes(struct http_request *request)
{
    struct error err = {0};
    AUTO(question) *q = question_new();
    bool is_page = http_request_query(request, "offset") || http_request_query(request, "metadata");
    q->verb = is_page ? QUESTION_PAGE : QUESTION_LIST;
    if (is_page ? read_page(request, q, &err) : read_list(request, q, &err))
        waiting_ask(request, TAKE(q), is_page ? print_page : print_list);
    else
        http_reply_error(request, &err);
}

/* --- a token for one that is known --- */

static bool read_token(const struct http_request *request, struct negotiation *n, struct error *err)
{
    const char *id = http_request_parameter(request, "sandbox_id");
    if (!plane_caller(request, &n->caller, err))
        return false;
    if (!text_copy(n->sandbox_id, sizeof n->sandbox_id, id))
        n->sandbox_id[0] = '\0'; /* too long for one: the rules say so */
    json_t *body = http_request_json(request, err);
    if (body == NULL)
        return false;
    bool read = wish_read_token(&n->wanted, body, err);
    json_decref(body);
    return read;
}

static void grant_token(struct http_request *request)
{
    granted_ask(request, read_token, leasing_grant);
}

struct plane_rows sandboxes_rows(void)
{
    static const struct http_route ROWS[] = {
        {"GET", "/sandboxes", HTTP_BEARER | HTTP_API_KEY, "viewer", 0, list_sandboxes},
        {"GET", "/sandboxes/{sandbox_id}", HTTP_BEARER | HTTP_API_KEY, "viewer", 0, get_sandbox},
        {"DELETE", "/sandboxes/{sandbox_id}", HTTP_BEARER | HTTP_API_KEY, "user", 0, delete_sandbox},
        {"POST", "/sandboxes/{sandbox_id}/token", HTTP_BEARER | HTTP_API_KEY, "user", TOKEN_BODY_BYTES, grant_token},
    };
    return (struct plane_rows){ROWS, sizeof ROWS / sizeof *ROWS};
}
