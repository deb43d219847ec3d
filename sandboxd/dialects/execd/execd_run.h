/** execd_run.h - a request that is answered with what a command writes, line by line, and how it ends. */
#pragma once

#include "sandboxd/sandbox/follower.h"
#include "shared/http/server.h"

enum execd_run_kind {
    EXECD_RUN_FOREGROUND, /* until the command's end */
    EXECD_RUN_BACKGROUND  /* until its start */
};

struct execd_run;

/** Takes charge of the request's answer, of the command that will be known as `id` (copied). The follower in it is to
 * be handed to process_exec at once. A client that leaves stops nothing. */
struct execd_run *execd_run_new(struct http_request *request, const char *id, enum execd_run_kind kind) MUST_USE;
/** Borrowed; until it is handed on. */
struct follower *execd_run_follower(struct execd_run *run) MUST_USE;
