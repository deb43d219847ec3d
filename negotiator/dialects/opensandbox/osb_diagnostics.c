/* osb_diagnostics.c - what its entrypoint wrote, and what became of a sandbox, as text (L14). With ?scope= it stands in
 * a descriptor; without, as in the protocol's older form, it is the whole reply. */
#include "negotiator/dialects/errand.h"
#include "negotiator/dialects/opensandbox/opensandbox.h"
#include "negotiator/dialects/opensandbox/osb_ask.h"
#include "negotiator/dialects/opensandbox/osb_shown.h"
#include "negotiator/leasing/logs.h"
#include "negotiator/ledger/audit.h"
#include "shared/base/memory.h"
#include "shared/base/text.h"

#include <stdlib.h>
#include <string.h>

enum { LINES = 100, LINES_MAX = 10000, EVENTS = 50, EVENTS_MAX = 500 };

static const char ENTRYPOINT[] = "entrypoint", TEXT_TYPE[] = "text/plain; charset=utf-8";

/* --- scopes --- */

enum scope { SCOPE_CONTAINER, SCOPE_LIFECYCLE, SCOPE_RUNTIME, SCOPE_NET, SCOPE_PROCESSES, SCOPE_ALL, SCOPES };

static const char *const SCOPE_NAMES[SCOPES] = {
    [SCOPE_CONTAINER] = "container", [SCOPE_LIFECYCLE] = "lifecycle", [SCOPE_RUNTIME] = "runtime",
    [SCOPE_NET] = "network",         [SCOPE_PROCESSES] = "process",   [SCOPE_ALL] = "all"};

static bool read_scope(const struct http_request *request, enum scope *scope, struct error *err)
{
    const char *name = http_request_query(request, "scope");
    *scope = SCOPE_ALL;
    for (enum scope each = 0; name && each < SCOPES; each++) {
        if (strcmp(name, SCOPE_NAMES[each]) == 0) {
            *scope = each;
            return true;
        }
    }
    return name == NULL || error_set(err, ERROR_INVALID,
                                     "scope must be one of container, lifecycle, runtime, network, process and all");
}

static bool read_count(const struct http_request *request, const char *name, uint64_t otherwise, uint64_t max,
                       size_t *to, struct error *err)
{
    const char *text = http_request_query(request, name);
    uint64_t number = otherwise;
    if (text && (!text_parse_u64(text, strlen(text), max, &number) || number == 0))
        return error_set(err, ERROR_INVALID, "%s must be a whole number from 1 to %llu", name, (unsigned long long)max);
    *to = (size_t)number;
    return true;
}

/* --- the reply --- */

struct told {
    const char *sandbox_id, *kind, *text, *warning; /* NULL: none */
    bool is_truncated;
};

static void reply(struct http_request *request, const struct told *told)
{
    const char *scope = http_request_query(request, "scope");
    size_t length = strlen(told->text);
    if (scope == NULL) {
        http_reply_header(request, "Deprecation", "true");
        http_reply_header(request, "X-Content-Type-Options", "nosniff"); /* a sandbox wrote it */
        http_reply_bytes(request, 200, TEXT_TYPE, told->text, length);
        return;
    }
    json_t *json =
        json_pack("{s:s, s:s, s:s, s:s, s:s, s:s%, s:I, s:b}", "sandboxId", told->sandbox_id, "kind", told->kind,
                  "scope", scope, "delivery", "inline", "contentType", TEXT_TYPE, "content", told->text, length,
                  "contentLength", (json_int_t)length, "truncated", (int)told->is_truncated);
    if (told->warning)
        json_object_set_new(json, "warnings", json_pack("[s]", told->warning));
    http_reply_json(request, 200, json);
}

/* --- logs --- */

/* Where the last `lines` lines begin. */
static const char *last_lines(const char *text, size_t lines)
{
    const char *at = text + strlen(text);
    if (at > text && at[-1] == '\n')
        at--;
    while (at > text && (at[-1] != '\n' || --lines > 0))
        at--;
    return at;
}

