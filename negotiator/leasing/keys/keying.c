#include "negotiator/leasing/keys/keying.h"

#include "negotiator/leasing/incidents/freeze.h"
#include "negotiator/leasing/keys/key_tokens.h"
#include "negotiator/leasing/leasing_internal.h"
#include "shared/base/clock.h"
#include "shared/base/memory.h"
#include "shared/base/text.h"

#include <sodium.h>
#include <stdlib.h>
#include <string.h>

struct keying *keying_new(void)
{
    return memory_new(sizeof(struct keying));
}

static void forget_answer(struct keying *k)
{
    k->refusal = (struct error){0};
    free(TAKE(k->list));
    k->count = 0;
    k->next[0] = '\0';
    k->mark.number = 0;
    sodium_memzero(k->text, sizeof k->text);
}

void keying_free(struct keying *k)
{
    if (k == NULL)
        return;
    forget_answer(k);
    free(k);
}

static struct principal_table *table_of(const struct keying *k)
{
    return k->leasing->options.principals;
}

static bool changes(const struct keying *k)
{
    return k->verb != KEYING_FIND && k->verb != KEYING_LIST;
}

/* --- the record --- */

static const char *action_of(const struct keying *k)
{
    static const char *const ACTIONS[] = {
        [KEYING_ADD] = "key.create",    [KEYING_FIND] = "read",         [KEYING_LIST] = "read",
        [KEYING_CHANGE] = "key.update", [KEYING_ROTATE] = "key.rotate", [KEYING_DELETE] = "key.delete",
        [KEYING_LOGIN] = "login"};
    return ACTIONS[k->verb];
}

static void describe(struct text *to, const struct keying *k, const struct api_key *key)
{
    char time[CLOCK_TEXT_BYTES];
    text_append_format(to, "%s of %s, role %s", key->id, key->principal, role_name(key->role));
    if (key->actor[0])
        text_append_format(to, ", actor %s", key->actor);
    if (key->expires_at) {
        clock_format(time, key->expires_at);
        text_append_format(to, ", until %s", time);
    }
    if (k->verb == KEYING_ROTATE)
        text_append_format(to, ", the old text is good for %d s", (int)k->grace_s);
}

static bool audit(struct work *work, const struct keying *k, const struct api_key *key)
{
    AUTO_TEXT detail = {0};
    bool done = k->refusal.kind == ERROR_NONE;
    if (key)
        describe(&detail, k, key);
    else
        text_append_format(&detail, "%s%s%s", k->id, k->id[0] ? ": " : "", k->refusal.message);
    struct audit_record record = {.action = action_of(k),
                                  .outcome = done ? "ok" : "refused",
                                  .status = !done                   ? error_http_status(k->refusal.kind)
                                            : k->verb == KEYING_ADD ? 201
                                                                    : 200,
                                  .actor = k->caller.principal.actor,
                                  .detail = detail.data};
    return store_audit(work, &k->caller, &record);
}

/* --- who may --- */

static bool is_admin(const struct keying *k)
{
    return k->caller.principal.role == ROLE_ADMIN;
}

static bool covers_limit(int64_t own, int64_t other)
{
    return own <= 0 || (other > 0 && other <= own);
}

/* Whether the key that is shown may do all that the other one may: else its new text would give more than it has. */
static bool covers(const struct principal *own, const struct api_key *key)
{
    const struct quota *a = &own->limits, *b = &key->limits;
    return own->role >= key->role && (own->actor[0] == '\0' || strcmp(own->actor, key->actor) == 0) &&
           (own->expires_at == 0 || (key->expires_at && key->expires_at <= own->expires_at)) &&
           covers_limit(a->sandboxes, b->sandboxes) && covers_limit(a->cpu_milli, b->cpu_milli) &&
           covers_limit(a->memory_mb, b->memory_mb) && covers_limit(a->disk_mb, b->disk_mb) &&
           covers_limit(a->creates_per_minute, b->creates_per_minute);
}

static bool refuse_unknown(struct keying *k)
{
    return error_set(&k->refusal, ERROR_NOT_FOUND, "no such key");
}

