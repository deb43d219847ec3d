#include "negotiator/leasing/leasing.h"

#include "negotiator/leasing/allowance.h"
#include "negotiator/leasing/incidents/freeze.h"
#include "negotiator/leasing/incidents/incident.h"
#include "negotiator/leasing/keeping/keeping.h"
#include "negotiator/leasing/keys/api_key.h"
#include "negotiator/leasing/keys/key_tokens.h"
#include "negotiator/leasing/keys/key_use.h"
#include "negotiator/leasing/leasing_internal.h"
#include "negotiator/leasing/marks.h"
#include "negotiator/leasing/page_walk.h"
#include "negotiator/leasing/revocations.h"
#include "shared/base/memory.h"
#include "shared/base/text.h"

#include <sodium.h>
#include <stdlib.h>
#include <string.h>

struct leasing *leasing_new(const struct leasing_options *options)
{
    struct leasing *leasing = memory_new(sizeof *leasing);
    leasing->options = *options;
    leasing->options.limits = wanted_limits_whole(&options->limits);
    leasing->started_ms = options->wall_ms();
    leasing->master = *options->master;
    leasing->options.master = &leasing->master;
    if (!text_copy(leasing->deployment, sizeof leasing->deployment, options->deployment))
        abort(); /* made by us, of a fixed form */
    leasing->options.deployment = leasing->deployment;
    leasing->policies = policies_new(&leasing->options);
    key_derive(&leasing->audit_key, &leasing->master, "parley/audit/1");
    key_derive(&leasing->owner_key, &leasing->master, "parley/owner/1");
    leasing->strangers = strangers_new();
    leasing->marks = marks_new();
    leasing->revocations = revocations_new();
    leasing->allowance = allowance_new();
    leasing->freeze = freeze_new();
    return leasing;
}

void leasing_free(struct leasing *leasing)
{
    if (leasing == NULL)
        return;
    starting_done(&leasing->starting);
    holding_done(&leasing->holding);
    changes_done(&leasing->changes);
    keeping_done(leasing);
    policies_free(leasing->policies);
    presence_done(&leasing->presence);
    revocations_free(leasing->revocations);
    marks_free(leasing->marks);
    allowance_free(leasing->allowance);
    incidents_done(leasing);
    freeze_free(leasing->freeze);
    strangers_free(leasing->strangers);
    key_done(&leasing->master);
    key_done(&leasing->audit_key);
    key_done(&leasing->owner_key);
    free(leasing);
}

static enum kv_outcome start_rule(struct kv *kv, void *argument, struct error *err)
{
    struct leasing *leasing = argument;
    AUTO(kv_change) *change = kv_change_new();
    struct work work = work_begin(leasing, kv, change, err);
    bool loaded = policies_load(&work) && quotas_recount(&work) && marks_load(&work) && revocations_load(&work) &&
                  incidents_load(&work) && store_mend_watches(&work) && api_key_mend(kv, change, err);
    return loaded ? store_apply(&work) : KV_FAILED;
}

bool leasing_start(struct leasing *leasing, struct error *err)
{
    if (!ledger_run(leasing->options.ledger, start_rule, leasing, err))
        return error_prefix(err, "taking up the ledger");
    reaper_start(leasing);
    retention_start(leasing);
    incidents_start(leasing);
    key_tokens_resume(leasing);
    key_use_start(leasing);
    return true;
}

void leasing_stopping(struct leasing *leasing)
{
    strangers_flush(leasing, true);
    key_use_flush(leasing);
    atomic_store(&leasing->stopping, true);
}

struct work work_begin(struct leasing *leasing, struct kv *kv, struct kv_change *change, struct error *err)
{
    return (struct work){.leasing = leasing, .kv = kv, .change = change, .now = leasing->options.wall_ms(), .err = err};
}

void leasing_owner(const struct leasing *leasing, const char *principal, char to[static LEASING_OWNER_BYTES])
{
    uint8_t hash[(LEASING_OWNER_BYTES - 1) / 2];
    crypto_generichash(hash, sizeof hash, (const uint8_t *)principal, strlen(principal), leasing->owner_key.bytes,
                       sizeof leasing->owner_key.bytes);
    text_hex(to, hash, sizeof hash);
}

const char *caller_owner(const struct caller *caller)
{
    return caller->owner[0] ? caller->owner : caller->principal.name;
}

