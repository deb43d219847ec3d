/* audit.c - the audit chain as JSON: records, head, proof (protocol.md, 7; specs/audit.md). Long ones go over the
 * ledger thread in steps, with other rules between them. */
#include "negotiator/ledger/audit.h"
#include "negotiator/dialects/errand.h"
#include "shared/base/clock.h"
#include "shared/base/log.h"
#include "shared/base/memory.h"
#include "shared/base/text.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum { VERIFY_BODY_BYTES = 4096, PAGE_DEFAULT = 100, ID_BYTES = 65 };

/* A request on its way over the ledger thread, one or more times. */
struct asking {
    struct errand errand;
    bool done; /* set by the rule; else the next step is to come */
    void (*print)(struct http_request *request, struct asking *asking);

    /* GET /audit */
    struct audit_search search;
    bool judged; /* whose the sandbox is that is asked for */
    char principal[PRINCIPAL_BYTES], thread_id[CAPABILITY_THREAD_BYTES], sandbox_id[ID_BYTES], jti[ID_BYTES],
        link[ID_BYTES], action[ID_BYTES], since[CLOCK_TEXT_BYTES], until[CLOCK_TEXT_BYTES];

    /* GET /audit/head; POST /audit/verify: one that was kept */
    struct audit_position head;
    bool kept;
    struct audit_proof proof;
};

static void asking_free(struct asking *asking)
{
    if (asking == NULL)
        return;
    audit_search_done(&asking->search);
    free(asking);
}
DEFINE_AUTO(asking)

static void free_errand(struct errand *errand)
{
    asking_free((struct asking *)errand);
}

static void print_asking(struct http_request *request, struct errand *errand)
{
    struct asking *asking = (struct asking *)errand;
    if (errand->err.kind != ERROR_NONE)
        http_reply_error(request, &errand->err);
    else
        asking->print(request, asking);
}

static struct asking *new_asking(const struct http_request *request,
                                 void (*print)(struct http_request *request, struct asking *asking))
{
    struct asking *asking = memory_new(sizeof *asking);
    errand_begin(&asking->errand, request);
    asking->errand.print = print_asking;
    asking->errand.free = free_errand;
    asking->print = print;
    return asking;
}

static bool is_over(const void *argument)
{
    const struct asking *asking = argument;
    return asking->done || atomic_load(&asking->errand.abandoned);
}

/* --- records --- */

/* What others do in one's own sandbox, with what was shared with them, is one's own business too. */
static bool widen(struct kv *kv, struct asking *asking, struct error *err)
{
    struct audit_filter *filter = &asking->search.filter;
    bool is_owner = false;
    if (asking->judged || filter->principal == NULL || filter->sandbox_id == NULL)
        return true;
    asking->judged = true;
    if (!leasing_is_owner(kv, filter->sandbox_id, filter->principal, &is_owner, err))
        return false;
    filter->or_plane = is_owner ? "sandboxd" : NULL;
    return true;
}

static enum kv_outcome search_rule(struct kv *kv, void *argument, struct error *err)
{
    struct asking *asking = argument;
    if (!widen(kv, asking, err) || !audit_search_step(kv, &asking->search, err))
        return KV_FAILED;
    asking->done = asking->search.done;
    return KV_APPLIED;
}

static void print_records(struct http_request *request, struct asking *asking)
{
    struct audit_search *search = &asking->search;
    json_t *next = search->next > 0 ? json_integer((json_int_t)search->next) : json_null();
    http_reply_json(request, 200, json_pack("{s:o, s:o}", "records", TAKE(search->records), "next", next));
}

/* A filter; what it may be made of is what stands in JSON as it is. */
static bool read_word(const struct http_request *request, const char *name, char *to, size_t size, const char **filter,
                      struct error *err)
{
    static const char ALSO[] = "._:@+-";
    const char *word = http_request_query(request, name);
    if (word == NULL)
        return true;
    if (!text_is_made_of(word, size - 1, ALSO) || !text_copy(to, size, word))
        return error_set(err, ERROR_INVALID, "%s must be 1 to %zu of A-Za-z0-9%s", name, size - 1, ALSO);
    *filter = to;
    return true;
}

