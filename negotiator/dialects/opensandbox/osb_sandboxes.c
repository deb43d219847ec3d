/* osb_sandboxes.c - GET and DELETE of one sandbox (L3, L4). */
#include "negotiator/dialects/opensandbox/opensandbox.h"
#include "negotiator/dialects/opensandbox/osb_ask.h"
#include "negotiator/dialects/opensandbox/osb_shown.h"

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

struct plane_rows osb_sandboxes_rows(void)
{
    static const struct http_route ROWS[] = {
        {"GET", "/v1/sandboxes/{sandbox_id}", OSB_KEY, "viewer", 0, get_sandbox},
        {"DELETE", "/v1/sandboxes/{sandbox_id}", OSB_KEY, "user", 0, delete_sandbox},
    };
    return (struct plane_rows){ROWS, sizeof ROWS / sizeof *ROWS};
}