static void append_stream(struct text *to, const json_t *answer, const char *name)
{
    const char *text = json_string_value(json_object_get(answer, name));
    text_append_string(to, text ? text : "");
    if (to->length > 0 && to->data[to->length - 1] != '\n')
        text_append_string(to, "\n");
}

static void print_logs(struct http_request *request, const struct logs_question *q)
{
    AUTO_TEXT text = {0};
    size_t lines = LINES;
    struct error none = {0};
    (void)!read_count(request, "tail", LINES, LINES_MAX, &lines, &none); /* it was read once */
    append_stream(&text, q->answer, "stdout");
    append_stream(&text, q->answer, "stderr");
    const char *all = text.data ? text.data : "", *shown = last_lines(all, lines);
    bool is_cut = shown > all || json_is_true(json_object_get(q->answer, "truncated"));
    const char *warning = q->answer ? NULL : "it has no entrypoint, or what that wrote is kept no more";
    reply(request, &(struct told){q->sandbox_id, "logs", shown, warning, is_cut});
}

DEFINE_VISIT_BY(logs_question, osb_answer)

static bool read_logs(const struct http_request *request, struct logs_question *q, enum scope *scope, struct error *err)
{
    size_t lines;
    q->tail_bytes = LOGS_TAIL_MAX_BYTES;
    q->may_lack = true;
    return plane_caller(request, &q->caller, err) && osb_sandbox_id(request, q->sandbox_id, err) &&
           read_scope(request, scope, err) && read_count(request, "tail", LINES, LINES_MAX, &lines, err) &&
           text_copy(q->process, sizeof q->process, ENTRYPOINT);
}

/* What has no log here is answered when it is known whose the sandbox is. */
static void print_no_log(struct http_request *request, const struct question *q)
{
    reply(request,
          &(struct told){q->sandbox.id, "logs", "", "there is no log of this scope; container and process are", false});
}

static void get_logs(struct http_request *request)
{
    struct osb_refusal refusal = {.code = NULL};
    enum scope scope;
    AUTO(logs_question) *q = logs_question_new();
    if (!read_logs(request, q, &scope, &refusal.err)) {
        osb_refuse_quietly(request, &refusal);
    } else if (scope == SCOPE_CONTAINER || scope == SCOPE_PROCESSES || scope == SCOPE_ALL) {
        leasing_logs(plane_of(request)->leasing, logs_question_visit(request, TAKE(q), print_logs));
    } else {
        struct question *whose = question_new();
        whose->verb = QUESTION_SANDBOX;
        whose->caller = q->caller;
        memcpy(whose->sandbox_id, q->sandbox_id, sizeof whose->sandbox_id);
        osb_ask(request, whose, print_no_log);
    }
}

/* --- events: the records about it --- */

struct history {
    struct errand errand;
    struct audit_search search;
    enum scope scope;
    char sandbox_id[RANDOM_ID_BYTES], principal[PRINCIPAL_BYTES];
    bool done;
};

static void history_free(struct errand *errand)
{
    struct history *history = (struct history *)errand;
    audit_search_done(&history->search);
    free(history);
}

static bool is_of_scope(const json_t *record, enum scope scope)
{
    bool is_nodes = text_equal(json_string_value(json_object_get(record, "plane")), "sandboxd");
    bool is_network = text_equal(json_string_value(json_object_get(record, "action")), "network");
    return scope == SCOPE_ALL ||
           (scope == SCOPE_NET ? is_network : (scope == SCOPE_PROCESSES) == (is_nodes && !is_network));
}

/* One line: what a client or a sandbox wrote into a field makes no second one. */
static void append_field(struct text *to, const json_t *record, const char *name)
{
    const char *text = json_string_value(json_object_get(record, name));
    size_t from = to->length + 1;
    if (text == NULL || text[0] == '\0')
        return;
    text_append_format(to, " %s", text);
    for (size_t i = from; i < to->length; i++) {
        if ((unsigned char)to->data[i] < ' ' || to->data[i] == 0x7f)
            to->data[i] = ' ';
    }
}

