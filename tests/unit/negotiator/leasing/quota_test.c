/* Goal: nobody ever has more than a quota gives, however many ask at once, in one batch or with the same sandbox's
 * limits; what ended counts no more, what sleeps counts on; and a start counts right whatever was written. */
#include "negotiator/leasing/changing.h"

#include "tests/unit/negotiator/leasing/policies.h"

#include <string.h>

static const struct wanted NOTHING = {.ttl_s = 0};

static enum error_kind made(struct world *world, const char *who, const char *thread, struct resources resources)
{
    return ask_kind(world, (struct asked){.who = who, .thread = thread, .wanted = {.resources = resources}});
}

static enum error_kind made_any(struct world *world, const char *who, const char *thread)
{
    return made(world, who, thread, (struct resources){.pids = 0});
}

/* As `why` tells it: of "quota.sandboxes" and the like. */
static int64_t used(struct world *world, const char *rule)
{
    AUTO(policy_question) *q = policy_question_of(POLICY_WHY, "ada", ROLE_USER);
    size_t i;
    json_t *each;
    int64_t used = -1;
    policy_ask(world, q);
    json_array_foreach (q->findings, i, each) {
        if (text_equal(json_string_value(json_object_get(each, "rule")), rule))
            used = json_integer_value(json_object_get(each, "used"));
    }
    return used;
}

static void end(struct world *world, const char *id)
{
    json_t *ended = json_pack("[{s:s, s:s}]", "id", id, "reason", "deleted");
    json_decref(heartbeat_of(world, false, json_array(), ended, NULL));
}

/* ---- sandboxes ---- */

static void a_number_of_them(struct world *world)
{
    char first[RANDOM_ID_BYTES];
    policy_set(world, "{'roles': {'user': {'quota': {'sandboxes': 2}}}, 'principals': {'bob': {'quota': {'sandboxes': "
                      "null}}}}");
    ask_id(world, (struct asked){.thread = "t"}, first);
    CHECK_KIND(made_any(world, "ada", "t"), ERROR_NONE); /* the same one */
    CHECK_KIND(made_any(world, "ada", "u"), ERROR_NONE);
    AUTO(negotiation) *third = ask(world, (struct asked){.thread = "v"});
    CHECK_KIND(third->refusal.kind, ERROR_QUOTA);
    CHECK(strstr(third->refusal.message, "ada has 2 of at most 2 sandboxes") &&
          strstr(third->refusal.message, "roles.user.quota.sandboxes") && third->retry_after_s == 0);
    for (unsigned i = 0; i < 4; i++) {
        char thread[8];
        CHECK(text_format(thread, sizeof thread, "b%u", i));
        CHECK_KIND(made_any(world, "bob", thread), ERROR_NONE); /* his own, and not limited */
    }
    CHECK_KIND(question_kind(world, QUESTION_DELETE, "ada", ROLE_USER, first), ERROR_NONE);
    CHECK_KIND(made_any(world, "ada", "v"), ERROR_QUOTA); /* it takes its resources until it has ended */
    end(world, first);
    end(world, first); /* told again */
    CHECK(used(world, "quota.sandboxes") == 1);
    CHECK_KIND(made_any(world, "ada", "v"), ERROR_NONE);
    CHECK_KIND(made_any(world, "ada", "w"), ERROR_QUOTA);
}

static void one_that_sleeps(struct world *world)
{
    char id[RANDOM_ID_BYTES];
    struct changing *pause = changing_new();
    struct error err = {0};
    policy_set(world, "{'roles': {'user': {'quota': {'sandboxes': 1}}}}");
    ask_id(world, (struct asked){.thread = "t"}, id);
    pause->verb = CHANGING_PAUSE;
    pause->caller.principal.role = ROLE_USER;
    CHECK(text_copy(pause->caller.principal.name, PRINCIPAL_BYTES, "ada") &&
          text_copy(pause->sandbox_id, sizeof pause->sandbox_id, id));
    CHECK(leasing_change(world->leasing, pause, &err)); /* nobody waits for its answer */
    settle(world);
    CHECK(world_calls(world, "pause", id) == 1);
    CHECK_KIND(made_any(world, "ada", "u"), ERROR_QUOTA);
}

enum { MANY = 50, MOST = 7 };

