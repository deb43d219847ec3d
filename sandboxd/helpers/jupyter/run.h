/** run.h - one run of code: which of a kernel's messages belong to it, what they are as frames, and when it is over:
 * when the reply has come and the kernel has said that it is idle, in either order. */
#pragma once

#include "sandboxd/helpers/jupyter/frames.h"
#include "sandboxd/helpers/jupyter/message.h"

#include <stdbool.h>
#include <stdint.h>

/** Embedded; zero: there was none yet. */
struct run {
    bool is_active;
    bool is_busy, is_executing; /* the kernel said that it began; that it runs the code */
    bool is_idle, is_replied;   /* the two ends */
    bool was_interrupted;       /* somebody asked for it */
    bool told_started, told_error, refused_stdin;
    char id[MESSAGE_ID_BYTES];      /* the front's; of the last run when none is active */
    char message[MESSAGE_ID_BYTES]; /* its request */
    char status[16];                /* of the reply: ok, error, aborted */
    json_t *reply;                  /* its content, owned */
    json_int_t count;               /* the kernel's, last heard */
};

/** Begins: `message` is the msg_id of its execute_request. */
void run_begin(struct run *run, const char *id, const char *message);

/** What came on iopub. Of other runs and of none, only output is told, as nobody's (""). */
void run_on_iopub(struct run *run, const struct message *message, struct frames *frames);

/** What came on shell. */
void run_on_reply(struct run *run, const struct message *message, struct frames *frames);

/** The kernel asks for a line although it was told not to. */
void run_refuse_stdin(struct run *run, struct frames *frames);

/** Releases what it holds. */
void run_done(struct run *run);

/** Tells that it is over, and how. */
void run_end(struct run *run, struct frames *frames);
