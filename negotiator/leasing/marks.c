#include "negotiator/leasing/marks.h"

#include "negotiator/leasing/allowance.h"
#include "negotiator/leasing/revocations.h"
#include "shared/base/memory.h"
#include "shared/base/text.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MARKS_PREFIX "mark/"
enum { FORGET_EVERY = 4096, AHEAD_MAX = 512, KEEP_S = 60, NEW_MAX = 2 * LEDGER_BATCH_MAX };

/* A node that was heard of since the start. */
struct peer {
    char node[SANDBOX_NODE_BYTES];
    uint64_t cursor; /* it has the marks up to here */
    bool is_ours;    /* of this ledger id; else it has none */
    bool is_pushed;  /* a push is under way */
};

/* A token that was issued ahead of the clock, until the clock has come there. */
struct ahead {
    struct capability_claims claims;
    struct ahead *next;
};

struct marks {
    char ledger_id[RANDOM_ID_BYTES];
    struct mark_set *set;
    uint64_t given, made; /* the last number given; the last that is durable */
    struct mark *new;     /* of this batch, in force at once: the rules behind theirs heed them; some came to nothing */
    size_t new_count;
    size_t since_forgotten;
    struct peer *peers;
    size_t peer_count;
    struct ahead *ahead;
    size_t ahead_count;
    int64_t ahead_unknown; /* s: tokens that are not in the list may have been issued ahead up to here */
    int64_t ahead_durable; /* s: what the row meta/ahead says, or more */
    int64_t longest_s;     /* of the tokens that were ever issued: the row meta/longest */
};

struct marks *marks_new(void)
{
    struct marks *marks = memory_new(sizeof *marks);
    random_id(marks->ledger_id, "led");
    marks->set = mark_set_new();
    return marks;
}

void marks_free(struct marks *marks)
{
    if (marks == NULL)
        return;
    for (struct ahead *next, *each = marks->ahead; each; each = next) {
        next = each->next;
        free(each);
    }
    mark_set_free(marks->set);
    free(marks->peers);
    free(marks->new);
    free(marks);
}

/* --- rows --- */

static void put_number(struct work *work, const char *key, uint64_t number)
{
    char text[32];
    snprintf(text, sizeof text, "%" PRIu64, number);
    kv_change_put(work->change, key, text, strlen(text));
}

static bool get_number(struct work *work, const char *key, uint64_t *number)
{
    AUTO_KV_VALUE value = {0};
    *number = 0;
    if (!kv_get(work->kv, key, &value, work->err))
        return false;
    return value.revision == 0 || text_parse_u64(value.data, value.size, INT64_MAX, number) ||
           error_set(work->err, ERROR_INTERNAL, "the row %s is damaged", key);
}

struct loading {
    struct mark_set *set;
    uint64_t last;
    int64_t now_s;
    bool damaged;
};

static bool load_row(void *cookie, const char *key UNUSED, const struct kv_value *value)
{
    struct loading *loading = cookie;
    struct mark mark;
    json_t *json = json_loadb(value->data, value->size, 0, NULL);
    loading->damaged = json == NULL || !mark_parse(&mark, json, NULL);
    json_decref(json);
    if (loading->damaged)
        return false;
    loading->last = mark.number;
    if (mark.until + KEEP_S >= loading->now_s)
        mark_set_add(loading->set, &mark);
    return true;
}

bool marks_load(struct work *work)
{
    struct marks *marks = work->leasing->marks;
    struct loading loading = {.set = mark_set_new(), .now_s = work->now / 1000};
    uint64_t last = 0, ahead = 0, longest = 0, set = (uint64_t)work->leasing->options.limits.long_ttl_max_s;
    bool read = kv_range(work->kv, MARKS_PREFIX, NULL, 0, load_row, &loading, work->err) &&
                (!loading.damaged || error_set(work->err, ERROR_INTERNAL, "the row of a mark is damaged")) &&
                get_number(work, "meta/marks", &last) && get_number(work, "meta/ahead", &ahead) &&
                get_number(work, "meta/longest", &longest);
    if (!read) {
        mark_set_free(loading.set);
        return false;
    }
    mark_set_free(marks->set);
    marks->set = loading.set;
    marks->given = marks->made = last > loading.last ? last : loading.last;
    marks->ahead_unknown = marks->ahead_durable = (int64_t)ahead;
    marks->longest_s = (int64_t)(longest > set ? longest : set);
    if (set > longest) /* a setting that is lowered leaves tokens behind that are valid for longer */
        put_number(work, "meta/longest", set);
    kv_change_put(work->change, "meta/ledger", marks->ledger_id, strlen(marks->ledger_id));
    return true;
}