static bool read_time(const struct http_request *request, const char *name, char to[static CLOCK_TEXT_BYTES],
                      const char **filter, struct error *err)
{
    const char *text = http_request_query(request, name);
    int64_t when;
    if (text == NULL)
        return true;
    if (!clock_parse(text, &when))
        return error_set(err, ERROR_INVALID, "%s must be a time like 2026-11-22T01:02:03.004Z", name);
    clock_format(to, when);
    *filter = to;
    return true;
}

static bool read_number(const struct http_request *request, const char *name, uint64_t min, uint64_t max,
                        uint64_t *number, struct error *err)
{
    const char *text = http_request_query(request, name);
    uint64_t found;
    if (text == NULL)
        return true;
    if (!text_parse_u64(text, strlen(text), max, &found) || found < min)
        return error_set(err, ERROR_INVALID, "%s must be %" PRIu64 " to %" PRIu64, name, min, max);
    *number = found;
    return true;
}

static bool read_page(const struct http_request *request, struct audit_search *search, struct error *err)
{
    uint64_t limit = PAGE_DEFAULT, last = 0;
    if (!read_number(request, "after", 0, INT64_MAX, &search->after, err) ||
        !read_number(request, "limit", 1, AUDIT_PAGE_MAX, &limit, err) ||
        !read_number(request, "last", 1, AUDIT_PAGE_MAX, &last, err))
        return false;
    if (last > 0 && (http_request_query(request, "after") || http_request_query(request, "limit")))
        return error_set(err, ERROR_INVALID, "last goes with neither after nor limit");
    search->newest = last > 0;
    search->limit = (size_t)(last > 0 ? last : limit);
    return true;
}

/* Whose records. */
static bool read_owner(const struct http_request *request, struct asking *asking, struct error *err)
{
    struct caller caller = {.remote = ""};
    if (!plane_whose(request, &caller, asking->principal, err))
        return false;
    asking->search.chained = http_request_query(request, "all") != NULL;
    if (asking->principal[0])
        asking->search.filter.principal = asking->principal;
    return true;
}

static bool read_question(const struct http_request *request, struct asking *asking, struct error *err)
{
    struct audit_filter *filter = &asking->search.filter;
    return read_owner(request, asking, err) && read_page(request, &asking->search, err) &&
           read_word(request, "thread", asking->thread_id, sizeof asking->thread_id, &filter->thread_id, err) &&
           read_word(request, "sandbox", asking->sandbox_id, sizeof asking->sandbox_id, &filter->sandbox_id, err) &&
           read_word(request, "jti", asking->jti, sizeof asking->jti, &filter->jti, err) &&
           read_word(request, "link", asking->link, sizeof asking->link, &filter->link, err) &&
           read_word(request, "action", asking->action, sizeof asking->action, &filter->action, err) &&
           read_time(request, "since", asking->since, &filter->since, err) &&
           read_time(request, "until", asking->until, &filter->until, err);
}

static void list_records(struct http_request *request)
{
    struct error err = {0};
    AUTO(asking) *asking = new_asking(request, print_records);
    if (read_question(request, asking, &err))
        errand_send_long(request, &TAKE(asking)->errand, search_rule, is_over);
    else if (err.kind == ERROR_FORBIDDEN)
        plane_refuse(request, &err);
    else
        http_reply_error(request, &err);
}

/* --- the head --- */

static enum kv_outcome head_rule(struct kv *kv, void *argument, struct error *err)
{
    struct asking *asking = argument;
    return audit_head(kv, &asking->head.seq, asking->head.hash, err) ? KV_APPLIED : KV_FAILED;
}

static json_t *show_position(const struct audit_position *position)
{
    char hash[2 * AUDIT_HASH_BYTES + 1];
    text_hex(hash, position->hash, AUDIT_HASH_BYTES);
    return json_pack("{s:I, s:s}", "seq", (json_int_t)position->seq, "hash", hash);
}

