/* API keys: what is durable, what the table of the loops knows of it and when, and that whatever was granted under a
 * key ends with it: many families, over a crash, and what was asked for meanwhile; with a store that refuses at random.
 */
#include "negotiator/leasing/families.h"
#include "negotiator/leasing/keys/key_tokens.h"
#include "negotiator/leasing/keys/key_use.h"
#include "negotiator/leasing/keys/keying.h"
#include "tests/unit/negotiator/leasing/grants.h"

#include <stdlib.h>

#define T1 ((struct asked){.thread = "t1"})

/* --- asking --- */

struct key_attempt {
    struct world *world;
    bool done;
};

static void key_answered(void *cookie, struct keying *k UNUSED)
{
    struct key_attempt *attempt = cookie;
    pthread_mutex_lock(&attempt->world->mutex);
    attempt->done = true;
    pthread_cond_broadcast(&attempt->world->changed);
    pthread_mutex_unlock(&attempt->world->mutex);
}

static struct keying *new_keying(enum keying_verb verb, const char *who, enum role role, const char *id)
{
    struct keying *k = keying_new();
    k->verb = verb;
    k->caller.principal = (struct principal){.role = role, .limits = QUOTA_NONE};
    k->wanted = (struct api_key){.role = ROLE_USER, .limits = QUOTA_NONE};
    k->limit = KEYING_LIST_MAX;
    CHECK(text_copy(k->caller.principal.name, PRINCIPAL_BYTES, who) && text_copy(k->id, sizeof k->id, id ? id : ""));
    return k;
}

static struct keying *do_key(struct world *world, struct keying *k)
{
    struct key_attempt attempt = {.world = world};
    k->answered = key_answered;
    k->cookie = &attempt;
    leasing_key(world->leasing, k);
    pthread_mutex_lock(&world->mutex);
    while (!attempt.done)
        pthread_cond_wait(&world->changed, &world->mutex);
    pthread_mutex_unlock(&world->mutex);
    return k;
}

struct made {
    char id[RANDOM_ID_BYTES], text[API_KEY_BYTES];
};

static struct made add_key(struct world *world, const char *principal, enum role role, int64_t ttl_s)
{
    struct made made;
    AUTO(keying) *k = new_keying(KEYING_ADD, "admin", ROLE_ADMIN, NULL);
    k->wanted.role = role;
    k->ttl_s = ttl_s;
    CHECK(text_copy(k->wanted.principal, PRINCIPAL_BYTES, principal));
    CHECK_TEXT(do_key(world, k)->refusal.message, "");
    CHECK(text_copy(made.id, sizeof made.id, k->list->id) && text_copy(made.text, sizeof made.text, k->text));
    return made;
}

static enum error_kind delete_key(struct world *world, const char *id)
{
    AUTO(keying) *k = do_key(world, new_keying(KEYING_DELETE, "admin", ROLE_ADMIN, id));
    return k->refusal.kind;
}

static bool is_known(struct world *world, const char *text, struct principal *principal)
{
    struct error err = {0};
    return principal_table_find(world->principals, text, principal, &err);
}

static bool is_good(struct world *world, const char *text)
{
    struct principal principal;
    return is_known(world, text, &principal);
}

/* --- the table --- */

static void test_what_is_durable_is_known(struct world *world)
{
    struct principal principal;
    struct made made = add_key(world, "ada", ROLE_USER, 10);
    CHECK(is_known(world, made.text, &principal));
    CHECK_TEXT(principal.name, "ada");
    CHECK_TEXT(principal.key_id, made.id);
    CHECK(principal.expires_at == world_now + 10000 && principal.kind == PRINCIPAL_API_KEY);
    world_now += 9999;
    CHECK(is_good(world, made.text));
    world_now += 1;
    CHECK(!is_good(world, made.text));
    CHECK(delete_key(world, made.id) == ERROR_NONE);
    CHECK(delete_key(world, made.id) == ERROR_NOT_FOUND);
    CHECK(principal_table_count(world->principals) == 0);
}

static void rotate_key(struct world *world, struct made *made, int64_t grace_s)
{
    AUTO(keying) *k = new_keying(KEYING_ROTATE, "ada", ROLE_USER, made->id);
    k->grace_s = grace_s;
    CHECK_TEXT(do_key(world, k)->refusal.message, "");
    CHECK(text_copy(made->text, sizeof made->text, k->text));
}

static void log_in(struct world *world, const char *text, char token[static LOGIN_TOKEN_BYTES], int64_t *expires_at)
{
    AUTO(keying) *k = new_keying(KEYING_LOGIN, "", ROLE_VIEWER, NULL);
    CHECK(is_known(world, text, &k->caller.principal));
    CHECK_TEXT(do_key(world, k)->refusal.message, "");
    CHECK(text_copy(token, LOGIN_TOKEN_BYTES, k->text));
    *expires_at = k->expires_at;
}

