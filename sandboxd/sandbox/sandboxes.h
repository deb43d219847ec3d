/** sandboxes.h - all sandboxes of this node as the front sees them, and the verbs on them. No HTTP: a dialect calls a
 * verb on its own loop and gets the answer there; the work is done on the loop the sandbox belongs to (registry.h). */
#pragma once

#include "sandboxd/front_launcher/front_launcher.h"
#include "sandboxd/sandbox/command.h"
#include "sandboxd/sandbox/follower.h"
#include "sandboxd/sandbox/process_view.h"
#include "sandboxd/sandbox/registry.h"
#include "sandboxd/sandbox/template_list.h"
#include "shared/base/cleanup.h"
#include "shared/base/error.h"
#include "shared/http/loop.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define SANDBOXES_LOOPS_MAX 64

/** What happens to a command, for the audit. Valid during the call. */
struct process_deed {
    const char *sandbox_id, *process_id;
    const char *origin;            /* as its exec (or this stdin) gave it; NULL: not known, it is of an earlier front */
    const struct command *command; /* of a start, else NULL */
    const struct process_end *end; /* of an end, else NULL */
    const struct error *why;       /* of an end without `end`: it was never started, or its sandbox ended */
};

/** What is done to a whole sandbox, for the audit. Valid during the call. */
struct sandbox_deed {
    const char *sandbox_id;
    const char *action;      /* "pause", "resume", "snapshot", "limits", "network" */
    const char *detail;      /* key=value pairs */
    const char *request_id;  /* of who asked the negotiator for it; "": nobody */
    const struct error *why; /* NULL: it is about to be done; else it failed */
};