static void fifty_at_once(struct world *world)
{
    struct attempt attempts[MANY];
    struct gate gate;
    unsigned granted = 0;
    policy_set(world, "{'roles': {'user': {'quota': {'sandboxes': 7}}}}");
    gate_shut(world, &gate);
    for (unsigned i = 0; i < MANY; i++) {
        char thread[8];
        CHECK(text_format(thread, sizeof thread, "t%u", i));
        attempt_start(world, &attempts[i], (struct asked){.thread = thread});
    }
    gate_open(&gate);
    for (unsigned i = 0; i < MANY; i++) {
        AUTO(negotiation) *n = attempt_wait(&attempts[i]);
        CHECK(n->refusal.kind == ERROR_NONE || n->refusal.kind == ERROR_QUOTA);
        granted += n->refusal.kind == ERROR_NONE;
    }
    CHECK(granted == MOST);
    CHECK(used(world, "quota.sandboxes") == MOST);
}

static void one_that_never_was(struct world *world)
{
    policy_set(world, "{'roles': {'user': {'quota': {'sandboxes': 1}}}}");
    world_set_mode_of(world, "prepare", FAKE_REFUSES, ERROR_INVALID);
    CHECK_KIND(made_any(world, "ada", "t"), ERROR_INVALID);
    error_set(&world->no_place, ERROR_NO_CAPACITY, "none");
    CHECK_KIND(made_any(world, "ada", "t"), ERROR_NO_CAPACITY);
    world->no_place = (struct error){0};
    CHECK(used(world, "quota.sandboxes") == 0);
    world_set_mode_of(world, NULL, FAKE_ANSWERS, ERROR_NONE);
    CHECK_KIND(made_any(world, "ada", "t"), ERROR_NONE);
}

/* ---- amounts ---- */

static void amounts(struct world *world)
{
    policy_set(world, "{'roles': {'user': {'quota': {'cpu_milli': 3000, 'memory_mb': 2048, 'disk_mb': 3000}}}}");
    CHECK_KIND(made(world, "ada", "t", (struct resources){.cpu_milli = 2000}), ERROR_NONE);
    CHECK_KIND(made(world, "ada", "u", (struct resources){.cpu_milli = 1001}), ERROR_QUOTA);
    CHECK_KIND(made(world, "ada", "u", (struct resources){.memory_mb = 1537}), ERROR_QUOTA);
    CHECK_KIND(made(world, "ada", "u", (struct resources){.disk_mb = 1977}), ERROR_QUOTA);
    CHECK(used(world, "quota.cpu_milli") == 2000 && used(world, "quota.memory_mb") == 512 &&
          used(world, "quota.disk_mb") == 1024);
    CHECK_KIND(made(world, "ada", "u", (struct resources){.cpu_milli = 1000, .memory_mb = 1536, .disk_mb = 1976}),
               ERROR_NONE);
    CHECK_KIND(made_any(world, "ada", "v"), ERROR_QUOTA);
}

/* Under a quota of disks one that asks for none gets a known one. */
static void a_disk_of_no_size(struct world *world)
{
    world->leasing->options.limits.resources.disk_mb = 0;
    CHECK_KIND(made_any(world, "ada", "t"), ERROR_NONE);
    CHECK(used(world, "quota.disk_mb") == 0);
    policy_set(world, "{'deployment': {'quota': {'disk_mb': 1500}}}");
    CHECK_KIND(made_any(world, "ada", "u"), ERROR_NONE);
    CHECK(used(world, "quota.disk_mb") == 1024);
    CHECK_KIND(made_any(world, "ada", "v"), ERROR_QUOTA);
}

struct change {
    struct world *world;
    bool done;
    struct changing *changing;
};

static void change_answered(void *cookie, struct changing *changing)
{
    struct change *change = cookie;
    pthread_mutex_lock(&change->world->mutex);
    change->changing = changing;
    change->done = true;
    pthread_cond_broadcast(&change->world->changed);
    pthread_mutex_unlock(&change->world->mutex);
}