/* The key of k->id, when the caller may see it. */
static bool find_key(struct work *work, struct keying *k, struct api_key *key)
{
    if (!api_key_get(work->kv, k->id, key, work->err))
        return false;
    bool own = strcmp(key->principal, k->caller.principal.name) == 0 && k->caller.principal.kind != PRINCIPAL_OUTSIDE;
    return (key->revision > 0 && (own || is_admin(k))) || refuse_unknown(k);
}

static bool find_to_change(struct work *work, struct keying *k, struct api_key *key)
{
    const struct principal *who = &k->caller.principal;
    if (!find_key(work, k, key))
        return false;
    return is_admin(k) || strcmp(who->key_id, key->id) == 0 || covers(who, key) ||
           error_set(&k->refusal, ERROR_FORBIDDEN,
                     "key %s may do more than the one that is shown (role, actor, limits, end): show it, or ask an "
                     "admin",
                     key->id);
}

/* --- the last admin --- */

struct others {
    const char *but;
    bool found, damaged;
};

static bool note_admin(void *cookie, const char *row, const struct kv_value *value)
{
    struct others *others = cookie;
    struct api_key key;
    others->damaged = !api_key_parse(&key, row + strlen(API_KEY_ROW), value);
    bool ends = key.expires_at != 0; /* one that runs out by itself is no way back */
    others->found = !others->damaged && key.role == ROLE_ADMIN && !ends && strcmp(key.id, others->but) != 0;
    return !others->found && !others->damaged;
}

/* Whether another key of an admin is left that does not run out. */
static bool check_admin_left(struct work *work, struct keying *k, const struct api_key *key)
{
    struct others others = {.but = key->id};
    if (key->role != ROLE_ADMIN || key->expires_at != 0)
        return true;
    if (!kv_range(work->kv, API_KEY_ROW, NULL, 0, note_admin, &others, work->err))
        return false;
    if (others.damaged)
        return error_set(work->err, ERROR_INTERNAL, "the row of an API key is damaged");
    return others.found ||
           error_set(&k->refusal, ERROR_CONFLICT,
                     "key %s is the last one of role admin that does not run out; make another first", key->id);
}

/* --- what is asked --- */

static bool check_limit(int64_t limit)
{
    return limit == -1 || limit > 0;
}

static bool check_fields(const struct keying *k, struct error *refusal)
{
    const struct api_key *key = &k->wanted;
    const struct quota *limits = &key->limits;
    if (key->actor[0] && !api_key_is_actor(key->actor))
        return error_set(refusal, ERROR_INVALID, "actor must be human:<id> or agent:<id>; an id is of A-Za-z0-9._:@+-");
    if (!check_limit(limits->sandboxes) || !check_limit(limits->cpu_milli) || !check_limit(limits->memory_mb) ||
        !check_limit(limits->disk_mb) || !check_limit(limits->creates_per_minute))
        return error_set(refusal, ERROR_INVALID, "a limit must be 1 or more");
    return true;
}

static bool set_end(const struct work *work, struct keying *k, struct api_key *key)
{
    key->expires_at = k->ttl_s ? work->now + k->ttl_s * 1000 : k->wanted.expires_at;
    return key->expires_at == 0 || key->expires_at > work->now ||
           error_set(&k->refusal, ERROR_INVALID, "expires_at must be in the future");
}

static bool answer_one(struct keying *k, const struct api_key *key)
{
    k->list = memory_copy(key, sizeof *key);
    k->count = 1;
    return true;
}

static void new_text(struct keying *k, struct api_key *key)
{
    principal_new_api_key(k->text);
    api_key_hash(key->hash, &k->leasing->master, k->text);
}

static bool add(struct work *work, struct keying *k)
{
    struct api_key key = k->wanted;
    if (!is_admin(k))
        return error_set(&k->refusal, ERROR_FORBIDDEN, "only an admin makes keys");
    if (!api_key_is_local_name(key.principal))
        return error_set(&k->refusal, ERROR_INVALID,
                         "principal must be 1 to %d of A-Za-z0-9._@+-; one with ':' is somebody else's to vouch for",
                         PRINCIPAL_BYTES - 1);
    if (!check_fields(k, &k->refusal) || !set_end(work, k, &key) ||
        !freeze_allows(work, k->caller.principal.name, &k->refusal) || !freeze_allows(work, key.principal, &k->refusal))
        return false;
    if (principal_table_count(table_of(k)) >= KEYING_KEYS_MAX)
        return error_set(&k->refusal, ERROR_QUOTA, "there are %d keys, the most allowed; delete some", KEYING_KEYS_MAX);
    random_id(key.id, "key");
    key.created_at = work->now;
    new_text(k, &key);
    api_key_put(work->change, &key, NULL);
    return answer_one(k, &key) && audit(work, k, &key);
}

