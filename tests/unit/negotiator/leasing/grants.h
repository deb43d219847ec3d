/** grants.h - asking for refreshes, signs of life and revocations in a world (world.h), and looking at what came of it.
 */
#pragma once

#include "negotiator/leasing/marks.h"
#include "negotiator/leasing/revocation.h"
#include "tests/unit/negotiator/leasing/world.h"

#include <inttypes.h>
#include <stdio.h>

struct token {
    char text[CAPABILITY_TEXT_BYTES];
    struct capability_claims claims;
};

static void mint(struct world *world, const struct negotiation *n, struct token *token)
{
    struct error err = {0};
    CHECK_TEXT(n->refusal.message, "");
    CHECK(leasing_mint(world->leasing, n, token->text, &err));
    CHECK(capability_decode(&token->claims, token->text, strlen(token->text), &err));
}

/** Negotiates a token. */
static UNUSED void get_token(struct world *world, struct asked asked, struct token *token)
{
    AUTO(negotiation) *n = ask(world, asked);
    mint(world, n, token);
}

static UNUSED struct negotiation *refresh(struct world *world, struct asked asked, const char *text)
{
    struct attempt attempt = {.world = world};
    struct error err = {0};
    struct negotiation *n = make_negotiation(&attempt, &asked);
    n->current_token = memory_string(text);
    if (!leasing_refresh(world->leasing, n, &err)) {
        n->refusal = err;
        attempt_answered(&attempt, n);
    }
    return attempt_wait(&attempt);
}

static UNUSED enum error_kind refresh_kind(struct world *world, struct asked asked, const char *text)
{
    AUTO(negotiation) *n = refresh(world, asked, text);
    return n->refusal.kind;
}

static UNUSED void refresh_token(struct world *world, struct asked asked, const char *text, struct token *token)
{
    AUTO(negotiation) *n = refresh(world, asked, text);
    CHECK(!n->created && n->sandbox.id[0] && n->lease.id[0]);
    mint(world, n, token);
}

/* ---- several rules in one batch ---- */

struct gate {
    struct world *world;
    bool is_reached, is_open;
};

static enum kv_outcome gate_rule(struct kv *kv UNUSED, void *argument, struct error *err UNUSED)
{
    struct gate *gate = argument;
    pthread_mutex_lock(&gate->world->mutex);
    gate->is_reached = true;
    pthread_cond_broadcast(&gate->world->changed);
    while (!gate->is_open)
        pthread_cond_wait(&gate->world->changed, &gate->world->mutex);
    pthread_mutex_unlock(&gate->world->mutex);
    return KV_APPLIED;
}

/** What is asked until gate_open is one batch. */
static UNUSED void gate_shut(struct world *world, struct gate *gate)
{
    *gate = (struct gate){.world = world};
    ledger_submit(world->ledger, gate_rule, NULL, gate);
    pthread_mutex_lock(&world->mutex);
    while (!gate->is_reached)
        pthread_cond_wait(&world->changed, &world->mutex);
    pthread_mutex_unlock(&world->mutex);
}

static UNUSED void gate_open(struct gate *gate)
{
    pthread_mutex_lock(&gate->world->mutex);
    gate->is_open = true;
    pthread_cond_broadcast(&gate->world->changed);
    pthread_mutex_unlock(&gate->world->mutex);
}

static enum kv_outcome step_rule(struct kv *kv UNUSED, void *argument UNUSED, struct error *err UNUSED)
{
    world_now += 1000;
    return KV_APPLIED;
}

/** The clock goes on by a second between what was asked before and what is asked after. */
static UNUSED void gate_step(struct world *world)
{
    ledger_submit(world->ledger, step_rule, NULL, NULL);
}

/* ---- signs of life ---- */

/** `token` NULL: as who. The caller frees. */
static UNUSED struct question *sign(struct world *world, const char *who, enum role role, const char *thread,
                                    const char *token)
{
    struct question *q = question_new();
    q->verb = QUESTION_SIGN;
    q->caller.principal.role = role;
    q->token = memory_string(token);
    CHECK(text_copy(q->caller.principal.name, PRINCIPAL_BYTES, who) &&
          text_copy(q->thread_id, sizeof q->thread_id, thread));
    return question_wait(world, q);
}

static UNUSED enum error_kind sign_kind(struct world *world, const char *who, enum role role, const char *thread,
                                        const char *token)
{
    AUTO(question) *q = sign(world, who, role, thread, token);
    return q->refusal.kind;
}

/* ---- revocations ---- */

struct revoke {
    const char *who; /* NULL: nobody with an API key */
    enum role role;
    const char *owner, *token, *value;
    enum mark_kind kind;
    int64_t before_ms;
};

struct revoke_attempt {
    struct world *world;
    bool done;
    struct revoking *r;
};

static void revoke_answered(void *cookie, struct revoking *r)
{
    struct revoke_attempt *attempt = cookie;
    pthread_mutex_lock(&attempt->world->mutex);
    attempt->r = r;
    attempt->done = true;
    pthread_cond_broadcast(&attempt->world->changed);
    pthread_mutex_unlock(&attempt->world->mutex);
}

