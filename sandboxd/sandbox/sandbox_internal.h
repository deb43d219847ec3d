/** sandbox_internal.h - what the files of this room share about one sandbox and its commands. Everything here belongs
 * to the sandbox's loop, except where it says so. */
#pragma once

#include "sandboxd/front_launcher/front_launcher.h"
#include "sandboxd/sandbox/command.h"
#include "sandboxd/sandbox/follower.h"
#include "sandboxd/sandbox/freezer.h"
#include "sandboxd/sandbox/init_link.h"
#include "sandboxd/sandbox/input.h"
#include "sandboxd/sandbox/output.h"
#include "sandboxd/sandbox/process_view.h"
#include "sandboxd/sandbox/sandboxes.h"
#include "sandboxd/sandbox/template_list.h"
#include "sandboxd/sandbox/terminal.h"
#include "shared/http/loop.h"

#include <pthread.h>
#include <stdatomic.h>

/* Bounds of what one sandbox may make this process keep. */
#define PROCESS_RECORDS_MAX    1000 /* of commands, running or ended */
#define PROCESS_COMMANDS_MAX   1000 /* running at once, unless the sandbox's limits say less */
#define PROCESS_TOMBS_MAX      4096 /* forgotten commands whose end is still known */
#define PROCESS_REPLAY_NS      (UINT64_C(600) * 1000000000)
#define PROCESS_KEPT_BYTES     (UINT64_C(1) << 20)         /* of a stream */
#define PROCESS_BEHIND_BYTES   (UINT64_C(4) << 20)         /* a driver may be behind by this */
#define PROCESS_SQUEEZED_BYTES (UINT64_C(64) << 10)        /* ... or by this, while the sandbox keeps too much */
#define SANDBOX_KEPT_BYTES     (UINT64_C(16) << 20)        /* of all streams, unless the sandbox's limits say else */
#define SANDBOX_HOLD_NS        (UINT64_C(30) * 1000000000) /* after an adoption nothing is punched */
#define PROCESS_DESCRIPTORS    FI_FDS_MAX                  /* of a command, at most */
#define PROCESS_INPUT_BYTES    (UINT64_C(4) << 20)         /* stdin that waits for a command */
#define SANDBOX_INPUT_BYTES    (UINT64_C(16) << 20)        /* ... for all commands of a sandbox */
#define SANDBOX_LINES_BYTES    (UINT64_C(4) << 20) /* of whole command lines; of others the title alone is known */

struct process;
struct sandbox;
struct files_pool;
struct ports;
struct programs;
struct kernel;
struct kernel_ask;
struct kernel_view;

struct process_stream {
    struct process *process;
    enum output_stream which;
    struct output *output;   /* NULL until started */
    struct loop_watch *pipe; /* NULL before the start and after the end of the stream; of a terminal, its master */
    bool is_wide;            /* its pipe was made wider: it floods; counted in sandbox.wide_pipes */
    bool wide_refused;
    bool reading;       /* the loop watches the pipe; else it waits for a driver */
    bool held;          /* of an earlier front: nothing is punched while the sandbox's hold lasts */
    uint64_t held_from; /* length at adoption: a driver that never reads, for so long */
    uint64_t end_at;    /* what was in the stream when the command ended; UINT64_MAX: not known yet */
};

/* Those on stdin that wait for their answer. */
struct process_verbs {
    struct verb *first, *last;
    size_t count;
    uint64_t bytes;
};

enum process_state { PROCESS_STARTING, PROCESS_RUNNING, PROCESS_ENDED };

/* A holder of a follower. */
struct process_follower {
    struct process_follower *next;
    struct process *process;
    struct follower *follower;
};

enum { PROCESS_WRITERS = 4, PROCESS_WRITER_BYTES = 16 };

