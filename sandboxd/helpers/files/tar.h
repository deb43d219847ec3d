/** tar.h - runs the template's tar in a folder. Its standard output or input is a pipe of the front, so not a byte goes
 *  through the helper. It is killed with the helper. */
#pragma once

#include "shared/base/error.h"

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#define TAR_ERRORS_BYTES 1024

struct tar {
    pid_t pid;                   /* 0: not running */
    int errors;                  /* its stderr, non-blocking; -1 */
    size_t size;                 /* of `text` */
    char text[TAR_ERRORS_BYTES]; /* the last it said */
    size_t lines;                /* it said */
};

enum tar_pipe { TAR_READS, TAR_WRITES };

/** Starts it in `folder` with its arguments (NULL-ended, without the name; at most 16) and the pipe as its stdin or
 *  stdout; both stay the caller's. ERROR_NOT_FOUND: the template has no tar. */
bool tar_start(struct tar *tar, int folder, int pipe, enum tar_pipe direction, const char *const *arguments,
               struct error *err) MUST_USE;

/** Takes what it has said by now. False at the end: it is gone, or has closed its stderr. */
bool tar_listen(struct tar *tar) MUST_USE;

/** Waits for its end, after tar_listen said so. True when it went well: exit status 0 or 1 (*changed: a file changed
 *  while it was read). Else the error has the last of what it said, and a kind that fits. */
bool tar_end(struct tar *tar, bool *changed, struct error *err) MUST_USE;

/** Kills it if it runs, and forgets it. */
void tar_done(struct tar *tar);
