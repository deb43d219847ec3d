/** grant.h - a capability for a thread's sandbox: negotiated once, kept in a file (0600) for the next run, negotiated
 *  anew when it is spent. */
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
};

struct grant {
    char *thread, *sandbox_id, *sandbox_name, *state, *token, *jti, *http, *hint_note;
    char *scopes;             /* granted, space-separated */
    int64_t expires_ms;       /* wall clock, UTC */
    bool created, from_cache; /* a new sandbox was made; no negotiation was needed */
    json_t *reply;            /* the negotiator's whole answer without the token; NULL from the cache */
};

void grant_done(struct grant *grant);
#define AUTO_GRANT __attribute__((cleanup(grant_done))) struct grant

/** Negotiates and keeps the grant in the cache. The server's error kinds. */
bool grant_negotiate(struct grant *grant, const struct place *place, const struct grant_request *request,
                     struct error *err) MUST_USE;

/** The cached grant for this request if it is good for another 30 s, else a negotiated one. */
bool grant_get(struct grant *grant, const struct place *place, const struct grant_request *request,
               struct error *err) MUST_USE;

/** Drops the cached grant of this request: it was refused. */
void grant_forget(const struct place *place, const struct grant_request *request);

/** Drops every cached grant of a sandbox: it was deleted. */
void grant_forget_sandbox(const char *sandbox_id);