static void append_record(struct text *to, const json_t *record)
{
    static const char *const FIELDS[] = {"plane", "action", "outcome", "principal", "detail"};
    const char *time = json_string_value(json_object_get(record, "time"));
    text_append_string(to, time ? time : "-");
    for (size_t i = 0; i < sizeof FIELDS / sizeof *FIELDS; i++)
        append_field(to, record, FIELDS[i]);
    text_append_string(to, "\n");
}

static void print_events(struct http_request *request, struct errand *errand)
{
    struct history *history = (struct history *)errand;
    AUTO_TEXT text = {0};
    size_t i;
    const json_t *each;
    if (errand->err.kind != ERROR_NONE) {
        osb_answer(request, &errand->err);
        return;
    }
    json_array_foreach (history->search.records, i, each) {
        if (is_of_scope(each, history->scope))
            append_record(&text, each);
    }
    bool is_cut = json_array_size(history->search.records) >= history->search.limit;
    reply(request, &(struct told){history->sandbox_id, "events", text.data ? text.data : "", NULL, is_cut});
}

static enum kv_outcome history_rule(struct kv *kv, void *argument, struct error *err)
{
    struct history *history = argument;
    if (!audit_search_step(kv, &history->search, err))
        return KV_FAILED;
    history->done = history->search.done;
    return KV_APPLIED;
}

static bool is_over(const void *argument)
{
    const struct history *history = argument;
    return history->done || atomic_load(&history->errand.abandoned);
}

/* It is there, and the asker's or an admin asks: what others do in it, with what was shared with them, is his business
 * too. */
static void search_events(struct http_request *request, const struct question *q)
{
    struct error none = {0};
    struct history *history = memory_new(sizeof *history);
    struct audit_filter *filter = &history->search.filter;
    errand_begin(&history->errand, request);
    history->errand.print = print_events;
    history->errand.free = history_free;
    bool read = read_scope(request, &history->scope, &none) &&
                read_count(request, "limit", EVENTS, EVENTS_MAX, &history->search.limit, &none) &&
                text_copy(history->sandbox_id, sizeof history->sandbox_id, q->sandbox.id) &&
                text_copy(history->principal, sizeof history->principal, q->caller.principal.name);
    if (!read) /* it was read once */
        history->search.limit = EVENTS;
    history->search.newest = true;
    filter->sandbox_id = history->sandbox_id;
    filter->principal = q->caller.principal.role == ROLE_ADMIN ? NULL : history->principal;
    filter->or_plane = filter->principal ? "sandboxd" : NULL;
    errand_send_long(request, &history->errand, history_rule, is_over);
}

static void begin_events(struct http_request *request, const struct question *q)
{
    struct error gone = {0};
    if (osb_is_shown(&q->sandbox)) {
        search_events(request, q);
        return;
    }
    error_set(&gone, ERROR_NOT_FOUND, "sandbox %s has ended: %s", q->sandbox.id, q->sandbox.reason);
    osb_answer(request, &gone);
}

static void get_events(struct http_request *request)
{
    struct osb_refusal refusal = {.code = NULL};
    enum scope scope;
    size_t limit;
    AUTO(question) *q = question_new();
    q->verb = QUESTION_SANDBOX;
    if (plane_caller(request, &q->caller, &refusal.err) && osb_sandbox_id(request, q->sandbox_id, &refusal.err) &&
        read_scope(request, &scope, &refusal.err) &&
        read_count(request, "limit", EVENTS, EVENTS_MAX, &limit, &refusal.err))
        osb_ask(request, TAKE(q), begin_events);
    else
        osb_refuse_quietly(request, &refusal);
}

struct plane_rows osb_diagnostics_rows(void)
{
    static const struct http_route ROWS[] = {
        {"GET", "/v1/sandboxes/{sandbox_id}/diagnostics/logs", OSB_KEY, "user", 0, get_logs},
        {"GET", "/v1/sandboxes/{sandbox_id}/diagnostics/events", OSB_KEY, "viewer", 0, get_events},
    };
    return (struct plane_rows){ROWS, sizeof ROWS / sizeof *ROWS};
}
