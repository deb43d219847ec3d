/* osb_snapshots.c - snapshots (L10 to L13). One is ready when its creation is answered. */
#include "negotiator/dialects/opensandbox/opensandbox.h"
#include "negotiator/dialects/opensandbox/osb_ask.h"
#include "negotiator/dialects/opensandbox/osb_codes.h"
#include "negotiator/dialects/opensandbox/osb_shown.h"
#include "negotiator/dialects/shown.h"
#include "negotiator/leasing/keeping/keeping.h"
#include "shared/base/memory.h"
#include "shared/base/text.h"

#include <string.h>
#include <strings.h>

enum { TAKE_BODY_BYTES = 4096 };

static const char *const STATES[SNAPSHOT_STATES] = {
    [SNAPSHOT_CREATING] = "Creating", [SNAPSHOT_READY] = "Ready", [SNAPSHOT_DELETING] = "Deleting"};

DEFINE_VISIT_BY(keeping, osb_answer)

/* --- the answers --- */

static json_t *shown_snapshot(const struct snapshot *snapshot)
{
    return json_pack("{s:s, s:s, s:s, s:{s:s, s:o}, s:o}", "id", snapshot->id, "sandboxId", snapshot->sandbox_id,
                     "name", snapshot->name, "status", "state", STATES[snapshot->state], "lastTransitionAt",
                     shown_time(snapshot->state_since), "createdAt", shown_time(snapshot->created_at));
}

static void print_taken(struct http_request *request, const struct keeping *k)
{
    AUTO_FREE char *location = memory_printf("/v1/snapshots/%s", k->snapshot.id);
    http_reply_header(request, "Location", location);
    http_reply_json(request, 202, shown_snapshot(&k->snapshot));
}

static void print_one(struct http_request *request, const struct keeping *k)
{
    http_reply_json(request, 200, shown_snapshot(&k->snapshot));
}

static void print_dropped(struct http_request *request, const struct keeping *k UNUSED)
{
    http_reply_empty(request, 204);
}

static void print_list(struct http_request *request, const struct keeping *k)
{
    json_t *items = json_array();
    for (size_t i = 0; i < k->count; i++)
        json_array_append_new(items, shown_snapshot(&k->list[i]));
    http_reply_json(request, 200,
                    json_pack("{s:o, s:o}", "items", items, "pagination",
                              osb_shown_pages(k->offset / k->limit + 1, k->limit, k->total)));
}

/* --- the questions --- */

static bool read_name(struct keeping *k, const char *name, struct error *err)
{
    return (sandbox_is_name(name) && text_copy(k->name, sizeof k->name, name)) ||
           error_set(err, ERROR_INVALID, "name must be 1 to %d of a-z0-9-, not beginning or ending with '-'",
                     SANDBOX_NAME_BYTES - 1);
}

static bool read_body(struct http_request *request, struct keeping *k, struct error *err)
{
    json_t *body = http_request_json(request, err);
    const json_t *name = json_object_get(body, "name");
    bool read = body && (name == NULL || json_is_null(name) || read_name(k, json_string_value(name), err));
    json_decref(body);
    return read;
}

/* Takes the question; what was refused before the rules were asked is said here. */
static void ask(struct http_request *request, struct keeping *k, const struct osb_refusal *refusal,
                void (*print)(struct http_request *request, const struct keeping *k))
{
    bool changes = k->verb == KEEPING_TAKE || k->verb == KEEPING_DROP;
    if (refusal->err.kind == ERROR_NONE) {
        leasing_keep(plane_of(request)->leasing, keeping_visit(request, k, print));
        return;
    }
    keeping_free(k);
    if (changes)
        osb_refuse(request, refusal);
    else
        osb_refuse_quietly(request, refusal);
}

static struct keeping *new_question(const struct http_request *request, enum keeping_verb verb,
                                    struct osb_refusal *refusal)
{
    struct keeping *k = keeping_new();
    k->verb = verb;
    (void)!plane_caller(request, &k->caller, &refusal->err);
    return k;
}

static void take(struct http_request *request)
{
    struct osb_refusal refusal = {.code = NULL};
    struct keeping *k = new_question(request, KEEPING_TAKE, &refusal);
    if (refusal.err.kind == ERROR_NONE && osb_sandbox_id(request, k->sandbox_id, &refusal.err))
        (void)!read_body(request, k, &refusal.err);
    ask(request, k, &refusal, print_taken);
}

static void ask_about(struct http_request *request, enum keeping_verb verb,
                      void (*print)(struct http_request *request, const struct keeping *k))
{
    struct osb_refusal refusal = {.code = NULL};
    struct keeping *k = new_question(request, verb, &refusal);
    const char *id = http_request_parameter(request, "snapshot_id");
    if (refusal.err.kind == ERROR_NONE &&
        !(random_is_id(id, "snp") && text_copy(k->snapshot_id, sizeof k->snapshot_id, id)))
        osb_refusal_set(&refusal, OSB_NO_SNAPSHOT, ERROR_NOT_FOUND,
                        "no such snapshot; an id looks like snp_ and 20 of a-z0-9");
    ask(request, k, &refusal, print);
}

static void show(struct http_request *request)
{
    ask_about(request, KEEPING_FIND, print_one);
}

static void drop(struct http_request *request)
{
    ask_about(request, KEEPING_DROP, print_dropped);
}

/* False: there can be none in such states, or of such a name or sandbox. */
static bool read_filter(const struct http_request *request, struct keeping *k)
{
    const char *sandbox = http_request_query(request, "sandboxId"), *name = http_request_query(request, "name"), *state;
    struct error none = {0};
    for (size_t i = 0; (state = http_request_query_nth(request, "state", i)); i++) {
        for (unsigned bit = 0; bit < SNAPSHOT_STATES; bit++)
            k->states |= strcasecmp(state, STATES[bit]) == 0 ? 1U << bit : 0;
    }
    bool has_state = k->states || http_request_query(request, "state") == NULL;
    return has_state && (name == NULL || read_name(k, name, &none)) &&
           (sandbox == NULL ||
            (random_is_id(sandbox, "sbx") && text_copy(k->sandbox_id, sizeof k->sandbox_id, sandbox)));
}

static void list(struct http_request *request)
{
    struct osb_refusal refusal = {.code = NULL};
    size_t page;
    struct keeping *k = new_question(request, KEEPING_PAGE, &refusal);
    if (refusal.err.kind == ERROR_NONE && osb_read_page(request, &page, &k->limit, &refusal.err)) {
        k->offset = (page - 1) * k->limit;
        if (!read_filter(request, k)) {
            print_list(request, k);
            keeping_free(k);
            return;
        }
    }
    ask(request, k, &refusal, print_list);
}

struct plane_rows osb_snapshots_rows(void)
{
    static const struct http_route ROWS[] = {
        {"POST", "/v1/sandboxes/{sandbox_id}/snapshots", OSB_KEY, "user", TAKE_BODY_BYTES, take},
        {"GET", "/v1/snapshots", OSB_KEY | HTTP_REPEATS, "viewer", 0, list},
        {"GET", "/v1/snapshots/{snapshot_id}", OSB_KEY, "viewer", 0, show},
        {"DELETE", "/v1/snapshots/{snapshot_id}", OSB_KEY, "user", 0, drop},
    };
    return (struct plane_rows){ROWS, sizeof ROWS / sizeof *ROWS};
}
