/** freeze.h - what open incidents keep from being issued: grants, refreshes, shares, login tokens, API keys.
 *
 *    frozen/<principal>/<incident id>    "": nothing is issued to that principal, nor for what is his
 *    frozen/everybody!/<incident id>     "": nor to anybody (no principal has such a name)
 *
 *  They last until the incident is closed, over restarts too. Tokens that are not revoked stay good. */
#pragma once

#include "negotiator/leasing/store.h"

#define FREEZE_EVERYBODY "everybody!"

struct freeze;
/** Nothing is frozen; the caller owns it. */
struct freeze *freeze_new(void);
/** NULL is allowed. */
void freeze_free(struct freeze *freeze);

/** Whether something may be issued to `principal`. False: ERROR_FROZEN in *refusal names the incident, or (when it is
 *  empty) the store failed. As a rule of its own batch sees it. Ledger thread. */
bool freeze_allows(struct work *work, const char *principal, struct error *refusal) MUST_USE;

/** Whether the caller may change, end or delete what is `principal`'s: while that is frozen it is evidence, and an
 * admin's alone to touch. False: as freeze_allows. */
bool freeze_lets_go(struct work *work, const struct caller *caller, const char *principal,
                    struct error *refusal) MUST_USE;

/** Adds to the change that nothing is issued to `who` (FREEZE_EVERYBODY: anybody) while that incident is open; and that
 *  it is again. */
void freeze_add(struct work *work, const char *who, const char *incident);
void freeze_lift(struct work *work, const char *who, const char *incident);

/** Reads all that is frozen for freeze_take; NULL (err set) when the store fails. The caller owns it. */
json_t *freeze_read(struct work *work) MUST_USE;
/** It is durable: from now on it is what leasing_allows_issuing says. Takes it. Ledger thread. */
void freeze_take(struct leasing *leasing, json_t *frozen);