static void change_start(struct world *world, struct change *change, const char *id, int64_t cpu_milli)
{
    struct error err = {0};
    *change = (struct change){.world = world};
    struct changing *changing = changing_new();
    changing->verb = CHANGING_UPDATE;
    changing->caller.principal.role = ROLE_USER;
    changing->wanted = NOTHING;
    changing->wanted.resources.cpu_milli = cpu_milli;
    CHECK(text_copy(changing->caller.principal.name, PRINCIPAL_BYTES, "ada") &&
          text_copy(changing->sandbox_id, sizeof changing->sandbox_id, id));
    changing->answered = change_answered;
    changing->cookie = change;
    CHECK(leasing_change(world->leasing, changing, &err));
}

static enum error_kind change_wait(struct change *change)
{
    pthread_mutex_lock(&change->world->mutex);
    while (!change->done)
        pthread_cond_wait(&change->world->changed, &change->world->mutex);
    pthread_mutex_unlock(&change->world->mutex);
    AUTO(changing) *changing = change->changing;
    return changing->refusal.kind;
}

static enum error_kind changed(struct world *world, const char *id, int64_t cpu_milli)
{
    struct change change;
    change_start(world, &change, id, cpu_milli);
    return change_wait(&change);
}

static void changed_limits(struct world *world)
{
    char a[RANDOM_ID_BYTES], b[RANDOM_ID_BYTES];
    struct change first, second;
    struct gate gate;
    policy_set(world, "{'roles': {'user': {'quota': {'cpu_milli': 4000}}}}");
    ask_id(world, (struct asked){.thread = "a"}, a);
    ask_id(world, (struct asked){.thread = "b"}, b);
    CHECK_KIND(changed(world, a, 3001), ERROR_QUOTA);
    CHECK(world_calls(world, "limits", NULL) == 0);
    /* Both fit, but not together: who asks second is refused before the first one's node has answered. */
    gate_shut(world, &gate);
    world_set_mode_of(world, "limits", FAKE_HOLDS, ERROR_NONE);
    change_start(world, &first, a, 2500);
    change_start(world, &second, b, 2500);
    gate_open(&gate);
    CHECK_KIND(change_wait(&second), ERROR_QUOTA);
    CHECK_KIND(made(world, "ada", "c", (struct resources){.cpu_milli = 1000}), ERROR_QUOTA);
    world_set_mode_of(world, NULL, FAKE_ANSWERS, ERROR_NONE);
    CHECK_KIND(change_wait(&first), ERROR_NONE);
    CHECK(used(world, "quota.cpu_milli") == 3500);
    /* What a node refused is not held on to. */
    world_set_mode_of(world, "limits", FAKE_REFUSES, ERROR_INVALID);
    CHECK_KIND(changed(world, b, 1500), ERROR_INVALID);
    world_set_mode_of(world, NULL, FAKE_ANSWERS, ERROR_NONE);
    CHECK_KIND(changed(world, b, 1500), ERROR_NONE);
    CHECK_KIND(changed(world, b, 1501), ERROR_QUOTA);
    CHECK_KIND(changed(world, a, 100), ERROR_NONE); /* less is always allowed */
    CHECK(used(world, "quota.cpu_milli") == 1600);
    CHECK(world->leasing->reservations == NULL);
}

/* ---- how often ---- */

static void a_minutes_worth(struct world *world)
{
    policy_set(world, "{'roles': {'user': {'quota': {'creates_per_minute': 3}}}}");
    CHECK_KIND(made_any(world, "ada", "a"), ERROR_NONE);
    CHECK_KIND(made_any(world, "ada", "b"), ERROR_NONE);
    CHECK_KIND(made_any(world, "ada", "c"), ERROR_NONE);
    AUTO(negotiation) *fourth = ask(world, (struct asked){.thread = "d"});
    CHECK(fourth->refusal.kind == ERROR_QUOTA && fourth->retry_after_s == 20);
    CHECK_KIND(made_any(world, "ada", "a"), ERROR_NONE); /* it makes none */
    later(world, 19000);
    AUTO(negotiation) *early = ask(world, (struct asked){.thread = "d"});
    CHECK(early->refusal.kind == ERROR_QUOTA && early->retry_after_s == 1);
    later(world, 1000);
    CHECK_KIND(made_any(world, "ada", "d"), ERROR_NONE);
    CHECK_KIND(made_any(world, "ada", "e"), ERROR_QUOTA);
    world_now -= 3600000; /* a clock that is set back bars nobody for an hour */
    AUTO(negotiation) *back = ask(world, (struct asked){.thread = "e"});
    CHECK(back->refusal.kind == ERROR_QUOTA && back->retry_after_s <= 60);
    world_now += 3600000;
    policy_set(world, "{'roles': {'user': {'quota': {'creates_per_minute': 0}}}}");
    later(world, 120000);
    AUTO(negotiation) *never = ask(world, (struct asked){.thread = "f"});
    CHECK(never->refusal.kind == ERROR_QUOTA && never->retry_after_s == 0);
}

