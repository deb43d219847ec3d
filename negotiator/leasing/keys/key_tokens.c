#include "negotiator/leasing/keys/key_tokens.h"

#include "negotiator/leasing/families.h"
#include "negotiator/leasing/leasing_internal.h"
#include "negotiator/leasing/marks.h"
#include "shared/base/log.h"
#include "shared/base/memory.h"
#include "shared/base/text.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Of a key with more families than WIDE its principal is marked: every node keeps every mark. */
enum { STEP = 128, WIDE = 2048, GONE_MAX = 1000 };
static const char FAMILIES[] = "keyfam", GONE[] = "keygone";
static const int64_t KEEP_MS = 60000; /* longer than the family's last token */

bool key_tokens_note(struct work *work, const struct caller *caller, const struct capability_claims *claims)
{
    const char *key_id = caller->principal.key_id;
    AUTO_KV_VALUE before = {0};
    char text[32];
    if (key_id[0] == '\0')
        return true;
    struct store_row row = store_key(FAMILIES, key_id, claims->family);
    if (!kv_get(work->kv, row.text, &before, work->err))
        return false;
    int64_t until = before.revision ? strtoll(before.data, NULL, 10) : 0;
    if (claims->expires_at > until)
        until = claims->expires_at;
    snprintf(text, sizeof text, "%" PRId64, until);
    kv_change_put(work->change, row.text, text, strlen(text));
    if (before.revision == 0) /* later ones prolong it */
        store_forget_at(work, until * 1000 + KEEP_MS, row.text);
    return true;
}

bool key_tokens_until(const struct kv_value *value, int64_t now, int64_t *until)
{
    *until = value->revision ? strtoll(value->data, NULL, 10) * 1000 + KEEP_MS : 0;
    return *until > now;
}

bool key_tokens_allow(struct work *work, const struct caller *caller, struct error *refusal)
{
    const char *key_id = caller->principal.key_id;
    AUTO_KV_VALUE index = {0};
    if (key_id[0] == '\0')
        return true;
    if (!kv_get(work->kv, store_key("key", key_id, NULL).text, &index, work->err))
        return false;
    return index.revision > 0 || error_set(refusal, ERROR_UNAUTHENTICATED, "the API key is missing or not valid");
}

/* --- the end of a key --- */

static bool count_one(void *cookie, const char *row UNUSED, const struct kv_value *value UNUSED)
{
    ++*(size_t *)cookie;
    return true;
}

static void mark_principal(struct work *work, const struct api_key *key, struct mark *mark)
{
    *mark = (struct mark){.kind = MARK_PRINCIPAL, .until = marks_longest(work->leasing, NULL, work->now)};
    memcpy(mark->value, key->principal, sizeof key->principal);
    mark->before = marks_before(work->leasing, mark, work->now);
    marks_add(work, mark);
}

bool key_tokens_condemn(struct work *work, const struct api_key *key, struct mark *mark)
{
    size_t count = 0;
    struct store_row rows = store_key(FAMILIES, key->id, "");
    mark->number = 0;
    if (!kv_range(work->kv, rows.text, NULL, WIDE + 1, count_one, &count, work->err))
        return false;
    if (count == 0)
        return true;
    bool wide = count > WIDE;
    if (wide)
        mark_principal(work, key, mark);
    json_t *json = json_pack("{s:s, s:b}", "principal", key->principal, "wide", (int)wide);
    AUTO_FREE char *text = json_dumps(json, JSON_COMPACT);
    json_decref(json);
    kv_change_put(work->change, store_key(GONE, key->id, NULL).text, text, strlen(text));
    return true;
}

/* One key's families on their way to be marked. */
struct ending {
    struct leasing *leasing;
    void (*done)(void *cookie, const struct error *err); /* NULL: nobody waits */
    void *cookie;
    char key_id[RANDOM_ID_BYTES];
    /* Set anew by each run of the rule. */
    bool wide, over;
    char principal[PRINCIPAL_BYTES];
    char families[STEP][CAPABILITY_ID_BYTES];
    size_t count;
    struct mark marks[STEP];
    size_t mark_count;
};

static bool note_family(void *cookie, const char *row, const struct kv_value *value UNUSED)
{
    struct ending *ending = cookie;
    return ending->count < STEP &&
           text_copy(ending->families[ending->count++], CAPABILITY_ID_BYTES, strrchr(row, '/') + 1);
}

static bool read_gone(struct work *work, struct ending *ending)
{
    AUTO_KV_VALUE value = {0};
    if (!kv_get(work->kv, store_key(GONE, ending->key_id, NULL).text, &value, work->err))
        return false;
    ending->over = value.revision == 0; /* it had none */
    if (ending->over)
        return true;
    json_t *json = json_loadb(value.data, value.size, 0, NULL);
    ending->wide = json_is_true(json_object_get(json, "wide"));
    bool whole =
        text_copy(ending->principal, sizeof ending->principal, json_string_value(json_object_get(json, "principal")));
    json_decref(json);
    return whole ||
           error_set(work->err, ERROR_INTERNAL, "the row that tells of the end of key %s is damaged", ending->key_id);
}

