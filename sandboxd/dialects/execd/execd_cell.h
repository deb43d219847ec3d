/** execd_cell.h - a request that is answered with what comes of code in a context: of a cell, as it shows it, or of a
 * line in a session, as a command's. A client that leaves stops nothing; one that takes nothing is cut off, as the
 * context waits for it. Belongs to the request's loop. */
#pragma once

#include "sandboxd/sandbox/kernels/kernel_run.h"
#include "shared/http/server.h"

enum execd_cell_kind {
    EXECD_CELL_CODE,   /* pieces of output, results; an error, and execution_complete in every case */
    EXECD_CELL_SHELL,  /* the same with lines of output, as of a command */
    EXECD_CELL_SESSION /* lines of output; an error with the exit code, or execution_complete */
};

/** Takes charge of the request's answer; `id` (copied) is told as what runs. The run is to be handed to kernels_run at
 *  once. */
struct kernel_run *execd_cell_new(struct http_request *request, enum execd_cell_kind kind, const char *id) MUST_USE;