/* ---- of whom ---- */

static void of_all(struct world *world)
{
    policy_set(world, "{'deployment': {'quota': {'sandboxes': 2}}}");
    CHECK_KIND(made_any(world, "ada", "t"), ERROR_NONE);
    CHECK_KIND(made_any(world, "bob", "t"), ERROR_NONE);
    AUTO(negotiation) *third = ask(world, (struct asked){.who = "eve", .thread = "t"});
    CHECK_KIND(third->refusal.kind, ERROR_QUOTA);
    CHECK(strstr(third->refusal.message, "this deployment has 2 of at most 2") &&
          strstr(third->refusal.message, "deployment.quota.sandboxes"));
}

static void of_a_key(struct world *world)
{
    struct caller caller = {
        .principal = {.name = "ada", .role = ROLE_USER, .limits = {.sandboxes = 1, .cpu_milli = -1}}};
    struct attempt attempt = {.world = world};
    struct error err = {0};
    policy_set(world, "{'roles': {'user': {'quota': {'sandboxes': 5}}}}");
    CHECK_KIND(made_any(world, "ada", "t"), ERROR_NONE);
    const struct asked asked = {.thread = "u"};
    struct negotiation *asking = make_negotiation(&attempt, &asked);
    asking->caller = caller;
    CHECK(leasing_negotiate(world->leasing, asking, &err));
    AUTO(negotiation) *n = attempt_wait(&attempt);
    CHECK(n->refusal.kind == ERROR_QUOTA && strstr(n->refusal.message, "API key's limits.sandboxes"));
    CHECK_KIND(made_any(world, "ada", "u"), ERROR_NONE); /* with another key */
}

/* ---- starts ---- */

static enum kv_outcome spoil_rule(struct kv *kv, void *argument UNUSED, struct error *err)
{
    AUTO(kv_change) *change = kv_change_new();
    kv_change_put(change, "used/ada", "nothing", 7);
    kv_change_put(change, "used/gone", "{\"sandboxes\":4}", 15);
    kv_change_delete(change, "meta/used");
    return kv_apply(kv, change, err);
}

static enum kv_outcome look_rule_of(struct kv *kv, void *argument, struct error *err)
{
    AUTO_KV_VALUE value = {0};
    CHECK(kv_get(kv, "used/gone", &value, err));
    *(bool *)argument = value.revision > 0;
    return KV_APPLIED;
}

static void a_start(struct world *world)
{
    char id[RANDOM_ID_BYTES];
    struct error err = {0};
    bool is_there = true;
    policy_set(world, "{'roles': {'user': {'quota': {'sandboxes': 2}}}, 'deployment': {'quota': {'sandboxes': 3}}}");
    ask_id(world, (struct asked){.thread = "t"}, id);
    CHECK_KIND(made_any(world, "ada", "u"), ERROR_NONE);
    CHECK(ledger_run(world->ledger, spoil_rule, NULL, &err));
    world_restart(world);
    CHECK(used(world, "quota.sandboxes") == 2 && used(world, "quota.cpu_milli") == 2000);
    CHECK(used(world, "deployment.quota.sandboxes") == 2);
    CHECK(ledger_run(world->ledger, look_rule_of, &is_there, &err) && !is_there);
    CHECK_KIND(made_any(world, "ada", "v"), ERROR_QUOTA);
    end(world, id);
    CHECK_KIND(made_any(world, "ada", "v"), ERROR_NONE);
}

int main(void)
{
    in_both_worlds(a_number_of_them);
    in_both_worlds(one_that_sleeps);
    in_both_worlds(fifty_at_once);
    in_both_worlds(one_that_never_was);
    in_both_worlds(amounts);
    in_both_worlds(a_disk_of_no_size);
    in_both_worlds(changed_limits);
    in_both_worlds(a_minutes_worth);
    in_both_worlds(of_all);
    in_both_worlds(of_a_key);
    in_both_worlds(a_start);
    return check_done();
}