/* Invariants: view.ended == (state == PROCESS_ENDED); end_told only when both streams reached end_at or their end. */
struct process {
    struct process *next, *previous; /* in the order of their starts */
    struct sandbox *sandbox;
    enum process_state state;
    struct process_view view; /* lengths are filled in when it is shown */
    uint8_t hash[COMMAND_HASH_BYTES];
    bool hash_known;               /* false for a command of an earlier front */
    bool named;                    /* the id came from a client */
    char *line;                    /* its whole command line; NULL: not kept */
    struct loop_timer *stop_timer; /* KILL follows, of process_stop, ended or not; NULL: none */
    char *origin;                  /* of its exec, until its end is told to command_ended */
    uint8_t writers[PROCESS_WRITERS][PROCESS_WRITER_BYTES]; /* told to command_takes_input; the newest of: */
    unsigned writer_count;
    bool end_told;
    uint64_t forget_at;           /* boot ns; once the end is told */
    struct loop_timer *end_timer; /* while ended and not told, else NULL */
    uint64_t oom_before;
    struct process_stream streams[OUTPUT_STREAMS];
    struct process_follower *followers;
    struct terminal *terminal;     /* NULL: none, or closed */
    struct input *input;           /* of stdin; NULL: none, closed, or not started */
    struct loop_watch *stdin_pipe; /* NULL: none, closed, or a terminal */
    bool input_ended;              /* all that it will ever be given was accepted */
    bool writing;                  /* waits for the pipe or the terminal */
    uint64_t input_bytes;          /* waiting; in the sandbox's too */
    struct process_verbs early;    /* until it is started */
    struct process_verbs unread;   /* accepted, and answered when few bytes wait */
};

/* A forgotten command that a client may ask for again by its id. */
struct process_tomb {
    struct process_tomb *next;
    uint8_t hash[COMMAND_HASH_BYTES];
    bool hash_known;
    struct process_view view;
};

struct sandbox {
    struct sandbox *next; /* of the same loop */
    struct sandboxes *all;
    struct loop *loop;
    struct fl_sandbox facts; /* without the root key: wiped; its env is each command's */
    int stats[FL_FDS];
    struct init_link *link;
    bool current; /* init has told all it knows */
    bool ending;
    struct error gone;             /* why, once ending */
    struct loop_watch *init_watch; /* pidfd, while ending */
    struct loop_timer *ending_timer;
    struct verb *waiting, *waiting_last; /* for `current` */
    size_t waiting_count;
    struct loop_timer *waiting_timer;
    struct process *processes, *processes_last;
    size_t process_count, running_count; /* records; those of them that have not ended */
    struct process_tomb *tombs, *tombs_last;
    size_t tomb_count;
    struct loop_timer *forget_timer;
    uint64_t kept_bytes; /* over all streams */
    int64_t descriptors; /* open for its commands */
    unsigned left_out;   /* commands that init told of, without room for them */
    int wide_pipes;
    uint64_t hold_until; /* boot ns; 0: over */
    struct loop_timer *hold_timer;
    uint64_t touched_at; /* boot ns */
    uint64_t sampled_at; /* boot ns; 0: not yet */
    uint64_t cpu_ms;     /* used by then */
    /* pause.c: */
    struct freezer *freezer;
    bool paused;           /* frozen, and told so; its mark is there */
    bool keeping;          /* a snapshot is being made: frozen, and what needs it to run is in `waiting` */
    struct verb *stopping; /* pauses and at most one snapshot, until nothing runs any more */
    /* metrics.c: */
    uint64_t disk_bytes, disk_asked_at; /* as the launcher said last; boot ns, 0: not yet */
    bool disk_asking;
    struct verb *measuring; /* waits for the launcher's word */
    struct loop_timer *measuring_timer;
    uint64_t input_bytes;      /* stdin that waits, of all its commands */
    uint64_t line_bytes;       /* of the command lines that are kept */
    struct files_pool *files;  /* NULL until a file operation was asked for */
    struct ports *ports;       /* NULL until one was asked for */
    struct programs *programs; /* NULL until a command had one */
    /* kernels.c: */
    struct kernel *kernels;
    uint64_t kernel_number;
    unsigned kernels_large; /* of these, with a large line that has not come whole */
};