static void test_rotation(struct world *world)
{
    struct made now = add_key(world, "ada", ROLE_USER, 0), first = now, second;
    char token[LOGIN_TOKEN_BYTES];
    int64_t end = 0;
    rotate_key(world, &now, 0);
    CHECK(!is_good(world, first.text) && is_good(world, now.text));
    second = now;
    log_in(world, second.text, token, &end);
    rotate_key(world, &now, 60);
    world_now += 59999;
    CHECK(is_good(world, second.text) && is_good(world, now.text) && is_good(world, token));
    world_now += 1;
    CHECK(!is_good(world, second.text) && is_good(world, now.text) && !is_good(world, token));
    /* Two in a row: the grace of the one before is over. */
    second = now;
    rotate_key(world, &now, 60);
    rotate_key(world, &now, 60);
    CHECK(!is_good(world, second.text) && is_good(world, now.text));
    CHECK(delete_key(world, now.id) == ERROR_NONE);
    CHECK(!is_good(world, now.text));
}

static void test_login(struct world *world)
{
    struct made made = add_key(world, "ada", ROLE_USER, 0), brief = add_key(world, "ada", ROLE_USER, 60);
    struct principal principal;
    char token[LOGIN_TOKEN_BYTES];
    int64_t end = 0;
    log_in(world, brief.text, token, &end);
    CHECK(end == world_now / 1000 + 60); /* no longer than its key */
    log_in(world, made.text, token, &end);
    CHECK(end == world_now / 1000 + LOGIN_TTL_S);
    CHECK(is_known(world, token, &principal));
    CHECK_TEXT(principal.key_id, made.id);
    CHECK(principal.kind == PRINCIPAL_LOGIN);
    world_now += (int64_t)LOGIN_TTL_S * 1000 - 1;
    CHECK(is_good(world, token));
    world_now += 1;
    CHECK(!is_good(world, token));
    log_in(world, made.text, token, &end);
    for (size_t i = 0; token[i]; i++) { /* a change of any character is seen */
        char was = token[i];
        token[i] = was == 'A' ? 'B' : 'A';
        CHECK(token[i] == was || !is_good(world, token));
        token[i] = was;
    }
    CHECK(is_good(world, token));
    CHECK(delete_key(world, made.id) == ERROR_NONE && delete_key(world, brief.id) == ERROR_NONE);
    CHECK(!is_good(world, token));
}

/* --- rows of before, and the last use --- */

static const char OLD_TEXT[] = "pk_AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA";

static enum kv_outcome put_old_row(struct kv *kv, void *argument, struct error *err)
{
    struct world *world = argument;
    char hash[API_KEY_HASH_BYTES];
    AUTO(kv_change) *change = kv_change_new();
    api_key_hash(hash, &world->master, OLD_TEXT);
    AUTO_FREE char *key = memory_printf("apikey/%s", hash);
    static const char ROW[] =
        "{\"id\":\"key_aaaaaaaaaaaaaaaaaaaa\",\"principal\":\"old\",\"role\":\"admin\",\"created_at\":5}";
    kv_change_put(change, key, ROW, strlen(ROW));
    return kv_apply(kv, change, err);
}

static enum kv_outcome load_table(struct kv *kv, void *argument, struct error *err)
{
    return principal_table_load(argument, kv, err) ? KV_APPLIED : KV_FAILED;
}

static void test_rows_of_before(struct world *world)
{
    struct error err = {0};
    struct principal principal;
    CHECK(ledger_run(world->ledger, put_old_row, world, &err));
    CHECK(ledger_run(world->ledger, load_table, world->principals, &err));
    world_restart(world);
    settle(world);
    CHECK(is_known(world, OLD_TEXT, &principal) && principal.role == ROLE_ADMIN);
    CHECK(principal.limits.sandboxes == -1 && principal.actor[0] == '\0' && principal.expires_at == 0);
    AUTO(keying) *k = do_key(world, new_keying(KEYING_FIND, "old", ROLE_VIEWER, principal.key_id));
    CHECK_TEXT(k->refusal.message, "");
    CHECK_TEXT(k->list->principal, "old");
    CHECK(k->list->created_at == 5 && k->list->last_use == world_now);
    CHECK(delete_key(world, principal.key_id) == ERROR_CONFLICT); /* the last admin */
    /* When it was used outlives the start. */
    int64_t used = world_now;
    key_use_flush(world->leasing);
    settle(world);
    world_now += 5000;
    AUTO(principal_table) *fresh = principal_table_new(&world->master);
    CHECK(ledger_run(world->ledger, load_table, fresh, &err));
    CHECK(principal_table_last_use(fresh, principal.key_id) == used);
}

