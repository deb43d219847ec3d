#include "negotiator/leasing/presented.h"

#include "negotiator/leasing/leasing_internal.h"

#include <string.h>

void presented_done(struct presented *presented)
{
    sandbox_done(&presented->sandbox);
}

static bool find_sandbox(struct work *work, const char *id, struct sandbox *sandbox)
{
    return !random_is_id(id, "sbx") || store_get_sandbox(work, id, sandbox);
}

/* The key is derived for an unknown sandbox too: it takes as long, and says the same. */
static void derive_root(const struct leasing *leasing, const struct sandbox *sandbox, const char *id, struct key *root)
{
    AUTO_KEY node;
    const struct leasing_nodes *nodes = &leasing->options.nodes;
    key_node(&node, &leasing->master, sandbox->node, nodes->key_epoch(nodes->context, sandbox->node));
    key_sandbox_root(root, &node, id);
}

static bool is_too_old(const struct presented *presented, int64_t now_s)
{
    return now_s - presented->claims.expires_at > presented->grace_s;
}

bool presented_judge(struct work *work, const char *token, struct presented *presented, struct error *refusal)
{
    AUTO_KEY root;
    char sandbox_id[CAPABILITY_ID_BYTES];
    struct capability_claims *claims = &presented->claims;
    struct sandbox *sandbox = &presented->sandbox;
    size_t length = strnlen(token, CAPABILITY_TEXT_BYTES);
    int64_t now_s = work->now / 1000;
    if (!capability_addressed(token, length, sandbox_id) || !capability_decode(claims, token, length, NULL))
        return error_set(refusal, ERROR_UNAUTHENTICATED, "the token is not valid");
    if (!find_sandbox(work, sandbox_id, sandbox))
        return false;
    derive_root(work->leasing, sandbox, sandbox_id, &root);
    const struct capability_expectation expected = {.issuer = work->leasing->deployment,
                                                    .sandbox_id = sandbox_id,
                                                    .root = &root,
                                                    .epoch = presented->any_epoch ? 1 : sandbox->epoch,
                                                    .unknown = sandbox->revision == 0};
    /* What has run out is judged as of its last moment, and then by how long ago that was. */
    int64_t at = now_s < claims->expires_at ? now_s : claims->expires_at;
    enum capability_refusal why = capability_verify(claims, &expected, token, length, at, refusal);
    if (why == CAPABILITY_WRONG_EPOCH)
        return error_set(refusal, ERROR_TOKEN_REVOKED, "the token is revoked");
    if (why != CAPABILITY_OK)
        return error_set(refusal, ERROR_UNAUTHENTICATED, "the token is not valid");
    return !is_too_old(presented, now_s) ||
           error_set(refusal, ERROR_TOKEN_EXPIRED, "the token has expired; negotiate again");
}
