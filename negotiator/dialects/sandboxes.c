/* sandboxes.c - the native dialect's sandboxes: list, look at one, end one (protocol.md, 2). */
#include "negotiator/dialects/plane.h"
#include "negotiator/dialects/shown.h"
#include "negotiator/dialects/waiting.h"
#include "shared/base/text.h"

#include <string.h>

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

static void list_sandboxes(struct http_request *request)
{
    struct error err = {0};
    AUTO(question) *q = question_new();
    q->verb = QUESTION_LIST;
    if (read_list(request, q, &err))
        waiting_ask(request, TAKE(q), print_list);
    else
        http_reply_error(request, &err);
}

struct plane_rows sandboxes_rows(void)
{
    static const struct http_route ROWS[] = {
        {"GET", "/sandboxes", HTTP_BEARER | HTTP_API_KEY, "viewer", 0, list_sandboxes},
        {"GET", "/sandboxes/{sandbox_id}", HTTP_BEARER | HTTP_API_KEY, "viewer", 0, get_sandbox},
        {"DELETE", "/sandboxes/{sandbox_id}", HTTP_BEARER | HTTP_API_KEY, "user", 0, delete_sandbox},
    };
    return (struct plane_rows){ROWS, sizeof ROWS / sizeof *ROWS};
}
