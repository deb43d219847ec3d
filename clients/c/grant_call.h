/** grant_call.h - the two calls that give a grant, as transfers for any loop, and a grant as JSON: the negotiator's
 *  answer, the cache's entry. Inside libparley. */
#pragma once

#include "clients/c/call.h"
#include "clients/c/grant.h"

/** POST /threads/{t}/sandbox. `timeout_ms` 0: 60 s. */
bool grant_call_negotiate(struct call_transfer *transfer, const struct place *place,
                          const struct grant_request *request, unsigned timeout_ms, struct error *err) MUST_USE;

/** POST /threads/{t}/sandbox/refresh with the grant's token. */
bool grant_call_refresh(struct call_transfer *transfer, const struct place *place, const struct grant_request *request,
                        const struct grant *grant, unsigned timeout_ms, struct error *err) MUST_USE;

/** The end of either; *grant is written on success only. */
bool grant_call_finish(struct grant *grant, struct call_transfer *transfer, CURLcode code, const char *thread,
                       struct error *err) MUST_USE;

/** No verdict on the token: nobody answered, or for a reason that passes. */
bool grant_call_may_pass(enum error_kind kind) MUST_USE;

/** What the cache keeps. The caller owns it. */
json_t *grant_to_entry(const struct grant *grant) MUST_USE;

/** Reads an entry; false when it is none. *grant is written on success only. */
bool grant_from_entry(struct grant *grant, json_t *entry) MUST_USE;

/** Puts token, times and address of `from` (then empty) in place of those of `grant`; both are of one sandbox. */
void grant_take_token(struct grant *grant, struct grant *from);
