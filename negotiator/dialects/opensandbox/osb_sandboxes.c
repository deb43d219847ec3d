/* osb_sandboxes.c - lists, a look at one, its end (L2 to L4). */
#include "negotiator/dialects/opensandbox/opensandbox.h"
#include "negotiator/dialects/opensandbox/osb_ask.h"
#include "negotiator/dialects/opensandbox/osb_shown.h"
#include "negotiator/dialects/pairs.h"

static void print_sandbox(struct http_request *request, const struct question *q)
{
    struct error gone = {0};
    if (osb_is_shown(&q->sandbox)) {
        http_reply_json(request, 200, osb_shown_sandbox(&q->sandbox));
        return;
    }
    error_set(&gone, ERROR_NOT_FOUND, "sandbox %s has ended: %s", q->sandbox.id, q->sandbox.reason);
    osb_answer(request, &gone);
}

static void print_deleted(struct http_request *request, const struct question *q UNUSED)
{
    http_reply_empty(request, 204);
}

static void ask_about(struct http_request *request, enum question_verb verb,
                      void (*print)(struct http_request *request, const struct question *q))
{
    struct osb_refusal refusal = {.code = NULL};
    AUTO(question) *q = question_new();
    q->verb = verb;
    q->is_strict = true;
    if (plane_caller(request, &q->caller, &refusal.err) && osb_sandbox_id(request, q->sandbox_id, &refusal.err))
        osb_ask(request, TAKE(q), print);
    else
        osb_refuse_quietly(request, &refusal);
}

static void get_sandbox(struct http_request *request)
{
    ask_about(request, QUESTION_SANDBOX, print_sandbox);
}

static void delete_sandbox(struct http_request *request)
{
    ask_about(request, QUESTION_DELETE, print_deleted);
}

/* --- lists --- */

static void print_list(struct http_request *request, const struct question *q)
{
    json_t *items = json_array();
    for (size_t i = 0; i < q->count; i++)
        json_array_append_new(items, osb_shown_sandbox(&q->list[i]));
    http_reply_json(request, 200,
                    json_pack("{s:o, s:o}", "items", items, "pagination",
                              osb_shown_pages(q->offset / q->limit + 1, q->limit, q->total)));
}

/* The states that are asked for; 0: there is none of them. */
static unsigned read_states(const struct http_request *request)
{
    const char *state;
    unsigned states = 0;
    if (http_request_query(request, "state") == NULL)
        return osb_states_shown();
    for (size_t i = 0; (state = http_request_query_nth(request, "state", i)); i++)
        states |= osb_state_bits(state);
    return states;
}

static bool read_list(const struct http_request *request, struct question *q, struct error *err)
{
    const char *metadata = http_request_query(request, "metadata");
    size_t page;
    if (!plane_caller(request, &q->caller, err) || !osb_read_page(request, &page, &q->limit, err))
        return false;
    q->offset = (page - 1) * q->limit;
    q->states = read_states(request);
    q->metadata = metadata && metadata[0] ? pairs_read(metadata, err) : NULL;
    return q->metadata || !metadata || !metadata[0];
}

static void list_sandboxes(struct http_request *request)
{
    struct osb_refusal refusal = {.code = NULL};
    AUTO(question) *q = question_new();
    q->verb = QUESTION_PAGE;
    if (!read_list(request, q, &refusal.err))
        osb_refuse_quietly(request, &refusal);
    else if (q->states == 0)
        print_list(request, q);
    else
        osb_ask(request, TAKE(q), print_list);
}

struct plane_rows osb_sandboxes_rows(void)
{
    static const struct http_route ROWS[] = {
        {"GET", "/v1/sandboxes", OSB_KEY | HTTP_REPEATS, "viewer", 0, list_sandboxes},
        {"GET", "/v1/sandboxes/{sandbox_id}", OSB_KEY, "viewer", 0, get_sandbox},
        {"DELETE", "/v1/sandboxes/{sandbox_id}", OSB_KEY, "user", 0, delete_sandbox},
    };
    return (struct plane_rows){ROWS, sizeof ROWS / sizeof *ROWS};
}
