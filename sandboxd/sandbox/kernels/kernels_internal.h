/** kernels_internal.h - what the files of contexts share. Everything here belongs to the sandbox's loop. */
#pragma once

#include "sandboxd/sandbox/kernels/kernel_frames.h"
#include "sandboxd/sandbox/kernels/kernels.h"
#include "sandboxd/sandbox/sandbox_internal.h"

#define KERNEL_LARGE_BYTES (256 * 1024) /* a line that is longer is one of at most: */
#define KERNELS_LARGE_MAX  4            /* ... that a sandbox may have here at once */
#define KERNEL_KILL_MS     2000         /* from an interrupt at a timeout to the kill */

/** What a verb on contexts carries. */
struct kernel_ask {
    char kernel_id[KERNEL_ID_BYTES];  /* "": any, or a new one */
    char language[DRIVER_NAME_BYTES]; /* "": not said */
    uint64_t timeout_ms;
    bool silent, merges, at_once, restarts, is_durable;
    char *code;             /* as a JSON text; owned */
    char *cwd;              /* the same; NULL: where it is */
    struct kernel_run *run; /* held */
};

/** Code that waits, or is under way. */
struct kernel_job {
    struct kernel_job *next;
    char id[KERNEL_RUN_ID_BYTES]; /* as its driver is told; "" while it waits */
    struct kernel_run *run;       /* held */
    char *code, *cwd;             /* NULL once they were sent */
    uint64_t timeout_ms;
    bool silent, merges;
    bool has_begun;      /* its driver said so */
    bool interrupts;     /* as soon as it has begun */
    bool is_over_due;    /* its time is over: interrupted */
    bool is_interrupted; /* it waits for its reader no more: what that has no room for is left out */
    bool told_left_out, told_error;
};

/* What becomes of it when its process has ended. */
enum kernel_after { KERNEL_IS_LOST, KERNEL_STARTS_ANEW, KERNEL_GOES };

/* Invariants: follower is NULL exactly when view.state is LOST; current has begun or was sent; state BUSY exactly when
 * there is a current job or a foreign one, and it is ready. */
struct kernel {
    struct kernel *next;
    struct sandbox *sandbox;
    uint64_t number; /* never used again: what answers that may come late keep */
    struct kernel_view view;
    unsigned started;       /* how often: the last part of its command's id */
    bool is_ready;          /* its driver said so, or it is an earlier front's */
    bool was_ready;         /* ever */
    bool is_durable;        /* what ends its shell ends a run alone */
    struct command *ground; /* cwd, variables and origin, to start it with */
    struct follower *follower;
    struct kernel_lines lines;
    bool in_line;    /* the first newline to come ends a line whose beginning is gone */
    bool is_large;   /* counted in sandbox.kernels_large */
    char error[121]; /* the last it wrote outside of frames */
    char why[160];   /* it was, or is to be, ended for this; "" */
    bool discards;   /* nothing that comes is of interest but its end */
    bool parsing;    /* a large frame is being read: what is behind it waits */
    enum kernel_after after;
    uint64_t anew_ms; /* the time that a restart gave it, for when it has ended; 0: the usual */
    struct loop_timer *again, *large_timer, *start_timer;
    struct verb *starting; /* answered when it is ready */
    struct verb *going;    /* answered when it is gone */
    /* kernel_jobs.c: */
    struct kernel_job *current, *first, *last;
    char foreign[KERNEL_RUN_ID_BYTES]; /* of a run that an earlier front began; "" none */
    bool foreign_over_due;
    char foreign_ended[KERNEL_RUN_ID_BYTES]; /* the last that ended: what it says later makes it no run again */
    struct loop_timer *timer;                /* of the run under way */
    bool attached;                           /* registry_attach */
};

/* ---- kernels.c ---- */
void kernel_ask_free(struct kernel_ask *ask);
struct kernel *kernel_find(const struct sandbox *sandbox, const char *id) MUST_USE;
/** That of kernel->number; NULL: it is gone. On the sandbox's loop. */
struct kernel *kernel_find_number(struct sandboxes *all, const char *sandbox_id, uint64_t number) MUST_USE;
/** Answers all of the list with the view, or err. */
void kernel_finish(struct kernel *kernel, struct verb **list, const struct error *err);
void kernel_show(const struct kernel *kernel, struct kernel_view *view);

/* ---- kernel.c ---- */
struct kernel *kernel_new(struct sandbox *sandbox, const char *id, const char *language) MUST_USE;
/** It is in the list no more; what waits for it gets err. */
void kernel_free(struct kernel *kernel, const struct error *err);
/** Starts its process; `timeout_ms` until it is ready. INVALID. */
bool kernel_start(struct kernel *kernel, uint64_t timeout_ms, struct error *err) MUST_USE;
/** One that is there: of an earlier front. */
void kernel_adopt(struct sandbox *sandbox, struct process *process, const char *id, unsigned started);
/** Ends its process for `why`; its runs are told so at once. */
void kernel_end(struct kernel *kernel, enum kernel_after after, const char *why);
/** Reads on, so many ns from now. */
void kernel_pull_later(struct kernel *kernel, uint64_t after_ns);
/** Counts it among those with a large line, or not any more. */
void kernel_set_large(struct kernel *kernel, bool is_large);
/** How its process ended, as view.reason. */
void kernel_find_reason(struct kernel *kernel, const struct process_end *end);
/** It has no process any more; view.reason tells why. It may be gone afterwards. */
void kernel_over(struct kernel *kernel);
/** The same, of one that could not be started. */
void kernel_not_started(struct kernel *kernel, const struct error *why);
/** The same, later. */
void kernel_pull_soon(struct kernel *kernel);
/** Whether its sandbox is paused, or a snapshot of it is made: its process does nothing, and is not to be blamed. */
bool kernel_is_frozen(const struct kernel *kernel) MUST_USE;
/** A message to init about its process. */
void kernel_tell_init(struct kernel *kernel, enum front_init_type type, int number);

/* ---- kernel_output.c ---- */
/** Reads on. */
void kernel_pull(void *cookie);

/* ---- kernel_jobs.c ---- */
/** Takes what it needs out of the ask. */
void kernel_add_job(struct kernel *kernel, struct kernel_ask *ask);
/** Sends the next, if it can. */
void kernel_next_job(struct kernel *kernel);
/** A frame about a run; takes what it needs out of it. */
void kernel_take_frame(struct kernel *kernel, struct kernel_frame *frame);
/** Whether the reader of what it runs takes large events as text. */
bool kernel_wants_text(const struct kernel *kernel) MUST_USE;
/** Whether the reader of what it runs is behind; it is called when not any more. */
bool kernel_waits_for_reader(struct kernel *kernel) MUST_USE;
void kernel_interrupt(struct kernel *kernel);
/** All that it has are over with the context: told as lost. */
void kernel_lose_jobs(struct kernel *kernel);
/** All are failed. */
void kernel_fail_jobs(struct kernel *kernel, const struct error *err);
/** Something that a driver did not say as a part of the current run's stderr. */
void kernel_note(struct kernel *kernel, const char *text);
/** Busy or not, for signs of life. */
void kernel_look_busy(struct kernel *kernel);
