/** identity.h - who shows a token of an outside issuer (protocol.md, 1): verified on a thread of its own, remembered
 * for a minute. No rules: what a principal may do is others' business. */
#pragma once

#include "negotiator/identity/issuers.h"

struct identity;

#define IDENTITY_AGAIN_NS (60 * UINT64_C(1000000000))

/** Reads the operator's file and those it names (issuers.h), while there are rights. An issuer's keys are read again no
 *  sooner than `again_ns` after the last time. ERROR_INVALID. The caller owns it. */
struct identity *identity_open(const char *file, uint64_t again_ns, struct error *err) MUST_USE;
/** The folders of those files (the caller frees them), so that they can be read again: but none that `state` lies in,
 *  with its keys. Returns how many. */
size_t identity_folders(const struct identity *identity, const char *state, char *folders[static ISSUERS_MAX]) MUST_USE;
/** Starts the threads: one that verifies, one for each issuer's keys. */
bool identity_start(struct identity *identity, struct error *err) MUST_USE;
/** Ends them; what waits is answered: ERROR_NO_CAPACITY. */
void identity_stop(struct identity *identity);
/** Stops before. NULL is allowed. */
void identity_free(struct identity *identity);
DEFINE_AUTO(identity)

/** Reads the keys of all issuers anew, as soon as it can be done, and forgets who was known. Any thread. */
void identity_reload(struct identity *identity);

/** Whether the text looks like a token of one of the issuers: nothing of it is proven. Any thread. NULL is no. */
bool identity_is_outside(const struct identity *identity, const char *credential) MUST_USE;

/** Whose it is, if it was verified in the last minute and has not expired. Any thread. */
bool identity_recall(struct identity *identity, const char *credential, struct principal *principal) MUST_USE;

/** Verifies it (copied): done(cookie, principal, err) is called once, on another thread; `principal` NULL: refused, and
 *  err says why: UNAUTHENTICATED, TOKEN_EXPIRED, FORBIDDEN, BAD_GATEWAY when the issuer's keys were never read. Any
 *  thread. False: too many wait, ERROR_RATE_LIMITED, and done is not called. */
bool identity_verify(struct identity *identity, const char *credential,
                     void (*done)(void *cookie, const struct principal *principal, const struct error *err),
                     void *cookie, struct error *err) MUST_USE;
