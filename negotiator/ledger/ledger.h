/** ledger.h - the ledger thread: runs rules against the store, many a batch, one sync, and answers when it is durable.
 */
#pragma once

#include "negotiator/ledger/kv.h"

#include "shared/base/error.h"
#include "shared/base/metrics.h"

#include <stdbool.h>
#include <stdint.h>

#define LEDGER_RETRIES_MAX 1000
#define LEDGER_BATCH_MAX   1024 /* rules in one batch, so that no batch takes long; the rest is the next one */

struct ledger;

/** A rule: decides and applies. Runs on the ledger thread inside a batch, and again from its start after KV_CONFLICT:
 * it must leave nothing but `argument`'s results behind, set anew each time. It applies one change at most, and last;
 * or several that each are whole by themselves, and that a run after them finds made.
 *  KV_FAILED with err is the answer then; LEDGER_RETRIES_MAX conflicts in a row are ERROR_INTERNAL. */
typedef enum kv_outcome ledger_rule(struct kv *kv, void *argument, struct error *err);

/** Called on the ledger thread after the batch's sync; err->kind ERROR_NONE when the rule's change is durable. It must
 *  not block: it posts to a loop or a queue. */
typedef void ledger_done(void *argument, const struct error *err);

/** Starts the thread, with all signals blocked; the store belongs to it from now on. On failure the store stays the
 *  caller's. */
struct ledger *ledger_start(struct kv *kv, struct error *err) MUST_USE;

/** Queues a rule. Any thread. Rules run in the order of the queue. `argument` lives until `done` has run.
 *  `done` (NULL is allowed) may submit again. Not after ledger_stop was called, but for a `done`. */
void ledger_submit(struct ledger *ledger, ledger_rule *rule, ledger_done *done, void *argument);

/** Queues something long as steps: `rule` is run again, each time as a rule of its own with others between, until
 *  is_over(argument) (ledger thread, before and after each step) or a step fails; then `done` once. However many there
 *  are, one step is queued at a time, and they take turns: any other rule waits for one step at most. Any thread; not
 *  after ledger_stop was called. */
typedef bool ledger_is_over(const void *argument);
void ledger_submit_long(struct ledger *ledger, ledger_rule *rule, ledger_is_over *is_over, ledger_done *done,
                        void *argument);

/** Runs one rule and waits for it: for start-up and tests, never on a loop. */
bool ledger_run(struct ledger *ledger, ledger_rule *rule, void *argument, struct error *err) MUST_USE;

/** Calls alarm(argument, now) once on the ledger thread, between batches, when the wall clock has reached `at_ms` (ms
 *  since 1970 UTC): a heap of deadlines, no polling; a step of the clock is noticed within 10 s. It must not block; it
 *  submits rules. Any thread. Alarms not yet called are dropped by ledger_stop (their arguments stay the caller's). */
typedef void ledger_alarm_call(void *argument, int64_t now_ms);
void ledger_alarm(struct ledger *ledger, int64_t at_ms, ledger_alarm_call *alarm, void *argument);

/** As ledger_alarm, in place of one of the same function and argument that was not called yet. */
void ledger_alarm_move(struct ledger *ledger, int64_t at_ms, ledger_alarm_call *alarm, void *argument);

/** From now on committed(context, kv) is called on the ledger thread after every batch that became durable, behind the
 *  answers of its rules. It must not block; it may read the store. One; any thread. NULL: none any more, and none is
 *  running when this returns. */
typedef void ledger_committed(void *context, struct kv *kv);
void ledger_on_commit(struct ledger *ledger, ledger_committed *committed, void *context);

/** For tests: where the alarms read the wall clock. It is read before and after every batch, and when an alarm comes.
 */
void ledger_set_clock(struct ledger *ledger, int64_t (*wall_ms)(void));

/** Since the start: rules answered, batches, KV_CONFLICTs, rules answered with an error. */
struct ledger_figures {
    uint64_t rules, batches, conflicts, failures;
};
void ledger_figures(struct ledger *ledger, struct ledger_figures *figures);
/** How long it took to make batches durable; the ledger's. Any thread. */
const struct metrics_histogram *ledger_syncs(const struct ledger *ledger) MUST_USE;

/** Finishes what is queued, ends the thread, frees the store. NULL is allowed. Not on the ledger thread. */
void ledger_stop(struct ledger *ledger);