struct mark_key {
    char text[sizeof MARKS_PREFIX + 16];
};

static struct mark_key key_of(uint64_t number)
{
    struct mark_key key;
    snprintf(key.text, sizeof key.text, MARKS_PREFIX "%016" PRIx64, number);
    return key;
}

/* Every node keeps every mark until its end: what is bounded is how many a principal has at a time. A mark takes the
 * seconds that it lives; of those that drain this many on average, of long ones, some hundred at once. */
enum { KEPT_MARKS = 20000, AT_ONCE_S = 600 };

bool marks_may_add(struct work *work, const struct caller *caller, int64_t until, bool *charged, struct error *refusal)
{
    static const struct allowance_limit LIMIT = {.most = (int64_t)KEPT_MARKS * AT_ONCE_S,
                                                 .per_hour = (int64_t)KEPT_MARKS * 3600};
    char who[PRINCIPAL_BYTES + 8];
    int64_t cost = until + KEEP_S - work->now / 1000;
    if (*charged || caller->principal.role == ROLE_ADMIN)
        return true;
    snprintf(who, sizeof who, "kept/%s", caller->principal.name);
    *charged = allowance_take(work->leasing->allowance, who, LIMIT, cost > KEEP_S ? cost : KEEP_S, work->now);
    return *charged || error_set(refusal, ERROR_RATE_LIMITED,
                                 "too many tokens of %s were refreshed or released lately; ask again later",
                                 caller->principal.name);
}

/* What is only in force later is not heeded by any rule of this batch. */
static void note_new(struct marks *marks, const struct mark *mark)
{
    if (mark->from_ms > 0)
        return;
    if (marks->new_count == NEW_MAX)
        marks->new_count = 0; /* many batches that failed: no number of theirs has a row */
    if (marks->new == NULL)
        marks->new = memory_array(NEW_MAX, sizeof *marks->new);
    marks->new[marks->new_count++] = *mark;
}

void marks_add(struct work *work, struct mark *mark)
{
    mark->number = ++work->leasing->marks->given;
    struct mark_key key = key_of(mark->number);
    json_t *json = mark_format(mark);
    AUTO_FREE char *text = json_dumps(json, JSON_COMPACT);
    json_decref(json);
    kv_change_put(work->change, key.text, text, strlen(text));
    put_number(work, "meta/marks", mark->number);
    store_forget_at(work, (mark->until + KEEP_S) * 1000, key.text);
    note_new(work->leasing->marks, mark);
}

int64_t marks_longest(const struct leasing *leasing, const struct lease *lease, int64_t now_ms)
{
    bool has_long = lease == NULL || lease->has_long;
    return now_ms / 1000 + MARKS_AHEAD_MAX_S + 1 + (has_long ? leasing->marks->longest_s : WANTED_TTL_MAX_S);
}

const struct mark *marks_refuse(const struct leasing *leasing, const struct capability_claims *claims, int64_t now_ms)
{
    return mark_set_refuses(leasing->marks->set, claims, now_ms);
}

/* Its change was applied: a run that a conflict ended leaves a number without a row. */
static bool is_applied(struct work *work, const struct mark *mark, bool *applied)
{
    AUTO_KV_VALUE value = {0};
    if (!kv_get(work->kv, key_of(mark->number).text, &value, work->err))
        return false;
    *applied = value.revision > 0;
    return true;
}

bool marks_forbid(struct work *work, const struct capability_claims *claims, bool *forbidden)
{
    const struct marks *marks = work->leasing->marks;
    *forbidden = marks_refuse(work->leasing, claims, 0) != NULL;
    for (size_t i = 0; i < marks->new_count && !*forbidden; i++) {
        if (mark_refuses(&marks->new[i], claims, 0) && !is_applied(work, &marks->new[i], forbidden))
            return false;
    }
    return true;
}