/* ---- sandboxes.c: a verb on its way from the asking loop to the owner's and back ---- */
struct verb {
    struct verb *next;
    struct sandboxes *all;
    struct loop *asked_on;
    char sandbox_id[FRONT_LAUNCHER_ID_BYTES];
    char process_id[FRONT_INIT_ID_BYTES];
    void (*work)(struct sandbox *sandbox,
                 struct verb *verb); /* on the owner's loop; ends in verb_finish, now or later */
    struct command *command;
    struct follower *follower; /* held */
    int signal;
    uint64_t grace_ms; /* of process_stop */
    uint8_t *data;
    size_t size;
    uint64_t offset; /* of data in stdin; PROCESS_OFFSET_NONE */
    bool eof;
    unsigned columns, rows;
    char *origin;                                 /* of stdin */
    char request_id[SANDBOXES_REQUEST_BYTES];     /* of the negotiator's, "": none */
    char snapshot[FRONT_LAUNCHER_SNAPSHOT_BYTES]; /* "": it is no snapshot */
    uint64_t waits_until;                         /* boot ns, while init is being reached */
    void (*done)(void *cookie, const struct verb_answer *answer);
    void (*dropped)(void *cookie); /* instead of done, on any loop, while the loops end; may be NULL */
    void *cookie;
    struct error error;
    struct process_view *views;
    size_t view_count;
    char *line; /* of process_list of one */
    struct sandbox_kept kept;
    struct sandbox_metrics metrics;
    uint64_t disk_bytes;
    /* kernels.c: */
    struct kernel_ask *kernel;
    bool of_kernel; /* of a context itself: its stdin is nobody else's */
    struct kernel_view *kernel_views;
    size_t kernel_count;
    bool is_new;
    /* ports.c: */
    uint16_t port;
    int fd; /* -1: none. What nobody takes is closed */
};

/** A verb on the sandbox of this id, asked on the calling loop. */
struct verb *verb_new(struct sandboxes *all, const char *sandbox_id) MUST_USE;
/** Sends it to the owner's loop, which runs its work, or finishes it. */
void verb_send(struct verb *verb);
/** Answers on the loop that asked, and frees. NULL err: done. A verb with a follower tells the error there. */
void verb_finish(struct verb *verb, const struct error *err);
/** run(cookie) on the loop of that index, which may not have started yet. Any thread. */
void sandboxes_post(struct sandboxes *all, unsigned index, void (*run)(void *cookie), void *cookie);
/** The end of a sandbox as an error: GONE with the reason, or NOT_FOUND. */
void sandboxes_why_gone(struct sandboxes *all, const char *id, struct error *err);

/* ---- process.c ---- */
struct process *process_find(const struct sandbox *sandbox, const char *id) MUST_USE;
struct process_tomb *process_find_tomb(const struct sandbox *sandbox, const char *id) MUST_USE;
/** False when there is none. */
bool process_drop_tomb(struct sandbox *sandbox, const char *id) MUST_USE;
void process_show(const struct process *process, struct process_view *view);
void process_attach(struct process *process, struct follower *follower);
void process_free(struct process *process);
/** FI_STARTED (takes descriptors out of fds), FI_REFUSED, FI_EXITED. */
void process_started(struct sandbox *sandbox, const struct fi_started *started, int *fds);
void process_refused(struct sandbox *sandbox, const struct fi_refused *refused);
void process_exited(struct sandbox *sandbox, const struct fi_exited *exited);
/** Tells the end to the followers once all output before it has been moved. */
void process_check_end(struct process *process);
/** The sandbox is gone, and with it what ran: told to command_ended. */
void process_tell_gone(struct sandbox *sandbox, const struct error *why);
/** The link broke or the sandbox ends: commands not yet confirmed are failed. */
void process_fail_starting(struct sandbox *sandbox, const struct error *err);
/** Frees everything of an ending sandbox; followers get `err`. */
void process_free_all(struct sandbox *sandbox, const struct error *err);
/** Makes room for one more record and its descriptors, if need be by forgetting the oldest ended ones; false when that
 *  is not enough. */
bool process_make_room(struct sandbox *sandbox) MUST_USE;
/** An ended command whose end was told; init forgets it too. */
void process_forget(struct process *process);
/** Forgets the older half of the ended commands whose end was told. */
void process_forget_half(struct sandbox *sandbox);
struct process *process_new(struct sandbox *sandbox, const char *id) MUST_USE;
/** Keeps the whole command line, if the sandbox has room for it; gives it up. */
void process_keep_line(struct process *process, const struct command *command);
void process_drop_line(struct process *process);
/** How many commands may run at once, and how much of the output of all is kept. */
unsigned process_commands_max(const struct sandbox *sandbox) MUST_USE;
uint64_t process_kept_max(const struct sandbox *sandbox) MUST_USE;

/* ---- process_streams.c ---- */
/** Takes what it keeps out of `fds`. After a failure the process must be freed. */
bool process_open_streams(struct process *process, const struct fi_started *started, int *fds,
                          struct error *err) MUST_USE;