static void test_last_use_is_written_every_minute(struct world *world)
{
    struct key_use uses[4];
    struct made made = add_key(world, "ada", ROLE_USER, 0);
    settle(world);
    CHECK(is_good(world, made.text));
    CHECK(principal_table_uses(world->principals, uses, 4) == 1);
    later(world, 60000);
    settle(world);
    CHECK(principal_table_uses(world->principals, uses, 4) == 0);
    CHECK(delete_key(world, made.id) == ERROR_NONE);
}

/* --- what ends with it --- */

enum { MANY = 300, TOO_MANY = 2100 };

struct families {
    struct world *world;
    const char *key_id;
    size_t count;
    const char *principal;
};

static void fill_claims(struct capability_claims *claims, const struct families *families, size_t i)
{
    *claims = (struct capability_claims){.issued_at = world_now / 1000, .expires_at = world_now / 1000 + 900};
    snprintf(claims->jti, sizeof claims->jti, "tok_%s%06zu", families->principal, i);
    memcpy(claims->family, claims->jti, sizeof claims->family);
    CHECK(text_copy(claims->principal, sizeof claims->principal, families->principal) &&
          text_copy(claims->sandbox_id, sizeof claims->sandbox_id, "sbx_aaaaaaaaaaaaaaaaaaaa") &&
          text_copy(claims->lease, sizeof claims->lease, "lse_aaaaaaaaaaaaaaaaaaaa") &&
          text_copy(claims->thread_id, sizeof claims->thread_id, "t") &&
          text_copy(claims->actor, sizeof claims->actor, "human"));
}

static enum kv_outcome put_families(struct kv *kv, void *argument, struct error *err)
{
    const struct families *families = argument;
    AUTO(kv_change) *change = kv_change_new();
    struct work work = work_begin(families->world->leasing, kv, change, err);
    struct caller caller = {.owner = ""};
    CHECK(text_copy(caller.principal.key_id, RANDOM_ID_BYTES, families->key_id));
    for (size_t i = 0; i < families->count; i++) {
        struct capability_claims claims;
        fill_claims(&claims, families, i);
        family_issue(&work, &claims, NULL);
        if (!key_tokens_note(&work, &caller, &claims))
            return KV_FAILED;
    }
    return store_apply(&work);
}

static void add_families(struct world *world, const char *key_id, const char *principal, size_t count)
{
    struct error err = {0};
    struct families families = {.world = world, .key_id = key_id, .count = count, .principal = principal};
    CHECK(ledger_run(world->ledger, put_families, &families, &err));
}

static size_t count_refused(struct world *world, const char *principal, size_t count)
{
    size_t refused = 0;
    struct families families = {.principal = principal};
    for (size_t i = 0; i < count; i++) {
        struct capability_claims claims;
        fill_claims(&claims, &families, i);
        refused += is_refused(world, &claims, world_now);
    }
    return refused;
}

struct counting {
    size_t count;
    const char *prefix;
};

static bool count_row(void *cookie, const char *key UNUSED, const struct kv_value *value UNUSED)
{
    ((struct counting *)cookie)->count++;
    return true;
}

static enum kv_outcome count_rule(struct kv *kv, void *argument, struct error *err)
{
    struct counting *counting = argument;
    counting->count = 0;
    return kv_range(kv, counting->prefix, NULL, 0, count_row, counting, err) ? KV_APPLIED : KV_FAILED;
}

static size_t count_rows(struct world *world, const char *prefix)
{
    struct error err = {0};
    struct counting counting = {.prefix = prefix};
    CHECK(ledger_run(world->ledger, count_rule, &counting, &err));
    return counting.count;
}

static void test_all_its_families_end(struct world *world)
{
    struct made made = add_key(world, "ada", ROLE_USER, 0), other = add_key(world, "ada", ROLE_USER, 0);
    add_families(world, made.id, "ada", MANY);
    add_families(world, other.id, "bob", 3);
    CHECK(count_refused(world, "ada", MANY) == 0);
    CHECK(delete_key(world, made.id) == ERROR_NONE);
    CHECK(count_refused(world, "ada", MANY) == MANY);
    CHECK(count_refused(world, "bob", 3) == 0);
    CHECK(count_rows(world, "keyfam/") == 3 && count_rows(world, "keygone/") == 0);
    CHECK(delete_key(world, other.id) == ERROR_NONE);
    CHECK(count_rows(world, "keyfam/") == 0 && count_rows(world, "apikey/") == 0 && count_rows(world, "key/") == 0 &&
          count_rows(world, "keyof/") == 0 && count_rows(world, "keyuse/") == 0);
}

