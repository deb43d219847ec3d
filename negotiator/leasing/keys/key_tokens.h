/** key_tokens.h - which tokens were granted under which API key, so that deleting a key ends them. Private to leasing.
 *
 *    keyfam/<key id>/<fam>    until when the family lives, s: it was granted, shared or renewed under that key;
 *                             forgotten with the family
 *    keygone/<key id>         {"principal", "wide"}: the key was deleted, its families are not all marked yet */
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

/** The key is deleted by the change: adds what makes key_tokens_end find its families; with many of them a mark of the
 *  whole principal, in *mark (number 0: none). */
bool key_tokens_delete(struct work *work, const struct api_key *key, struct mark *mark) MUST_USE;
/** That is durable: marks the families, a step a rule; then answers (NULL: nobody). Ledger thread. */
void key_tokens_end(struct leasing *leasing, const char *key_id, struct keying *keying);
/** Goes on with those that an earlier run of the program did not finish. Start-up. */
void key_tokens_resume(struct leasing *leasing);