/** Nothing comes from it or goes to it any more. */
void process_close_terminal(struct process *process);

/* ---- process_output.c ---- */
/** `pipe` (taken) -1: the process's terminal, if it has one. */
void process_output_open(struct process_stream *stream, struct output *output, int pipe, bool held);
void process_output_close(struct process_stream *stream);
/** No more bytes come; what there is stays. */
void process_output_end(struct process_stream *stream);
void process_output_pump(struct process_stream *stream);
/** A reader moved or left, or the hold is over: what waited goes on. */
void process_output_resume(struct process *process);

/* ---- process_input.c ---- */
/** Does the verb: its data, offset and eof. Finishes it now or later. */
void process_input_write(struct process *process, struct verb *verb);
/** Whether `size` bytes more may wait in the sandbox: RATE_LIMITED when not. */
bool process_input_has_room(const struct sandbox *sandbox, size_t size, struct error *err) MUST_USE;
/** init told of it: takes both; `pipe` -1: a terminal's. */
void process_input_open(struct process *process, struct input *input, int pipe);
/** ... and the process runs: what was asked before goes on. */
void process_input_start(struct process *process);
void process_input_move(void *cookie);
/** This front has done with stdin; the verbs that wait get `err`, NULL: all has gone on. */
void process_input_close(struct process *process, const struct error *err);
/** The same, and nobody will read what waits: init closes it too. */
void process_input_abandon(struct process *process, const struct error *err);
/** FI_EOF. */
void process_tell_end_of_input(struct process *process);

/* ---- process_verbs.c: verbs' work on the owner's loop ---- */
void process_verb_exec(struct sandbox *sandbox, struct verb *verb);
void process_verb_follow(struct sandbox *sandbox, struct verb *verb);
void process_verb_signal(struct sandbox *sandbox, struct verb *verb);
void process_verb_kill(struct sandbox *sandbox, struct verb *verb);
void process_verb_stop(struct sandbox *sandbox, struct verb *verb);
void process_verb_remove(struct sandbox *sandbox, struct verb *verb);
void process_verb_input(struct sandbox *sandbox, struct verb *verb);
void process_verb_resize(struct sandbox *sandbox, struct verb *verb);
void process_verb_list(struct sandbox *sandbox, struct verb *verb);
/** The verb's command, which nobody follows, unless one of its id is known. What goes wrong is logged. */
void process_start_alone(struct sandbox *sandbox, struct verb *verb);

/* ---- kernels.c ---- */
/** init has told all it knows: contexts of an earlier front go on. */
void kernels_adopt(struct sandbox *sandbox);
/** Their runs get `err`. Before its processes are freed. */
void kernels_free(struct sandbox *sandbox, const struct error *err);
/** How often the context of this id was started, as far as is known here. */
unsigned kernels_last_start(const struct sandbox *sandbox, const char *id) MUST_USE;
/** Whether a client wants something done by it. */
bool kernels_is_deed(const struct verb *verb) MUST_USE;

/* ---- sandbox.c ---- */
struct sandbox *sandbox_find(struct sandboxes *all, const char *id) MUST_USE; /* on the calling loop */
/** Adopts or refreshes; takes the descriptors. `asked` (may be NULL) is finished when init is reached. `hold`: it was
 *  running before this front. */
void sandbox_put(struct sandboxes *all, const struct fl_sandbox *facts, int fds[FL_FDS], size_t fd_count, bool hold,
                 struct verb *asked);
/** The end of one that sandbox_end has announced, once no snapshot is made of it any more. */
void sandbox_stop(struct sandbox *sandbox);
void sandbox_end(struct sandbox *sandbox, const char *reason);
void sandbox_free(struct sandbox *sandbox, const struct error *err);
/** So many descriptors more (or fewer) are open for its commands. */
void sandbox_count_descriptors(struct sandbox *sandbox, int change);
/** Something happened in it. */
void sandbox_touch(struct sandbox *sandbox);
/** To be called every few seconds: a hundredth of a core used since the last time is a sign of life too. */
void sandbox_sample(struct sandbox *sandbox);
/** As init_link_send; takes `fd` (-1: none). */
bool sandbox_send(struct sandbox *sandbox, const struct front_init_message *message, int fd,
                  struct error *err) MUST_USE;
bool sandbox_send_several(struct sandbox *sandbox, const struct front_init_message *message, const int *fds,
                          size_t fd_count, struct error *err) MUST_USE;

