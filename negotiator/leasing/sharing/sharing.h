/** sharing.h - another's way into a thread's sandbox (protocol.md, 2, `share`): tokens of a family of their own, which
 *  the thread's owner grants and ends. The thread, its lease and its sandbox stay the owner's. Ledger thread. Private
 * to leasing.
 *
 *    family/<id>                     as of every grant, with `owner` and `share_until` (families.h)
 *    share/<owner>/<thread>/<id>     "<when it was made, ms>"; forgotten 120 s after its end
 *    shareto/<sub>/<sandbox>/<id>    "<sandbox>": where a principal's tokens of shares can be used, and may have been:
 *                                    remembered as long as the sandbox, as its node's records may come late */
#pragma once

#include "negotiator/leasing/families.h"
#include "negotiator/leasing/leasing_internal.h"

#define SHARE_PREFIX "share:" /* sub of a share for whoever holds its token; then its id */

/** Runs the rule of a share (again). */
void share_submit(struct negotiation *negotiation);

/** Whose thread a token of these claims is for: who shared it, else its own principal. Once its MAC held. False: the
 *  store failed. */
bool sharing_owner(struct work *work, const struct capability_claims *claims,
                   char owner[static PRINCIPAL_BYTES]) MUST_USE;

/** Whether the sandbox is or was shared with that sub, as long as the sandbox is remembered. False: the store failed.
 */
bool sharing_is_with(struct work *work, const char *sub, const char *sandbox_id, bool *is_with) MUST_USE;

/** Fills q->shares with those of its thread's lease (q->lease) that hold. False: the store failed. */
bool sharing_list(struct work *work, struct question *question) MUST_USE;

/** Whether `id` is a share of that thread, as `family`; adds to the change that it is one no more. *found says so.
 *  False: the store failed. */
bool sharing_drop(struct work *work, const char *owner, const char *thread_id, const char *id, struct family *family,
                  bool *found) MUST_USE;

/** The marks that go with one about `owner`'s tokens: of the families that it shared, as tokens of a share bear another
 *  sub and are no less its issue. They are added to the change; *marks is the caller's to free. False: the store
 * failed.
 */
bool sharing_follow(struct work *work, const struct mark *mark, struct mark **marks, size_t *count) MUST_USE;

/* share_row.c */

/** Adds the two rows of a new share to the change. */
void share_put(struct work *work, const struct family *family);

/** One that was found: its family, and when it was made. */
struct share_found {
    struct family family;
    int64_t created_ms;
};

/** Calls visit for each share of the owner (thread_id NULL: of all threads), SHARES_MAX at most, that holds: its family
 *  can be used or renewed and no mark refuses it. What holds no more is dropped on the way when `mend`. False: visit
 * did say so, or the store failed. */
bool share_each(struct work *work, const char *owner, const char *thread_id, bool mend,
                bool (*visit)(void *cookie, const struct share_found *found), void *cookie) MUST_USE;

/** The row's key; "" when a part of it is too long. */
struct store_row share_key(const char *owner, const char *thread_id, const char *id) MUST_USE;
/** Adds to the change that its owner has it no more. */
void share_delete(struct work *work, const struct family *family);