static void print_head(struct http_request *request, struct asking *asking)
{
    char now[CLOCK_TEXT_BYTES];
    clock_format(now, clock_wall_ms());
    json_t *shown = show_position(&asking->head);
    json_object_set_new(shown, "time", json_string(now));
    http_reply_json(request, 200, shown);
}

static void show_head(struct http_request *request)
{
    errand_send(request, &new_asking(request, print_head)->errand, head_rule);
}

/* --- the proof --- */

static enum kv_outcome prove_rule(struct kv *kv, void *argument, struct error *err)
{
    struct asking *asking = argument;
    struct audit_proof *proof = &asking->proof;
    if (!audit_prove(kv, proof, AUDIT_STEP, err))
        return KV_FAILED;
    asking->done = proof->whole || proof->flaw.kind != ERROR_NONE;
    if (!proof->whole || !asking->kept || audit_verify_head(kv, asking->head.seq, asking->head.hash, &proof->flaw))
        return KV_APPLIED;
    proof->at = asking->head.seq;
    if (proof->flaw.kind == ERROR_INVALID)
        return KV_APPLIED; /* that is an answer */
    *err = proof->flaw;
    return KV_FAILED;
}

static void print_proof(struct http_request *request, struct asking *asking)
{
    const struct audit_proof *proof = &asking->proof;
    if (proof->flaw.kind != ERROR_NONE) {
        log_error("audit", "the chain does not hold: %s", proof->flaw.message);
        http_reply_json(
            request, 200,
            json_pack("{s:b, s:s, s:I}", "ok", 0, "error", proof->flaw.message, "at", (json_int_t)proof->at));
        return;
    }
    json_t *shown = show_position(&proof->last);
    json_t *hash = json_incref(json_object_get(shown, "hash"));
    json_decref(shown);
    json_int_t first = proof->records > 0 ? (json_int_t)proof->sealed.last + 1 : 0;
    http_reply_json(request, 200,
                    json_pack("{s:b, s:I, s:I, s:I, s:I, s:o}", "ok", 1, "records", (json_int_t)proof->records,
                              "sealed", (json_int_t)proof->sealed.last, "first", first, "last",
                              (json_int_t)proof->last.seq, "hash", hash));
}

static bool read_kept(const struct http_request *request, struct asking *asking, struct error *err)
{
    json_t *body = http_request_json(request, err);
    if (body == NULL)
        return false;
    const json_t *seq = json_object_get(body, "seq");
    const json_t *hash = json_object_get(body, "hash");
    bool read = true;
    asking->kept = json_object_size(body) > 0;
    if (asking->kept) {
        json_int_t number = json_is_integer(seq) ? json_integer_value(seq) : -1;
        const char *text = json_string_value(hash);
        read = json_object_size(body) == 2 && number >= 0 && text &&
               text_hex_decode(asking->head.hash, AUDIT_HASH_BYTES, text, strlen(text));
        asking->head.seq = read ? (uint64_t)number : 0;
    }
    json_decref(body);
    return read || error_set(err, ERROR_INVALID,
                             "the body must be {} or a head that was kept: seq, a number, and hash, %d hex digits",
                             2 * AUDIT_HASH_BYTES);
}

static void verify(struct http_request *request)
{
    struct error err = {0};
    AUTO(asking) *asking = new_asking(request, print_proof);
    if (!read_kept(request, asking, &err)) {
        http_reply_error(request, &err);
        return;
    }
    asking->proof.key = leasing_audit_key(asking->errand.plane->leasing);
    errand_send_long(request, &TAKE(asking)->errand, prove_rule, is_over);
}

struct plane_rows audit_rows(void)
{
    static const struct http_route ROWS[] = {
        {"GET", "/audit", HTTP_BEARER | HTTP_API_KEY, "viewer", 0, list_records},
        {"GET", "/audit/head", HTTP_BEARER | HTTP_API_KEY, "viewer", 0, show_head},
        {"POST", "/audit/verify", HTTP_BEARER | HTTP_API_KEY, "admin", VERIFY_BODY_BYTES, verify},
    };
    return (struct plane_rows){ROWS, sizeof ROWS / sizeof *ROWS};
}
