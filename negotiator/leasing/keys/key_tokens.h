/** key_tokens.h - which tokens were granted under which API key, so that deleting a key ends them. Private to leasing.
 *
 *    keyfam/<key id>/<fam>    until when the family lives, s: it was granted, shared or renewed under that key;
 *                             forgotten with the family
 *    keygone/<key id>         {"principal", "wide"}: its tokens are to end, its families are not all marked yet */
#pragma once

#include "negotiator/leasing/keys/keying.h"
#include "negotiator/leasing/store.h"

/** The token of these claims is issued to the caller: its family hangs on his key, if he has one. False: the store
 *  failed. */
bool key_tokens_note(struct work *work, const struct caller *caller, const struct capability_claims *claims) MUST_USE;

/** store_forget for a keyfam row: whether it is to live on, and until when (ms). */
bool key_tokens_until(const struct kv_value *value, int64_t now, int64_t *until) MUST_USE;

/** Whether the key that this caller showed is still there: it may have been deleted while the request was in the queue.
 *  False: the refusal says so, or (when it is empty) the store failed. */
bool key_tokens_allow(struct work *work, const struct caller *caller, struct error *refusal) MUST_USE;

/** Its tokens are to end, with the key or without: adds what makes key_tokens_end find them, also after a crash; with
 *  many families a mark of the whole principal, in *mark (number 0: none) for marks_made. */
bool key_tokens_condemn(struct work *work, const struct api_key *key, struct mark *mark) MUST_USE;
/** Once that is durable: marks the families, a step a rule; then done(cookie, err) once (NULL is allowed), on the
 * ledger thread. When it fails the next start goes on. Ledger thread. */
void key_tokens_end(struct leasing *leasing, const char *key_id, void (*done)(void *cookie, const struct error *err),
                    void *cookie);
/** Goes on with those that an earlier run of the program did not finish. Start-up. */
void key_tokens_resume(struct leasing *leasing);
