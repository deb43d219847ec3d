/** marks.h - the revocation marks in force on this node (protocol.md, 4): durable first, then in force on every loop,
 *  then the streams cut, then acknowledged. Loaded before the node listens. */
#pragma once

#include "shared/base/cleanup.h"
#include "shared/base/error.h"
#include "shared/capability/mark.h"

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#define MARKS_LEDGER_BYTES 64   /* a ledger id with its NUL */
#define MARKS_PAGE_MAX     4096 /* marks of one page */

struct marks;
struct marks_batch;

struct marks_options {
    int folder; /* of STATE/sandboxd/journal; borrowed */
    /** New marks are in force: cut what they refuse on all loops, then call marks_cut_done(batch) once from any thread.
     *  Called on the marks thread, which then waits. NULL: nobody has streams. */
    void (*cut)(void *context, struct marks_batch *batch);
    void *context;
};

/** Reads the journal "marks": from here on marks_refuses answers. A journal that is damaged before its end is
 * ERROR_INTERNAL and the node must not listen. Starts the thread that writes. */
struct marks *marks_open(const struct marks_options *options, struct error *err) MUST_USE;
/** Calls what done is still owed, whether their pages were taken or not; does not wait for a cut. NULL is allowed. */
void marks_free(struct marks *marks);
DEFINE_AUTO(marks)

/** Whether a token is refused now; any thread, a read lock and a few hash probes. */
bool marks_refuses(struct marks *marks, const struct capability_claims *claims, int64_t now_ms) MUST_USE;

/** The lowest key epoch of a sandbox that marks, or marks_raise_epoch, put in force; 0 none. Any thread. */
uint32_t marks_epoch(struct marks *marks, const char *sandbox_id) MUST_USE;

/** A token of a higher epoch was valid: from now on lower ones are not. Durable, not waited for: a front that dies
 *  before it is hears it again from the next such token or mark. Any thread. */
void marks_raise_epoch(struct marks *marks, const char *sandbox_id, uint32_t epoch);

/** The negotiator's clock (ms). What is over by it may be forgotten, and nothing before it was told: a node's own clock
 * may be wrong when it starts, and once that is set right what was forgotten would be missed for good. Any thread. */
void marks_tell_time(struct marks *marks, int64_t now_ms);

/** How many records are in force: marks and raised epochs. Any thread. */
size_t marks_count(struct marks *marks) MUST_USE;

/** Where this node is: {"ledger_id", "cursor"}. The caller owns it. Any thread. */
json_t *marks_position(struct marks *marks) MUST_USE;

/** Takes a page of the negotiator: {"ledger_id", "after", "upto", "marks": [...]}: all its marks with after < n <=
 * upto. Taken when it is of our ledger and `after` is not beyond our cursor, or of another one and after is 0 (marks of
 * the former ledger stay in force until they end); else nothing changes. done(cookie) is called once, on the marks
 * thread, when it is durable, in force and cut (or was not taken): marks_position then tells. ERROR_INVALID at once,
 * and done is not called. Any thread. */
bool marks_take(struct marks *marks, const json_t *page, void (*done)(void *cookie), void *cookie,
                struct error *err) MUST_USE;

/** A batch that is being cut. */
struct marks_batch;
/** Whether one of the batch's marks refuses the token. Any thread, until marks_cut_done. */
bool marks_batch_refuses(const struct marks_batch *batch, const struct capability_claims *claims,
                         int64_t now_ms) MUST_USE;
void marks_cut_done(struct marks_batch *batch);
/** Calls visit for each mark of the batch, until it says false. */
void marks_batch_each(const struct marks_batch *batch, bool (*visit)(void *cookie, const struct mark *mark),
                      void *cookie);