static UNUSED void revoke_start(struct world *world, struct revoke_attempt *attempt, struct revoke asked)
{
    *attempt = (struct revoke_attempt){.world = world};
    struct revoking *r = revoking_new();
    r->verb = REVOKING_MAKE;
    r->caller.principal.role = asked.role;
    r->kind = asked.kind;
    r->before_ms = asked.before_ms;
    r->token = memory_string(asked.token);
    CHECK(text_copy(r->caller.principal.name, PRINCIPAL_BYTES, asked.who ? asked.who : "") &&
          text_copy(r->caller.owner, PRINCIPAL_BYTES, asked.owner ? asked.owner : "") &&
          text_copy(r->value, sizeof r->value, asked.value ? asked.value : "") &&
          text_copy(r->reason, sizeof r->reason, "a test"));
    r->answered = revoke_answered;
    r->cookie = attempt;
    leasing_revoke(world->leasing, r);
}

static UNUSED bool revoke_is_done(struct revoke_attempt *attempt)
{
    pthread_mutex_lock(&attempt->world->mutex);
    bool done = attempt->done;
    pthread_mutex_unlock(&attempt->world->mutex);
    return done;
}

static UNUSED struct revoking *revoke_wait(struct revoke_attempt *attempt)
{
    pthread_mutex_lock(&attempt->world->mutex);
    while (!attempt->done)
        pthread_cond_wait(&attempt->world->changed, &attempt->world->mutex);
    pthread_mutex_unlock(&attempt->world->mutex);
    return attempt->r;
}

/** The answer once nothing more happens by itself, and then that of the end of waiting. The caller frees. */
static UNUSED struct revoking *revoke_it(struct world *world, struct revoke asked)
{
    struct revoke_attempt attempt;
    revoke_start(world, &attempt, asked);
    settle(world);
    if (!revoke_is_done(&attempt))
        later(world, REVOCATION_WAIT_MS);
    return revoke_wait(&attempt);
}

static UNUSED enum error_kind revoke_kind(struct world *world, struct revoke asked)
{
    AUTO(revoking) *r = revoke_it(world, asked);
    return r->refusal.kind;
}

/** FIND and LIST. The caller frees. */
static UNUSED struct revoking *look(struct world *world, enum revoking_verb verb, const char *who, enum role role,
                                    const char *id, size_t limit, bool all)
{
    struct revoke_attempt attempt = {.world = world};
    struct revoking *r = revoking_new();
    r->verb = verb;
    r->caller.principal.role = role;
    r->limit = limit;
    r->all = all;
    CHECK(text_copy(r->caller.principal.name, PRINCIPAL_BYTES, who) && text_copy(r->id, sizeof r->id, id));
    r->answered = revoke_answered;
    r->cookie = &attempt;
    leasing_revoke(world->leasing, r);
    return revoke_wait(&attempt);
}

/* ---- on the ledger thread ---- */

struct probe {
    struct world *world;
    const struct capability_claims *claims;
    int64_t at_ms;
    bool refused, found;
    const char *node, *ledger_id, *row;
    uint64_t cursor;
    json_t *page;
};

static enum kv_outcome probe_refused(struct kv *kv UNUSED, void *argument, struct error *err UNUSED)
{
    struct probe *probe = argument;
    probe->refused = marks_refuse(probe->world->leasing, probe->claims, probe->at_ms) != NULL;
    return KV_APPLIED;
}

/** Whether a node that has all marks refuses the token at that time. */
static UNUSED bool is_refused(struct world *world, const struct capability_claims *claims, int64_t at_ms)
{
    struct error err = {0};
    struct probe probe = {.world = world, .claims = claims, .at_ms = at_ms};
    CHECK(ledger_run(world->ledger, probe_refused, &probe, &err));
    return probe.refused;
}

static enum kv_outcome delete_row(struct kv *kv, void *argument, struct error *err)
{
    const struct probe *probe = argument;
    AUTO(kv_change) *change = kv_change_new();
    kv_change_delete(change, probe->row);
    return kv_apply(kv, change, err);
}

/** As if the ledger had been put back from a copy that did not have it yet. */
static UNUSED void lose_row(struct world *world, const char *table, const char *id)
{
    struct error err = {0};
    AUTO_FREE char *row = memory_printf("%s/%s", table, id);
    struct probe probe = {.row = row};
    CHECK(ledger_run(world->ledger, delete_row, &probe, &err));
}

static enum kv_outcome find_row(struct kv *kv, void *argument, struct error *err)
{
    struct probe *probe = argument;
    AUTO_KV_VALUE value = {0};
    bool read = kv_get(kv, probe->row, &value, err);
    probe->found = value.revision > 0;
    return read ? KV_APPLIED : KV_FAILED;
}

static UNUSED bool has_row(struct world *world, const char *table, const char *id)
{
    struct error err = {0};
    AUTO_FREE char *row = memory_printf("%s/%s", table, id);
    struct probe probe = {.row = row};
    CHECK(ledger_run(world->ledger, find_row, &probe, &err));
    return probe.found;
}

static enum kv_outcome probe_hear(struct kv *kv UNUSED, void *argument, struct error *err UNUSED)
{
    struct probe *probe = argument;
    marks_heard(probe->world->leasing, probe->node, probe->ledger_id, probe->cursor);
    probe->page = marks_page(probe->world->leasing, probe->node);
    return KV_APPLIED;
}

/** A heartbeat's part about marks; the page in the reply, or NULL. The caller decrefs. */
static UNUSED json_t *hear(struct world *world, const char *node, const char *ledger_id, uint64_t cursor)
{
    struct error err = {0};
    struct probe probe = {.world = world, .node = node, .ledger_id = ledger_id, .cursor = cursor};
    CHECK(ledger_run(world->ledger, probe_hear, &probe, &err));
    return probe.page;
}