static bool change(struct work *work, struct keying *k)
{
    struct api_key before, key;
    const struct api_key *wanted = &k->wanted;
    if (!is_admin(k))
        return error_set(&k->refusal, ERROR_FORBIDDEN, "only an admin changes keys");
    if (!find_key(work, k, &before) || !check_fields(k, &k->refusal))
        return false;
    key = before;
    if (k->given & KEYING_ROLE)
        key.role = wanted->role;
    if (k->given & KEYING_ACTOR)
        memcpy(key.actor, wanted->actor, sizeof key.actor);
    if (k->given & KEYING_LIMITS)
        key.limits = wanted->limits;
    if (k->given & KEYING_NOTE)
        memcpy(key.note, wanted->note, sizeof key.note);
    if ((k->given & KEYING_EXPIRES) && !set_end(work, k, &key))
        return false;
    if ((key.role != ROLE_ADMIN || key.expires_at != 0) && !check_admin_left(work, k, &before))
        return false;
    api_key_put(work->change, &key, &before);
    return answer_one(k, &key) && audit(work, k, &key);
}

/* A login token would become a key without its end, and a text in its grace would outlive whom it was replaced for. */
static bool may_have_new_text(struct keying *k, const struct api_key *key)
{
    const struct principal *who = &k->caller.principal;
    if (who->kind == PRINCIPAL_LOGIN && !is_admin(k))
        return error_set(&k->refusal, ERROR_FORBIDDEN, "a login token gets no new key: show the API key itself");
    return strcmp(who->key_id, key->id) != 0 || who->generation == key->generation ||
           error_set(&k->refusal, ERROR_FORBIDDEN, "key %s has a newer text than the one that is shown: show that",
                     key->id);
}

static bool rotate(struct work *work, struct keying *k)
{
    struct api_key before, key;
    if (!find_to_change(work, k, &before) || !may_have_new_text(k, &before) ||
        !freeze_allows(work, k->caller.principal.name, &k->refusal) ||
        !freeze_allows(work, before.principal, &k->refusal))
        return false;
    if (before.expires_at && before.expires_at <= work->now)
        return error_set(&k->refusal, ERROR_CONFLICT, "key %s has run out: it gets no new text", before.id);
    key = before;
    key.generation++;
    key.rotated_at = work->now;
    key.old_hash[0] = '\0';
    key.old_until = 0;
    if (k->grace_s > 0) {
        memcpy(key.old_hash, before.hash, sizeof key.old_hash);
        key.old_until = work->now + k->grace_s * 1000;
    }
    new_text(k, &key);
    api_key_put(work->change, &key, &before);
    return answer_one(k, &key) && audit(work, k, &key);
}

static bool delete (struct work *work, struct keying *k)
{
    struct api_key key;
    if (!find_to_change(work, k, &key) || !check_admin_left(work, k, &key))
        return false;
    api_key_remove(work->change, &key);
    return key_tokens_condemn(work, &key, &k->mark) && answer_one(k, &key) && audit(work, k, &key);
}

static bool login(struct work *work, struct keying *k)
{
    struct api_key key;
    const struct principal *who = &k->caller.principal;
    if (!freeze_allows(work, who->name, &k->refusal) || !api_key_get(work->kv, who->key_id, &key, work->err))
        return false;
    login_mint(k->text, &k->leasing->master, who, work->now, &k->expires_at);
    return answer_one(k, &key) && audit(work, k, &key);
}

/* --- reading --- */

struct listing {
    struct keying *k;
    struct work *work;
    bool failed;
};

