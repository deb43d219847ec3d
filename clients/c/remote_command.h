/** remote_command.h - a command for a sandbox: how the sandbox is told of it, started in the background, ended. To run
 *  one to its end is a session (session.h). */
#pragma once

#include "clients/c/grant.h"

#include "shared/base/error.h"

#include <jansson.h>
#include <stdbool.h>

/** What to run; all is borrowed. */
struct remote_command {
    const char *const *arguments; /* NULL-ended; NULL: the login shell, of a session */
    const char *cwd;              /* NULL: /workspace */
    const char *const *variables; /* "NAME=value", NULL-ended; NULL none */
    const char *user;             /* "root": of the user namespace, where policy allows; NULL: the sandbox's own */
    double timeout_s;             /* 0: none */
    bool has_stdin;               /* its stdin is open, else at its end from the beginning */
};

/** The members that POST /exec and a frame `start` have in common; the caller owns it. ERROR_INVALID tells which text
 *  is not UTF-8: JSON holds no other bytes. */
json_t *remote_command_json(const struct remote_command *command, const char *id, struct error *err) MUST_USE;

/** Whether that would succeed. */
bool remote_command_check(const struct remote_command *command, struct error *err) MUST_USE;

/** Starts it and waits for no end: its output is kept for who attaches, and its stdin left open if it has one. The same
 *  id again never starts it twice. Errors as above; UNAUTHENTICATED, TOKEN_EXPIRED, NOT_FOUND, GONE, NODE_UNREACHABLE:
 *  negotiate and call again. Blocks. */
bool remote_command_start(const struct grant *grant, const struct remote_command *command, const char *id,
                          struct error *err) MUST_USE;

/** Ends it with all it started; best effort, within 3 s. Blocks. */
void remote_command_end(const struct grant *grant, const char *id);