/** The launcher says it is gone. */
void sandbox_gone(struct sandboxes *all, const char *id);

/* ---- waiting.c ---- */
/** Runs verb->work now, or when init is reached. */
void sandbox_run(struct sandbox *sandbox, struct verb *verb);
/** It will be run from its beginning by sandbox_run_waiting; refused when too many or too long. */
void sandbox_wait(struct sandbox *sandbox, struct verb *verb);
void sandbox_run_waiting(struct sandbox *sandbox);
void sandbox_fail_waiting(struct sandbox *sandbox, const struct error *err);

/* ---- pause.c: a freeze for as long as a pause, or a snapshot, lasts ---- */
/** Takes over what a front before this one has left. */
void sandbox_pause_adopt(struct sandbox *sandbox);
/** Those that wait for it to stop get `err`; the cgroup stays as it is. */
void sandbox_pause_free(struct sandbox *sandbox, const struct error *err);
/** It is to end: what is only about to be stopped goes on, so that it may end in order. */
void sandbox_pause_ending(struct sandbox *sandbox);
/** Before whatever needs its processes or files, and after it was found valid: one that is paused goes on. False: the
 *  verb is finished with an error, or waits and runs again from its beginning. */
bool sandbox_wake(struct sandbox *sandbox, struct verb *verb) MUST_USE;
void sandbox_verb_pause(struct sandbox *sandbox, struct verb *verb);
void sandbox_verb_resume(struct sandbox *sandbox, struct verb *verb);
void sandbox_verb_snapshot(struct sandbox *sandbox, struct verb *verb);
/** Tells options.sandbox_changes; `why` NULL: before it is done. */
bool sandbox_tell_change(const struct verb *verb, const char *action, const char *detail, const struct error *why,
                         struct error *err) MUST_USE;

/* ---- metrics.c ---- */
void sandbox_verb_metrics(struct sandbox *sandbox, struct verb *verb);
/** Asks the launcher what it has on disk, at most once a second. */
void sandbox_measure_disk(struct sandbox *sandbox);
void sandbox_metrics_free(struct sandbox *sandbox, const struct error *err);

/* ---- launcher_link.c: the socket to the launcher; belongs to loop 0 ---- */
struct launcher_link;
struct launcher_link *launcher_link_new(struct sandboxes *all, int socket) MUST_USE;
void launcher_link_free(struct launcher_link *link);
/** Blocks: READY, then all answers up to ADOPTED. Before loops. */
bool launcher_link_meet(struct launcher_link *link, struct fl_identity *identity, struct error *err) MUST_USE;
/** Loop 0 takes the socket over. */
void launcher_link_start(struct launcher_link *link, struct loop *loop);
void launcher_link_stop(struct launcher_link *link);
/** Any loop. `asked` (may be NULL) waits for the answer; INVALID when the message is none that the launcher would take.
 */
void launcher_link_ask(struct launcher_link *link, const struct front_launcher_message *message, struct verb *asked);

/* ---- shedding.c ---- */
/** Any loop. When over three quarters of all descriptors are in use every sandbox forgets a half of its ended commands,
 *  soon, on its own loop; at most once a second. */
void sandboxes_shed(struct sandboxes *all);

/* ---- sandboxes.c ---- */
struct sandboxes {
    struct sandboxes_options options;
    struct template_list *templates;
    struct registry *registry;
    struct launcher_link *launcher;
    unsigned descriptors_max;
    _Atomic int64_t descriptors; /* open for commands now; counted for bounds only, so no order is needed */
    _Atomic uint64_t shed_at;    /* boot ns: when sandboxes_shed did something last; 0 never */
    atomic_bool stopping;        /* a loop is ending: nobody waits for answers any more */
    pthread_mutex_t mutex;       /* guards what comes before a loop has started: early and the setting of loops */
    _Atomic(struct loop *) loops[SANDBOXES_LOOPS_MAX];
    struct early *early[SANDBOXES_LOOPS_MAX];
    struct sandbox *homes[SANDBOXES_LOOPS_MAX]; /* each belongs to its loop, as the next */
    struct loop_timer *sample_timers[SANDBOXES_LOOPS_MAX];
    struct kernel_parser *kernel_parser;
    struct execution_book *executions;
    struct execution_removal *removals[SANDBOXES_LOOPS_MAX]; /* as homes */
};