static void test_of_too_many_the_principal_is_marked(struct world *world)
{
    struct made made = add_key(world, "ada", ROLE_USER, 0);
    add_families(world, made.id, "ada", TOO_MANY);
    add_families(world, made.id, "share:x", 5); /* what it shared is nobody's of that name */
    size_t before = count_rows(world, "mark/");
    CHECK(delete_key(world, made.id) == ERROR_NONE);
    CHECK(count_refused(world, "ada", TOO_MANY) == TOO_MANY && count_refused(world, "share:x", 5) == 5);
    CHECK(count_rows(world, "mark/") == before + 1 + 5);
    CHECK(count_rows(world, "keyfam/") == 0 && count_rows(world, "keygone/") == 0);
}

/* --- over a crash: the key is gone, its families are not marked --- */

struct condemning {
    struct world *world;
    const char *id;
    struct mark mark;
};

static enum kv_outcome condemn_rule(struct kv *kv, void *argument, struct error *err)
{
    struct condemning *condemning = argument;
    AUTO(kv_change) *change = kv_change_new();
    struct work work = work_begin(condemning->world->leasing, kv, change, err);
    struct api_key key;
    if (!api_key_get(kv, condemning->id, &key, err) || !key_tokens_condemn(&work, &key, &condemning->mark))
        return KV_FAILED;
    api_key_remove(change, &key);
    return store_apply(&work);
}

static void test_a_start_goes_on_with_it(struct world *world)
{
    struct error err = {0};
    struct made made = add_key(world, "ada", ROLE_USER, 0);
    struct condemning condemning = {.world = world, .id = made.id};
    add_families(world, made.id, "ada", MANY);
    CHECK(ledger_run(world->ledger, condemn_rule, &condemning, &err));
    CHECK(count_rows(world, "keygone/") == 1 && count_refused(world, "ada", MANY) == 0);
    world_restart(world);
    settle(world);
    CHECK(count_rows(world, "keygone/") == 0 && count_rows(world, "keyfam/") == 0);
    CHECK(count_refused(world, "ada", MANY) == MANY);
}

/* --- what is asked for under it meanwhile --- */

static void test_nothing_is_granted_under_a_deleted_key(struct world *world)
{
    struct gate gate;
    struct made made = add_key(world, "ada", ROLE_USER, 0);
    struct asked asked = {.thread = "t1", .key = made.id};
    struct key_attempt deleting = {.world = world};
    struct attempt attempt;
    AUTO(keying) *k = new_keying(KEYING_DELETE, "admin", ROLE_ADMIN, made.id);
    k->answered = key_answered;
    k->cookie = &deleting;
    gate_shut(world, &gate);
    leasing_key(world->leasing, k);
    attempt_start(world, &attempt, asked); /* it showed the key before that was deleted */
    gate_open(&gate);
    AUTO(negotiation) *n = attempt_wait(&attempt);
    CHECK(n->refusal.kind == ERROR_UNAUTHENTICATED);
    settle(world);
    CHECK(deleting.done && count_rows(world, "keyfam/") == 0);
    CHECK(ask_kind(world, T1) == ERROR_NONE); /* who shows none of ours is not asked for it */
}

static void test_the_index_goes_with_the_families(struct world *world)
{
    struct made made = add_key(world, "ada", ROLE_USER, 0);
    struct asked asked = {.thread = "t1", .key = made.id};
    struct token token;
    get_token(world, asked, &token);
    CHECK(count_rows(world, "keyfam/") == 1);
    later(world, 600000);
    refresh_token(world, asked, token.text, &token);
    CHECK(count_rows(world, "keyfam/") == 1);
    later(world, 600000); /* past the first one's end */
    settle(world);
    CHECK(count_rows(world, "keyfam/") == 1);
    later(world, 400000);
    later(world, 100000);
    settle(world);
    CHECK(count_rows(world, "keyfam/") == 0);
}

static void in_both(void (*test)(struct world *world))
{
    struct world *calm = world_new(0), *stormy = world_new(20);
    test(calm);
    test(stormy);
    world_free(calm);
    world_free(stormy);
}

int main(void)
{
    in_both(test_what_is_durable_is_known);
    in_both(test_rotation);
    in_both(test_login);
    in_both(test_rows_of_before);
    in_both(test_last_use_is_written_every_minute);
    in_both(test_all_its_families_end);
    in_both(test_of_too_many_the_principal_is_marked);
    in_both(test_a_start_goes_on_with_it);
    in_both(test_nothing_is_granted_under_a_deleted_key);
    in_both(test_the_index_goes_with_the_families);
    return check_done();
}
