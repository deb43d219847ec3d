/** execd_terminals.h - the terminals of this dialect's clients that no process knows of: those that wait for their
 * first socket, which starts them, and which socket holds each. What runs is the sandbox's, and outlives this table.
 * Locked: any thread. */
#pragma once

#include "shared/base/cleanup.h"
#include "shared/base/error.h"
#include "shared/base/random.h"
#include "shared/http/loop.h"

#include <stdbool.h>
#include <stdint.h>

#define EXECD_TERMINALS_FRESH   16      /* of a sandbox, that wait */
#define EXECD_TERMINALS_KEPT_MS 3600000 /* and for how long */
#define EXECD_TERMINALS_LINE    8192    /* bytes of a command line at most */

struct execd_terminals;

struct registry;

/** Those of sandboxes that `registry` (outlives it) does not know as living are forgotten when there are many. */
struct execd_terminals *execd_terminals_new(struct registry *registry) MUST_USE;
void execd_terminals_free(struct execd_terminals *terminals);
DEFINE_AUTO(execd_terminals)

/** What is to be started. */
struct execd_terminal_plan {
    char *cwd, *line; /* NULL: where commands start; a login shell */
};
void execd_terminal_plan_done(struct execd_terminal_plan *plan);

/** Who holds one: a request on its loop. */
struct execd_terminal_holder {
    struct loop *loop; /* NULL: nobody */
    uint64_t number;
};

/** Takes the plan in; `now_ms` any clock that does not go back. NO_CAPACITY: the sandbox has as many that wait. */
bool execd_terminals_add(struct execd_terminals *terminals, const char *sandbox_id, struct execd_terminal_plan *plan,
                         int64_t now_ms, char id[static RANDOM_ID_BYTES], struct error *err) MUST_USE;

/** Whether it waits to be started. */
bool execd_terminals_is_fresh(struct execd_terminals *terminals, const char *sandbox_id, const char *id) MUST_USE;

/** Holds it, known or not, for `holder`: CONFLICT when another does, unless `takes_over`, and then *before was it (else
 *  nobody). True: *is_fresh says whether it is to be started, and *plan (the caller's) what; it counts as started. */
bool execd_terminals_hold(struct execd_terminals *terminals, const char *sandbox_id, const char *id,
                          const struct execd_terminal_holder *holder, bool takes_over,
                          struct execd_terminal_holder *before, bool *is_fresh, struct execd_terminal_plan *plan,
                          struct error *err) MUST_USE;
/** This holder leaves; another one stays. */
void execd_terminals_leave(struct execd_terminals *terminals, const char *sandbox_id, const char *id,
                           const struct execd_terminal_holder *holder);
/** Forgets one that waits: true when it did. */
bool execd_terminals_drop(struct execd_terminals *terminals, const char *sandbox_id, const char *id) MUST_USE;