struct sandboxes_options {
    unsigned loops;                           /* of the server that will run them, 1..SANDBOXES_LOOPS_MAX */
    unsigned descriptors_max;                 /* open at once for commands, all sandboxes; one gets at most a quarter */
    int launcher;                             /* the socket; borrowed until the first loop starts, then owned */
    int run_folder;                           /* O_PATH descriptor of STATE/sandboxd/run; borrowed */
    int paused_folder;                        /* O_PATH descriptor of STATE/sandboxd/paused, ours; borrowed; -1: none */
    void (*ended)(void *context);             /* a sandbox ended; loop 0 */
    void (*templates_changed)(void *context); /* the launcher told other ones; NULL: nobody minds; loop 0 */
    void (*launcher_gone)(void *context);     /* nothing can be made or ended any more; loop 0 */
    /* Before a command is started, and before the first bytes that each writer sends to its stdin: false refuses it. On
     * the sandbox's loop, as the next; NULL: nobody minds. */
    bool (*command_starts)(void *context, const struct process_deed *deed, struct error *err);
    bool (*command_takes_input)(void *context, const struct process_deed *deed, struct error *err);
    /* Once for each start that was not refused: it ended, failed to start, or went with its sandbox. Of one of an
     * earlier front that one may have told it already. None when the connection to init broke before it began to start.
     */
    void (*command_ended)(void *context, const struct process_deed *deed);
    /* Before it is done, false refuses it; and once more when it failed (the answer is not looked at then). Any loop.
     */
    bool (*sandbox_changes)(void *context, const struct sandbox_deed *deed, struct error *err);
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

/** Commands, signals and input that wait on this loop for their sandbox to be reached are answered ERROR_STARTING:
 * whoever may still do that asks again. */
void sandboxes_refuse_waiting(struct sandboxes *all);

struct registry *sandboxes_registry(struct sandboxes *all) MUST_USE;
/** The templates of this node. */
struct template_list *sandboxes_templates(struct sandboxes *all) MUST_USE;

/* ---- for the negotiator's messages; any loop ---- */

#define SANDBOXES_REQUEST_BYTES 65 /* a request's id with its NUL */

/** What this loop's thread asks for from here on is for that request: its deeds tell its id. NULL: for none. */
void sandboxes_asked_by(const char *request_id);

/** A snapshot that is there. */
struct sandbox_kept {
    char template_name[FRONT_LAUNCHER_NAME_BYTES], storage[FRONT_LAUNCHER_NAME_BYTES];
    uint64_t size_bytes;
    unsigned running; /* commands that ran when it was made, and are not in it */
};

/** A sandbox at this moment. */
struct sandbox_metrics {
    struct fl_limits limits; /* in force; no 0 but of the disk */
    uint64_t cpu_used_ms, memory_used_bytes, oom_kills, pids_used, disk_used_bytes, kept_bytes;
    unsigned commands_running;
    bool paused;
    int64_t started_ms; /* UTC */
    char storage[FRONT_LAUNCHER_NAME_BYTES];
};

struct kernel_view;

/** What a verb tells when it is done. Valid during the call. */
struct verb_answer {
    struct error error; /* ERROR_NONE: done */
    const struct process_view *views;
    size_t count;
    const char *line;                      /* of process_list of one: the whole command line; NULL: not kept */
    const struct sandbox_kept *kept;       /* of sandboxes_snapshot */
    const struct sandbox_metrics *metrics; /* of sandboxes_metrics */
    uint64_t disk_bytes;                   /* for metrics.c alone */
    int fd;                                /* for ports.c, and of sandboxes_evidence: the callee's */
    const struct kernel_view *kernels;     /* of kernels.h */
    size_t kernel_count;
    bool is_new; /* kernels_create: it was not there before */
};

/** Makes a sandbox (idempotent by id) and answers when commands can be started in it. The registry then knows it.
 *  `entrypoint` (taken; NULL: none) has an id, and is started in one that is new, or was made within the last minute
 * and knows no command of that id: the front that was to start it may have been killed. */
void sandboxes_prepare(struct sandboxes *all, const struct fl_prepare *prepare, struct command *entrypoint,
                       void (*done)(void *cookie, const struct verb_answer *answer), void *cookie);

/** TERM to all, 10 s, then the launcher removes it; one that is still being made at once, and who prepares it gets
 * GONE. Returns at once; an unknown id is fine. */
void sandboxes_destroy(struct sandboxes *all, const char *id, const char *reason);

/** Moves the hard deadline (UTC). NOT_FOUND, INVALID. */
void sandboxes_set_deadline(struct sandboxes *all, const char *id, int64_t deadline_ms,
                            void (*done)(void *cookie, const struct verb_answer *answer), void *cookie);

/** Other limits (0 in a field: as it is) for a living sandbox; the registry has all that are in force then. NOT_FOUND,
 * GONE; INVALID, NO_CAPACITY: the launcher's. Recorded as "limits". */
void sandboxes_set_limits(struct sandboxes *all, const char *id, const struct fl_limits *limits,
                          void (*done)(void *cookie, const struct verb_answer *answer), void *cookie);

/** Where a living sandbox may go from now on; what is open and no longer allowed is cut. `detail` says it for the
 * record "network". NOT_FOUND, GONE; INVALID, FORBIDDEN, NO_CAPACITY: the launcher's. */
void sandboxes_set_network(struct sandboxes *all, const char *id, const struct fl_network *network, const char *detail,
                           void (*done)(void *cookie, const struct verb_answer *answer), void *cookie);

/** Stops all that runs in a sandbox until a verb needs it, or sandboxes_resume. Both are idempotent. Answered when
 * nothing runs any more: CONFLICT when it was used meanwhile, TIMEOUT when something cannot be stopped; GONE,
 * NOT_FOUND. */
void sandboxes_pause(struct sandboxes *all, const char *id,
                     void (*done)(void *cookie, const struct verb_answer *answer), void *cookie);
void sandboxes_resume(struct sandboxes *all, const char *id,
                      void (*done)(void *cookie, const struct verb_answer *answer), void *cookie);

/** What is in it, seen from outside and without waking it: a file of lines (evidence.h) in the answer, those items left
 *  out that are in pages before. Recorded as "evidence". NOT_FOUND, GONE; FORBIDDEN, RATE_LIMITED: the launcher's. */
void sandboxes_evidence(struct sandboxes *all, const char *id, enum fl_evidence_part part, uint64_t skip,
                        void (*done)(void *cookie, const struct verb_answer *answer), void *cookie);

/** Keeps what is on its disk as `snapshot` ("snp_..."); nothing of it runs meanwhile, and verbs that need it wait.
 * Errors as of a pause, CONFLICT while another is made, and the launcher's. */
void sandboxes_snapshot(struct sandboxes *all, const char *id, const char *snapshot,
                        void (*done)(void *cookie, const struct verb_answer *answer), void *cookie);
/** Any id is fine, also of one that is not there. */
void sandboxes_drop_snapshot(struct sandboxes *all, const char *snapshot,
                             void (*done)(void *cookie, const struct verb_answer *answer), void *cookie);
/** Removes a named volume; fine when it is not there, CONFLICT when a sandbox has it. */
void sandboxes_drop_volume(struct sandboxes *all, const char *owner, const char *name,
                           void (*done)(void *cookie, const struct verb_answer *answer), void *cookie);

/** What it uses; does not wake a paused one. */
void sandboxes_metrics(struct sandboxes *all, const char *id,
                       void (*done)(void *cookie, const struct verb_answer *answer), void *cookie);

/** Hands the next epoch of the node's key to the launcher; `done` hears when it is durable. The launcher then ends this
 *  front (SIGTERM: requests finish) and starts the next one under the new key; commands live on. Of the node call
 *  {"call":"rekey","epoch","public_key","nonce","box"}: `epoch` is checked to be 2..UINT32_MAX by the caller, the rest
 *  is read by enrol_box_read(&rekey.box, message, err). CONFLICT, UNAUTHENTICATED, INVALID are the launcher's. */
void sandboxes_rekey(struct sandboxes *all, const struct fl_rekey *rekey,
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
    const char *origin; /* copied; of process_write, for its process_deed; may be NULL. The last of its lines names the
                           request, those before it the writer */
};

/** Signal 1..64 to the command's process group; INT, QUIT and TSTP of a terminal to its foreground group. NOT_FOUND,
 * CONFLICT when it has ended. */
void process_signal(struct sandboxes *all, const struct process_call *call, int number);
/** Kills it and all it started, also what it left behind. NOT_FOUND. */
void process_kill(struct sandboxes *all, const struct process_call *call);
/** Kills it as that does, and forgets it when it has ended: output, end and id. NOT_FOUND. */
void process_remove(struct sandboxes *all, const struct process_call *call);
#define PROCESS_GRACE_MAX_MS 3600000
/** TERM to its process group now; what then is left of it and of all it started is killed grace_ms
 *  (1..PROCESS_GRACE_MAX_MS) later, as long as this front lives. Answered at once. NOT_FOUND, CONFLICT when it has ended. */
void process_stop(struct sandboxes *all, const struct process_call *call, uint64_t grace_ms);
#define PROCESS_OFFSET_NONE UINT64_MAX

/** Bytes (copied) for its stdin, accepted at once and kept across a restart of this front; answered when few wait to be
 *  read, the answer's view telling stdin_offset. `offset` (or PROCESS_OFFSET_NONE: at the end): where in stdin they
 * belong; what was accepted before is skipped, RANGE when bytes before them are missing. `eof`: nothing comes behind
 * them; of a terminal, its end-of-file character, which counts as a byte. CONFLICT when stdin is closed, RATE_LIMITED
 * when too much waits (nothing is taken then). */
void process_write(struct sandboxes *all, const struct process_call *call, const void *data, size_t size,
                   uint64_t offset, bool eof);
/** Columns and rows (1..FRONT_INIT_CELLS_MAX) of a terminal. NOT_FOUND, CONFLICT when it is none or has ended. */
void process_resize(struct sandboxes *all, const struct process_call *call, unsigned columns, unsigned rows);
/** The views of one or all; of one also its line. */
void process_list(struct sandboxes *all, const struct process_call *call);
