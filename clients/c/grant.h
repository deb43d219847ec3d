/** grant.h - a capability for a thread's sandbox: negotiated once, kept in a file (0600) for the next run, refreshed
 *  before it ends, negotiated anew when that is refused. */
#pragma once

#include "clients/c/place.h"

#include "shared/base/error.h"

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

/** What is asked for; NULL or 0 leaves the default to the negotiator. */
struct grant_request {
    const char *thread;    /* required */
    const char *sandbox;   /* "auto", or a name or id as a hint */
    const char *scopes;    /* space-separated */
    const char *mode;      /* "ensure", "attach_only", "create_only" */
    bool sandbox_required; /* hint_policy require */
    unsigned ttl_s;
    unsigned wait_s;    /* how long to wait while the sandbox is made; then STARTING */
    const json_t *more; /* further members for a sandbox that is made, as {"template": "base"}; borrowed. One that is
                           there must not differ in them: CONFLICT */
};

struct grant {
    char *thread, *sandbox_id, *sandbox_name, *state, *token, *jti, *http, *hint_note;
    char *warning;      /* what its owner must be told: the token before it was used elsewhere; NULL nothing */
    char *scopes;       /* granted, space-separated */
    int64_t expires_ms; /* wall clock, UTC, as the next two */
    int64_t refresh_ms; /* to be refreshed from then on */
    int64_t issued_ms;
    bool created, from_cache; /* a new sandbox was made; no negotiation was needed */
    json_t *reply;            /* the negotiator's whole answer without the token; NULL from the cache */
};

void grant_done(struct grant *grant);
#define AUTO_GRANT __attribute__((cleanup(grant_done))) struct grant

/** Negotiates and keeps the grant in the cache. The server's error kinds. */
bool grant_negotiate(struct grant *grant, const struct place *place, const struct grant_request *request,
                     struct error *err) MUST_USE;

/** The cached grant for this request while its refresh is not due, else that one refreshed, else a negotiated one. When
 *  the refresh gets no answer, or one that says nothing of the token, a token that still holds is used as it is. */
bool grant_get(struct grant *grant, const struct place *place, const struct grant_request *request,
               struct error *err) MUST_USE;

/** Refreshes the grant now, in place. Processes that share the cache refresh one after the other: who finds that
 *  another has done it takes that token. Waits for them 20 s at most (TIMEOUT). UNAUTHENTICATED, TOKEN_EXPIRED,
 *  TOKEN_REVOKED, NOT_FOUND: negotiate anew; TOKEN_REUSED: also that, and tell the user (grant_reused_sentence). */
bool grant_refresh(struct grant *grant, const struct place *place, const struct grant_request *request,
                   struct error *err) MUST_USE;

/** The grant was refused: in its place a newer one from the cache, else a negotiated one. On failure it is empty. */
bool grant_replace(struct grant *grant, const struct place *place, const struct grant_request *request,
                   struct error *err) MUST_USE;

/** Whether its scopes allow what a route needs: "process", "shell:ro". */
bool grant_allows(const struct grant *grant, const char *scope) MUST_USE;

/** Drops every cached grant of a sandbox: it was deleted. */
void grant_forget_sandbox(const char *sandbox_id);

/** What to tell the user after TOKEN_REUSED. */
extern const char grant_reused_sentence[];