static bool list_one(void *cookie, const char *row, const struct kv_value *value UNUSED)
{
    struct listing *listing = cookie;
    struct keying *k = listing->k;
    const char *id = strrchr(row, '/') + 1;
    if (strcmp(id, k->cursor) == 0)
        return true;
    if (k->count == k->limit) { /* one more than asked for: there is a next page */
        memcpy(k->next, k->list[k->count - 1].id, sizeof k->next);
        return false;
    }
    listing->failed = !api_key_get(listing->work->kv, id, &k->list[k->count], listing->work->err);
    k->count += listing->failed ? 0 : 1;
    return !listing->failed;
}

static bool list(struct work *work, struct keying *k)
{
    struct listing listing = {.k = k, .work = work};
    bool everybody = is_admin(k) && k->caller.owner[0] == '\0';
    if (!caller_may(&k->caller, ROLE_VIEWER, &k->refusal))
        return false;
    struct store_row first =
        everybody ? store_key("key", k->cursor, NULL) : store_key("keyof", caller_owner(&k->caller), k->cursor);
    struct store_row end = everybody ? store_key("key", "~", NULL) : store_key("keyof", caller_owner(&k->caller), "~");
    k->list = memory_array(k->limit, sizeof *k->list);
    return kv_range(work->kv, first.text, end.text, k->limit + 2, list_one, &listing, work->err) && !listing.failed;
}

static bool find(struct work *work, struct keying *k)
{
    struct api_key key;
    return find_key(work, k, &key) && answer_one(k, &key);
}

/* --- the rule --- */

static bool decide(struct work *work, struct keying *k)
{
    static bool (*const VERBS[])(struct work *, struct keying *) = {
        [KEYING_ADD] = add,       [KEYING_FIND] = find,     [KEYING_LIST] = list,  [KEYING_CHANGE] = change,
        [KEYING_ROTATE] = rotate, [KEYING_DELETE] = delete, [KEYING_LOGIN] = login};
    if (changes(k) && !key_tokens_allow(work, &k->caller, &k->refusal))
        return false;
    return VERBS[k->verb](work, k);
}

static enum kv_outcome refuse(struct work *work, const struct keying *k)
{
    AUTO(kv_change) *own_change = kv_change_new();
    struct work own = *work;
    own.change = own_change;
    if (!changes(k))
        return KV_APPLIED;
    return audit(&own, k, NULL) ? store_apply(&own) : KV_FAILED;
}

static enum kv_outcome keying_rule(struct kv *kv, void *argument, struct error *err)
{
    struct keying *k = argument;
    AUTO(kv_change) *rows = kv_change_new();
    struct work work = work_begin(k->leasing, kv, rows, err);
    forget_answer(k);
    if (!decide(&work, k))
        return k->refusal.kind == ERROR_NONE ? KV_FAILED : refuse(&work, k);
    return changes(k) ? store_apply(&work) : KV_APPLIED;
}

/* What is used is in memory first. */
static void show_last_use(struct keying *k)
{
    for (size_t i = 0; i < k->count; i++) {
        int64_t at = principal_table_last_use(table_of(k), k->list[i].id);
        if (at > k->list[i].last_use)
            k->list[i].last_use = at;
    }
}

static void tokens_ended(void *cookie, const struct error *err)
{
    struct keying *k = cookie;
    if (err->kind != ERROR_NONE)
        k->refusal = *err;
    k->answered(k->cookie, k);
}

static void keying_done(void *argument, const struct error *err)
{
    struct keying *k = argument;
    if (err->kind != ERROR_NONE)
        k->refusal = *err;
    bool done = k->refusal.kind == ERROR_NONE, deleted = done && k->verb == KEYING_DELETE;
    if (deleted)
        principal_table_remove(table_of(k), k->list->id);
    else if (done && (k->verb == KEYING_ADD || k->verb == KEYING_CHANGE || k->verb == KEYING_ROTATE))
        principal_table_put(table_of(k), k->list);
    if (k->mark.number > 0)
        marks_made(k->leasing, &k->mark, true);
    show_last_use(k);
    if (deleted)
        key_tokens_end(k->leasing, k->list->id, tokens_ended, k);
    else
        k->answered(k->cookie, k);
}

void leasing_key(struct leasing *leasing, struct keying *k)
{
    k->leasing = leasing;
    ledger_submit(leasing->options.ledger, keying_rule, keying_done, k);
}