/* --- times --- */

/* Of those that the clock has reached nothing need be known any more. */
static void drop_reached(struct marks *marks, int64_t now_s)
{
    for (struct ahead **link = &marks->ahead; *link;) {
        struct ahead *each = *link;
        if (each->claims.issued_at > now_s) {
            link = &each->next;
            continue;
        }
        *link = each->next;
        marks->ahead_count--;
        free(each);
    }
}

int64_t marks_iat(const struct work *work, const struct capability_claims *claims)
{
    const struct marks *marks = work->leasing->marks;
    int64_t now_s = work->now / 1000, newest = mark_set_newest_before(marks->set, claims);
    for (size_t i = 0; i < marks->new_count; i++) { /* one that came to nothing costs a second at most */
        const struct mark *mark = &marks->new[i];
        if (mark->before != MARK_ANY_TIME && mark->before > newest && mark_matches(mark, claims))
            newest = mark->before;
    }
    return newest + 1 > now_s ? newest + 1 : now_s;
}

/* A start that comes soon after must know of it too, so it is durable with the token. */
void marks_issued(struct work *work, const struct capability_claims *claims)
{
    struct marks *marks = work->leasing->marks;
    int64_t issued_at = claims->issued_at;
    if (issued_at <= work->now / 1000)
        return;
    drop_reached(marks, work->now / 1000);
    if (issued_at > marks->ahead_durable)
        put_number(work, "meta/ahead", (uint64_t)issued_at);
    if (marks->ahead_count >= AHEAD_MAX) {
        marks->ahead_unknown = issued_at > marks->ahead_unknown ? issued_at : marks->ahead_unknown;
        return;
    }
    struct ahead *ahead = memory_new(sizeof *ahead);
    capability_claims_copy(&ahead->claims, claims);
    ahead->next = marks->ahead;
    marks->ahead = ahead;
    marks->ahead_count++;
}

int64_t marks_before(const struct leasing *leasing, const struct mark *mark, int64_t now_ms)
{
    const struct marks *marks = leasing->marks;
    int64_t before = now_ms / 1000;
    if (marks->ahead_unknown > before)
        before = marks->ahead_unknown;
    for (const struct ahead *each = marks->ahead; each; each = each->next) {
        if (each->claims.issued_at > before && mark_matches(mark, &each->claims))
            before = each->claims.issued_at;
    }
    return before;
}

/* --- nodes --- */

static struct peer *find_peer(const struct marks *marks, const char *node)
{
    for (size_t i = 0; i < marks->peer_count; i++) {
        if (strcmp(marks->peers[i].node, node) == 0)
            return &marks->peers[i];
    }
    return NULL;
}

static struct peer *note_peer(struct marks *marks, const char *node)
{
    struct peer *peer = find_peer(marks, node);
    if (peer)
        return peer;
    struct peer fresh = {.cursor = 0};
    if (!text_copy(fresh.node, sizeof fresh.node, node))
        return NULL;
    marks->peers = memory_resize(marks->peers, (marks->peer_count + 1) * sizeof *marks->peers);
    marks->peers[marks->peer_count] = fresh;
    return &marks->peers[marks->peer_count++];
}

bool marks_has(const struct leasing *leasing, const char *node, uint64_t number)
{
    const struct peer *peer = find_peer(leasing->marks, node);
    return peer && peer->is_ours && peer->cursor >= number;
}

struct page {
    json_t *list;
    uint64_t last;
};

static bool add_to_page(void *cookie, const struct mark *mark)
{
    struct page *page = cookie;
    json_array_append_new(page->list, mark_format(mark));
    page->last = mark->number;
    return json_array_size(page->list) < MARKS_PAGE_MAX;
}