/* The mark of the whole principal is about those of its own; not about what it shared with others. */
static bool end_family(struct work *work, struct ending *ending, const char *id)
{
    struct family family;
    if (!family_get(work, id, &family))
        return false;
    kv_change_delete(work->change, store_key(FAMILIES, ending->key_id, id).text);
    bool is_marked = ending->wide && strcmp(family.principal, ending->principal) == 0;
    if (family.revision == 0 || family.until + CAPABILITY_LEEWAY_S < work->now / 1000 || is_marked)
        return true;
    struct mark *mark = &ending->marks[ending->mark_count++];
    *mark = (struct mark){.kind = MARK_FAMILY, .before = MARK_ANY_TIME, .until = family.until};
    memcpy(mark->value, family.id, sizeof family.id);
    marks_add(work, mark);
    return true;
}

static enum kv_outcome end_rule(struct kv *kv, void *argument, struct error *err)
{
    struct ending *ending = argument;
    AUTO(kv_change) *change = kv_change_new();
    struct work work = work_begin(ending->leasing, kv, change, err);
    struct store_row rows = store_key(FAMILIES, ending->key_id, "");
    ending->count = ending->mark_count = 0;
    if (!read_gone(&work, ending))
        return KV_FAILED;
    if (ending->over)
        return KV_APPLIED;
    if (!kv_range(kv, rows.text, NULL, STEP, note_family, ending, err))
        return KV_FAILED;
    for (size_t i = 0; i < ending->count; i++) {
        if (!end_family(&work, ending, ending->families[i]))
            return KV_FAILED;
    }
    ending->over = ending->count < STEP;
    if (ending->over)
        kv_change_delete(change, store_key(GONE, ending->key_id, NULL).text);
    return store_apply(&work);
}

static void answer(struct ending *ending, const struct error *err)
{
    if (err->kind != ERROR_NONE)
        log_error("leasing", "the tokens of key %s are not all marked: %s", ending->key_id, err->message);
    if (ending->done)
        ending->done(ending->cookie, err);
    free(ending);
}

static void end_done(void *argument, const struct error *err)
{
    struct ending *ending = argument;
    struct leasing *leasing = ending->leasing;
    bool failed = err->kind != ERROR_NONE; /* the next start goes on with it */
    for (size_t i = 0; !failed && i < ending->mark_count; i++)
        marks_made(leasing, &ending->marks[i], i + 1 == ending->mark_count);
    if (failed || ending->over || atomic_load(&leasing->stopping))
        answer(ending, err);
    else
        ledger_submit(leasing->options.ledger, end_rule, end_done, ending);
}

void key_tokens_end(struct leasing *leasing, const char *key_id, void (*done)(void *cookie, const struct error *err),
                    void *cookie)
{
    struct ending *ending = memory_new(sizeof *ending);
    ending->leasing = leasing;
    ending->done = done;
    ending->cookie = cookie;
    memcpy(ending->key_id, key_id, sizeof ending->key_id);
    ledger_submit(leasing->options.ledger, end_rule, end_done, ending);
}

/* --- after a start --- */

struct resuming {
    struct leasing *leasing;
    char ids[GONE_MAX][RANDOM_ID_BYTES];
    size_t count;
};

static bool note_gone(void *cookie, const char *row, const struct kv_value *value UNUSED)
{
    struct resuming *resuming = cookie;
    return resuming->count < GONE_MAX &&
           text_copy(resuming->ids[resuming->count++], RANDOM_ID_BYTES, strrchr(row, '/') + 1);
}

static enum kv_outcome resume_rule(struct kv *kv, void *argument, struct error *err)
{
    struct resuming *resuming = argument;
    resuming->count = 0;
    return kv_range(kv, "keygone/", NULL, GONE_MAX, note_gone, resuming, err) ? KV_APPLIED : KV_FAILED;
}

static void resume_done(void *argument, const struct error *err)
{
    AUTO_FREE struct resuming *resuming = argument;
    if (err->kind != ERROR_NONE)
        log_error("leasing", "whose tokens are to end cannot be read: %s", err->message);
    for (size_t i = 0; i < resuming->count; i++)
        key_tokens_end(resuming->leasing, resuming->ids[i], NULL, NULL);
}

void key_tokens_resume(struct leasing *leasing)
{
    struct resuming *resuming = memory_new(sizeof *resuming);
    resuming->leasing = leasing;
    ledger_submit(leasing->options.ledger, resume_rule, resume_done, resuming);
}