bool caller_may(const struct caller *caller, enum role needed, struct error *refusal)
{
    bool own = strcmp(caller_owner(caller), caller->principal.name) == 0;
    if (!own && caller->principal.role != ROLE_ADMIN)
        return error_set(refusal, ERROR_NOT_FOUND, "no such thread or sandbox"); /* never 403: it would tell */
    if (caller->principal.role < needed)
        return error_set(refusal, ERROR_FORBIDDEN, "this needs role %s; the key has role %s", role_name(needed),
                         role_name(caller->principal.role));
    return true;
}

bool caller_pin(const struct caller *caller, char actor[static WANTED_ACTOR_BYTES], struct error *refusal)
{
    const char *pinned = caller->principal.actor;
    size_t type = strcspn(pinned, ":");
    _Static_assert(PRINCIPAL_ACTOR_BYTES == WANTED_ACTOR_BYTES, "one text of an actor");
    bool fits = actor[0] == '\0' || strcmp(actor, pinned) == 0 ||
                (strlen(actor) == type && strncmp(actor, pinned, type) == 0); /* "agent": whichever */
    if (pinned[0] == '\0')
        return true;
    if (!fits)
        return error_set(refusal, ERROR_FORBIDDEN, "the key is pinned to actor %s; the request says %s", pinned, actor);
    memcpy(actor, pinned, WANTED_ACTOR_BYTES);
    return true;
}

static void wipe_text(char *text)
{
    if (text)
        explicit_bzero(text, strlen(text));
    free(text);
}

struct negotiation *negotiation_new(void)
{
    return memory_new(sizeof(struct negotiation));
}

void negotiation_free(struct negotiation *negotiation)
{
    if (negotiation == NULL)
        return;
    wanted_done(&negotiation->wanted);
    wipe_text(negotiation->current_token);
    sandbox_done(&negotiation->sandbox);
    free(negotiation);
}

struct question *question_new(void)
{
    return memory_new(sizeof(struct question));
}

void question_free(struct question *question)
{
    if (question == NULL)
        return;
    wipe_text(question->token);
    free(question->claims);
    sandbox_done(&question->sandbox);
    for (size_t i = 0; i < question->count; i++)
        sandbox_done(&question->list[i]);
    free(question->list);
    json_decref(question->metadata);
    page_walk_free(question->walk);
    free(question->shares);
    free(question);
}

bool leasing_negotiate(struct leasing *leasing, struct negotiation *negotiation, struct error *err)
{
    if (!lease_is_thread_id(negotiation->thread_id))
        return error_set(err, ERROR_INVALID, "a thread id is 1 to %d of A-Za-z0-9._:-, and not . or ..",
                         CAPABILITY_THREAD_BYTES - 1);
    if (!principal_is_name(caller_owner(&negotiation->caller)))
        return error_set(err, ERROR_INVALID, "principal is not a name");
    if (!wanted_check(&negotiation->wanted, &leasing->options.limits, err))
        return false;
    negotiation->leasing = leasing;
    negotiate_submit(negotiation);
    return true;
}

bool leasing_grant(struct leasing *leasing, struct negotiation *negotiation, struct error *err)
{
    if (!random_is_id(negotiation->sandbox_id, "sbx"))
        return error_set(err, ERROR_NOT_FOUND, "no such sandbox; an id looks like sbx_ and 20 of a-z0-9");
    negotiation->wanted.mode = WANTED_ATTACH_ONLY;
    negotiation->thread_id[0] = negotiation->idempotency[0] = '\0';
    if (!wanted_check(&negotiation->wanted, &leasing->options.limits, err))
        return false;
    negotiation->leasing = leasing;
    negotiate_submit(negotiation);
    return true;
}

bool leasing_is_owner(struct kv *kv, const char *sandbox_id, const char *principal, bool *is_owner, struct error *err)
{
    AUTO_SANDBOX sandbox = {0};
    struct work work = {.kv = kv, .err = err};
    *is_owner = false;
    if (!random_is_id(sandbox_id, "sbx"))
        return true;
    if (!store_get_sandbox(&work, sandbox_id, &sandbox))
        return false;
    *is_owner = sandbox.revision > 0 && strcmp(sandbox.principal, principal) == 0;
    return true;
}

bool leasing_mint(const struct leasing *leasing, const struct negotiation *negotiation,
                  char token[static CAPABILITY_TEXT_BYTES], struct error *err)
{
    const struct sandbox *sandbox = &negotiation->sandbox;
    const struct leasing_nodes *nodes = &leasing->options.nodes;
    AUTO_KEY node, root, key;
    key_node(&node, &leasing->master, sandbox->node, nodes->key_epoch(nodes->context, sandbox->node));
    key_sandbox_root(&root, &node, sandbox->id);
    key_token(&key, &root, sandbox->epoch);
    return capability_mint(token, &negotiation->claims, &key, err);
}
