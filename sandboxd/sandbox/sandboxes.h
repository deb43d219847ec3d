/** sandboxes.h - all sandboxes of this node as the front sees them, and the verbs on them. No HTTP: a dialect calls a
 * verb on its own loop and gets the answer there; the work is done on the loop the sandbox belongs to (registry.h). */
#pragma once

#include "sandboxd/front_launcher/front_launcher.h"
#include "sandboxd/sandbox/command.h"
#include "sandboxd/sandbox/follower.h"
#include "sandboxd/sandbox/process_view.h"
#include "sandboxd/sandbox/registry.h"
#include "shared/base/cleanup.h"
#include "shared/base/error.h"
#include "shared/http/loop.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define SANDBOXES_LOOPS_MAX 64

struct sandboxes_options {
    unsigned loops;                       /* of the server that will run them, 1..SANDBOXES_LOOPS_MAX */
    unsigned descriptors_max;             /* open at once for commands, all sandboxes; one gets at most a quarter */
    int launcher;                         /* the socket; borrowed until the first loop starts, then owned */
    int run_folder;                       /* O_PATH descriptor of STATE/sandboxd/run; borrowed */
    void (*ended)(void *context);         /* a sandbox ended; loop 0 */
    void (*launcher_gone)(void *context); /* nothing can be made or ended any more; loop 0 */
    void *context;
};

struct sandboxes;

struct sandboxes *sandboxes_new(const struct sandboxes_options *options) MUST_USE;
/** After the loops have ended. */
void sandboxes_free(struct sandboxes *all);
DEFINE_AUTO(sandboxes)

/** Says FL_READY and blocks until the launcher has told this node's identity and all that runs. Before any loop. */
bool sandboxes_meet_launcher(struct sandboxes *all, struct fl_identity *identity, struct error *err) MUST_USE;

/** To be called on each loop's thread before it serves, and before it ends: the loop takes up its sandboxes. */
void sandboxes_loop_started(struct sandboxes *all, struct loop *loop);
void sandboxes_loop_ending(struct sandboxes *all, struct loop *loop);

struct registry *sandboxes_registry(struct sandboxes *all) MUST_USE;

/* ---- for the negotiator's messages; any loop ---- */

/** What a verb tells when it is done. Valid during the call. */
struct verb_answer {
    struct error error; /* ERROR_NONE: done */
    const struct process_view *views;
    size_t count;
};

/** Makes a sandbox (idempotent by id) and answers when commands can be started in it. The registry then knows it. */
void sandboxes_prepare(struct sandboxes *all, const struct fl_prepare *prepare,
                       void (*done)(void *cookie, const struct verb_answer *answer), void *cookie);

/** TERM to all, 10 s, then the launcher removes it. Returns at once; an unknown id is fine. */
void sandboxes_destroy(struct sandboxes *all, const char *id, const char *reason);

/** Moves the hard deadline (UTC). NOT_FOUND, INVALID. */
void sandboxes_set_deadline(struct sandboxes *all, const char *id, int64_t deadline_ms,
                            void (*done)(void *cookie, const struct verb_answer *answer), void *cookie);

/* ---- verbs on commands; any loop. GONE when the sandbox ended, STARTING while init is not reached ---- */

/** Starts `command` (taken), or attaches to the one of the same id: `follower` is told. INVALID when it cannot be
 *  started, CONFLICT when the id names another command, NO_CAPACITY. */
void process_exec(struct sandboxes *all, const char *sandbox_id, struct command *command, struct follower *follower);

/** Follows a command that is there. NOT_FOUND; RANGE when an offset lies beyond what was written. */
void process_follow(struct sandboxes *all, const char *sandbox_id, const char *process_id, struct follower *follower);

/** Whether the id could be a command's: 1..64 of A-Za-z0-9._- */
bool process_is_id(const char *id) MUST_USE;

struct process_call {
    const char *sandbox_id, *process_id; /* NULL process_id: all of them (process_list) */
    void (*done)(void *cookie,
                 const struct verb_answer *answer); /* on the calling loop, never before the call returns */
    void *cookie;
};

/** Signal 1..64 to the command's process group. NOT_FOUND, CONFLICT when it has ended. */
void process_signal(struct sandboxes *all, const struct process_call *call, int number);
/** Kills it and all it started, also what it left behind. NOT_FOUND. */
void process_kill(struct sandboxes *all, const struct process_call *call);
/** Bytes (copied) for its stdin; answered when the pipe has taken them. `eof` closes it then. */
void process_write(struct sandboxes *all, const struct process_call *call, const void *data, size_t size, bool eof);
/** The views of one or all. */
void process_list(struct sandboxes *all, const struct process_call *call);