json_t *marks_page(struct leasing *leasing, const char *node)
{
    const struct marks *marks = leasing->marks;
    const struct peer *peer = find_peer(marks, node);
    uint64_t after = peer && peer->is_ours ? peer->cursor : 0;
    if (peer && peer->is_ours && peer->cursor == marks->made)
        return NULL;
    struct page page = {.list = json_array()};
    mark_set_each(marks->set, after, add_to_page, &page);
    bool whole = json_array_size(page.list) < MARKS_PAGE_MAX; /* numbers that are not there any more are over */
    return json_pack("{s:s, s:I, s:I, s:o}", "ledger_id", marks->ledger_id, "after", (json_int_t)after, "upto",
                     (json_int_t)(whole ? marks->made : page.last), "marks", page.list);
}

/* One call of `marks`. */
struct push {
    struct leasing *leasing;
    char node[SANDBOX_NODE_BYTES];
    char ledger_id[RANDOM_ID_BYTES]; /* of the answer; "" none came */
    uint64_t cursor;
};

static void push_marks(struct leasing *leasing, struct peer *peer);

static enum kv_outcome nothing_rule(struct kv *kv UNUSED, void *argument UNUSED, struct error *err UNUSED)
{
    return KV_APPLIED;
}

/* Goes on only when the node has taken something: else its next heartbeat does. */
static void push_answered(void *argument, const struct error *err UNUSED)
{
    AUTO_FREE struct push *push = argument;
    struct marks *marks = push->leasing->marks;
    struct peer *peer = find_peer(marks, push->node);
    uint64_t before = peer && peer->is_ours ? peer->cursor : 0;
    if (peer == NULL)
        return;
    peer->is_pushed = false;
    if (push->ledger_id[0] == '\0')
        return;
    marks_heard(push->leasing, push->node, push->ledger_id, push->cursor);
    if (peer->is_ours && peer->cursor > before)
        push_marks(push->leasing, peer);
}

static void push_done(void *cookie, const json_t *reply, const struct error *err)
{
    struct push *push = cookie;
    const char *ledger_id = json_string_value(json_object_get(reply, "ledger_id"));
    json_int_t cursor = json_integer_value(json_object_get(reply, "cursor"));
    if (err->kind == ERROR_NONE && cursor >= 0 && text_copy(push->ledger_id, sizeof push->ledger_id, ledger_id))
        push->cursor = (uint64_t)cursor;
    ledger_submit(push->leasing->options.ledger, nothing_rule, push_answered, push);
}

static void push_marks(struct leasing *leasing, struct peer *peer)
{
    const struct leasing_nodes *nodes = &leasing->options.nodes;
    if (peer->is_pushed || atomic_load(&leasing->stopping))
        return;
    json_t *page = marks_page(leasing, peer->node);
    if (page == NULL)
        return;
    struct push *push = memory_new(sizeof *push);
    push->leasing = leasing;
    memcpy(push->node, peer->node, sizeof push->node);
    json_object_set_new(page, "call", json_string("marks"));
    peer->is_pushed = true;
    nodes->call(nodes->context, push->node, page, push_done, push);
}

void marks_made(struct leasing *leasing, const struct mark *mark, bool urgent)
{
    struct marks *marks = leasing->marks;
    mark_set_add(marks->set, mark);
    marks->new_count = 0; /* the batch's rules have all run, and the set gets the rest of theirs before the next */
    marks->made = mark->number > marks->made ? mark->number : marks->made;
    if (++marks->since_forgotten >= FORGET_EVERY) {
        marks->since_forgotten = 0;
        mark_set_forget(marks->set, leasing->options.wall_ms());
    }
    for (size_t i = 0; urgent && i < marks->peer_count; i++)
        push_marks(leasing, &marks->peers[i]);
}

void marks_heard(struct leasing *leasing, const char *node, const char *ledger_id, uint64_t cursor)
{
    struct marks *marks = leasing->marks;
    struct peer *peer = note_peer(marks, node);
    if (peer == NULL)
        return;
    uint64_t before = peer->is_ours ? peer->cursor : 0;
    peer->is_ours = text_equal(ledger_id, marks->ledger_id);
    peer->cursor = !peer->is_ours ? 0 : cursor < marks->made ? cursor : marks->made;
    if (peer->cursor > before)
        revocations_acknowledged(leasing, node, before, peer->cursor);
}
