/** remote.h - runs one command in a sandbox over its capability: streams output as it comes, feeds stdin, passes
 * signals on, and survives a broken connection: the command has an id, its output has offsets, nothing is lost or
 * doubled. */
#pragma once

#include "clients/c/grant_keeper.h"

#include "shared/base/error.h"

#include <stdbool.h>
#include <stddef.h>

/** What to run. */
struct remote_command {
    char id[33];                  /* remote_command_new_id; the same id again attaches, never runs twice */
    const char *const *arguments; /* NULL-ended */
    const char *cwd;              /* NULL: /workspace */
    const char *const *variables; /* "NAME=value", NULL-ended; NULL none */
    double timeout_s;             /* 0: none */
    int stdin_fd;                 /* -1: none; else read until its end */
    int signal_fd;                /* signalfd(2) whose signals go to the command; -1: none */
    /** Output as it comes, on the calling thread; false: nobody reads any more, give up. */
    bool (*output)(void *cookie, bool is_stderr, const void *data, size_t size);
    void (*note)(void *cookie, const char *sentence); /* "connection lost, resuming"; NULL none */
    void *cookie;
    /** Keeps the grant below fresh while the command runs, so that it may outlive its token; NULL: nobody does. */
    const struct grant_keeping *keeping;
};

/** How it ended. */
struct remote_end {
    int exit_code;   /* 128 + n when a signal ended it */
    char signal[16]; /* "SIGKILL", or "" */
    bool timed_out, oom;
    bool started;   /* it did run: never start it again under another id */
    bool abandoned; /* on failure: given up from here (nobody reads, interrupted, stdin cut); it was told to end */
};

void remote_command_new_id(struct remote_command *command);

/** Runs it to its end; with `keeping` the grant changes meanwhile. UNAUTHENTICATED, TOKEN_EXPIRED, NOT_FOUND or GONE
 * before it started: negotiate and call again. `end->started` is set also on failure. A command that is given up from
 * here is ended with all it started. Blocks; one thread at a time per command. */
bool remote_run(const struct grant *grant, const struct remote_command *command, struct remote_end *end,
                struct error *err) MUST_USE;

/** Starts it and waits for no end: its output is kept for who attaches. stdin_fd -1: its stdin is closed, else it is
 * left open for who attaches (nothing is read here). The errors of remote_run before it started. */
bool remote_start(const struct grant *grant, const struct remote_command *command, struct error *err) MUST_USE;
