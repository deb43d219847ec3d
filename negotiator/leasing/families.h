/** families.h - the tokens that descend from one grant, as the ledger knows them, so that a refresh can tell a lost
 * reply from a leak. Private to this folder.
 *
 *    family/<fam>    struct family; forgotten 120 s after the latest exp of its tokens
 *    token/<jti>     "<fam> <exp>": every token issued but the first of a family, whose jti is the family's id;
 *                    forgotten 120 s after exp
 *    lease/<id>      whose lease it is; forgotten 120 s after the lease's max_expires_at */
#pragma once

#include "negotiator/leasing/store.h"

/** Times in seconds since 1970 UTC. */
struct family {
    char id[CAPABILITY_ID_BYTES];
    char sandbox_id[CAPABILITY_ID_BYTES];
    char lease[CAPABILITY_ID_BYTES];
    char thread_id[CAPABILITY_THREAD_BYTES];
    char principal[PRINCIPAL_BYTES]; /* sub of its tokens */
    char owner[PRINCIPAL_BYTES];     /* of a share: whose thread it is; "" the principal's own */
    int64_t share_until;             /* of a share: none of its tokens is issued for later; else 0 */
    char actor[WANTED_ACTOR_BYTES];
    bool long_lived;
    char jti[CAPABILITY_ID_BYTES];      /* of the current token, whose successor does not exist yet */
    char previous[CAPABILITY_ID_BYTES]; /* the spent token that the current one follows; "" none */
    char scope[SCOPE_TEXT_BYTES];       /* of the current one, as the next two */
    int64_t issued_at, expires_at;
    int64_t first_expires_at; /* of the first one; 0: a row of before this was kept, which has a token row */
    int64_t until;            /* the latest exp of any of its tokens */
    uint64_t revision;        /* of its row; 0 there is none */
};

/** Reads one; false (err set) only when the store fails or the row is damaged. */
bool family_get(struct work *work, const char *id, struct family *family) MUST_USE;

/** The family and exp of a token that was issued; *expires_at 0: it is not known. */
bool family_of_token(struct work *work, const char *jti, char id[static CAPABILITY_ID_BYTES],
                     int64_t *expires_at) MUST_USE;

/** Adds to the change that the token of these claims was issued: the successor of the current one (`before`, as it was
 *  read), or the first of its family (NULL, or what is to be known of that besides: owner and share_until). */
void family_issue(struct work *work, const struct capability_claims *claims, const struct family *before);

/** The claims of its current token. False when its row is not what was minted from. */
bool family_claims(const struct family *family, const struct sandbox *sandbox, const char *issuer,
                   struct capability_claims *claims, struct error *err) MUST_USE;

/** Adds to the change whose lease it is. */
void family_note_lease(struct work *work, const char *principal, const struct lease *lease);
/** The same of one whose end was moved. */
void family_renote_lease(struct work *work, const char *principal, const struct lease *lease);
/** When that row is to be looked at again; 0: it may be forgotten, as the lease has ended. False: the store failed. */
bool family_lease_until(struct work *work, const char *lease_id, int64_t *until) MUST_USE;

/** Whose a lease is or was: `lease` gets its id, thread, sandbox and max_expires_at; principal "" when it is not known.
 */
bool family_of_lease(struct work *work, const char *lease_id, char principal[static PRINCIPAL_BYTES],
                     struct lease *lease) MUST_USE;
