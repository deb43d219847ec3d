/** policies.h - setting and asking the policy of a world (world.h). */
#pragma once

#include "negotiator/leasing/policy/policy.h"
#include "tests/unit/negotiator/leasing/grants.h"

struct policy_visit {
    struct world *world;
    bool done;
};

static void policy_answered(void *cookie, struct policy_question *q UNUSED)
{
    struct policy_visit *visit = cookie;
    pthread_mutex_lock(&visit->world->mutex);
    visit->done = true;
    pthread_cond_broadcast(&visit->world->changed);
    pthread_mutex_unlock(&visit->world->mutex);
}

/** Asks and waits. */
static void policy_ask(struct world *world, struct policy_question *q)
{
    struct policy_visit visit = {.world = world};
    q->answered = policy_answered;
    q->cookie = &visit;
    if (!leasing_ask_policy(world->leasing, q, &q->refusal))
        return;
    pthread_mutex_lock(&world->mutex);
    while (!visit.done)
        pthread_cond_wait(&world->changed, &world->mutex);
    pthread_mutex_unlock(&world->mutex);
}

static struct policy_question *policy_question_of(enum policy_verb verb, const char *who, enum role role)
{
    struct policy_question *q = policy_question_new();
    q->verb = verb;
    q->caller.principal.role = role;
    CHECK(text_copy(q->caller.principal.name, PRINCIPAL_BYTES, who));
    return q;
}

/** JSON with ' for ". The caller frees the question. */
static struct policy_question *policy_put(struct world *world, const char *document, int64_t version)
{
    struct policy_question *q = policy_question_of(POLICY_SET, "root", ROLE_ADMIN);
    AUTO_FREE char *text = memory_string(document);
    for (char *at = text; *at; at++)
        *at = *at == '\'' ? '"' : *at;
    q->document = json_loads(text, JSON_REJECT_DUPLICATES | JSON_DECODE_ANY, NULL);
    q->any_version = version < 0;
    q->version = version;
    CHECK(q->document != NULL);
    policy_ask(world, q);
    return q;
}

/** Whatever is there before. */
static UNUSED void policy_set(struct world *world, const char *document)
{
    AUTO(policy_question) *q = policy_put(world, document, -1);
    CHECK_TEXT(q->refusal.message, "");
}
