/** terminal_holders.h - what no process knows of terminals that one socket at a time may hold: those that wait for
 * their first one, which starts them, and who holds each. What runs is the sandbox's, and outlives this table. Locked:
 * any thread. */
#pragma once

#include "shared/base/cleanup.h"
#include "shared/base/error.h"
#include "shared/base/random.h"
#include "shared/http/loop.h"

#include <stdbool.h>
#include <stdint.h>

#define TERMINAL_HOLDERS_FRESH   16      /* of a sandbox, that wait */
#define TERMINAL_HOLDERS_KEPT_MS 3600000 /* and for how long */
#define TERMINAL_HOLDERS_LINE    8192    /* bytes of a command line at most */

struct terminal_holders;

struct registry;

/** Those of sandboxes that `registry` (outlives it) does not know as living are forgotten when there are many. */
struct terminal_holders *terminal_holders_new(struct registry *registry) MUST_USE;
void terminal_holders_free(struct terminal_holders *terminals);
DEFINE_AUTO(terminal_holders)

/** What is to be started. */
struct terminal_plan {
    char *cwd, *line; /* NULL: where commands start; a login shell */
};
void terminal_plan_done(struct terminal_plan *plan);

/** Who holds one: a request on its loop. */
struct terminal_holder {
    struct loop *loop; /* NULL: nobody */
    uint64_t number;
};

/** Takes the plan in; `now_ms` any clock that does not go back. NO_CAPACITY: the sandbox has as many that wait. */
bool terminal_holders_add(struct terminal_holders *terminals, const char *sandbox_id, struct terminal_plan *plan,
                          int64_t now_ms, char id[static RANDOM_ID_BYTES], struct error *err) MUST_USE;

/** Whether it waits to be started. */
bool terminal_holders_is_fresh(struct terminal_holders *terminals, const char *sandbox_id, const char *id) MUST_USE;

/** Holds it, known or not, for `holder`: CONFLICT when another does, unless `takes_over`, and then *before was it (else
 *  nobody). True: *is_fresh says whether it is to be started, and *plan (the caller's) what; it counts as started. */
bool terminal_holders_hold(struct terminal_holders *terminals, const char *sandbox_id, const char *id,
                           const struct terminal_holder *holder, bool takes_over, struct terminal_holder *before,
                           bool *is_fresh, struct terminal_plan *plan, struct error *err) MUST_USE;
/** This holder leaves; another one stays. */
void terminal_holders_leave(struct terminal_holders *terminals, const char *sandbox_id, const char *id,
                            const struct terminal_holder *holder);
/** Forgets one that waits: true when it did. */
bool terminal_holders_drop(struct terminal_holders *terminals, const char *sandbox_id, const char *id) MUST_USE;
