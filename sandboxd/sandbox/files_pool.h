/** files_pool.h - the file helpers of one sandbox: made through its init, lent to calls, kept for a while in between.
 * All of it belongs to the sandbox's loop, except where it says so. */
#pragma once

#include "sandboxd/sandbox/sandbox_internal.h"

#include <stdatomic.h>

#define FILES_CALLS_MAX        32 /* running, of one sandbox */
#define FILES_CALL_DESCRIPTORS 3  /* its helper's socket, the end of a pipe, a file */
#define FILES_IDLE_MAX         2

struct files_call;
struct files_pool;

/** What a call asked for. It is held by the call, on whose loop `call` is read, and by the verb on its way. */
struct files_loan {
    atomic_uint holders;
    struct sandboxes *all;
    char sandbox_id[FRONT_LAUNCHER_ID_BYTES];
    struct files_call *call; /* NULL: nobody wants it any more */
    bool wants_new;          /* not one that has served before */
    bool is_new;             /* the answer */
    int socket;              /* the answer; -1 until then */
};

/** Any loop. */
void files_loan_release(struct files_loan *loan);

/** A verb's work, its cookie a loan: lends a helper. NO_CAPACITY. */
void files_pool_lend(struct sandbox *sandbox, struct verb *verb);

/** What was lent comes back: `socket` (taken) of a helper that may serve again, or -1. `leaves_file`: a file that it
 *  handed over stays open, and counted, until files_file_closed. Any loop. */
void files_pool_return(struct sandboxes *all, const char *sandbox_id, int socket, bool leaves_file);

/** With the sandbox. */
void files_pool_free(struct sandbox *sandbox);
