/** console.h - a session with a process of the sandbox at the user's console: its output to stdout and stderr, keys or
 * a pipe to its input, signals, size, and the way out. Used by shell, attach and watch. */
#pragma once

#include "clients/cli/cli.h"

#include "clients/c/remote.h"
#include "clients/c/terminal.h"

#include <stdbool.h>
#include <stdint.h>

enum console_input {
    CONSOLE_KEYS, /* stdin is a terminal, and raw: all keys but the escapes are the process's */
    CONSOLE_PIPE, /* stdin as it comes, and its end; signals too */
    CONSOLE_NONE  /* nothing is passed on; ^C leaves */
};

struct console_wanted {
    enum terminal_use use;
    enum console_input input;
    bool tty; /* it is a terminal */
    const char *id;
    const char *const *arguments; /* as terminal.h has them */
    const char *cwd;
    const char *const *variables;
    const char *narrow_to;
    bool has_from;
    uint64_t from;
    uint64_t replay_to; /* output up to here is old: what the user's terminal answers to it is dropped */
    const char *thread; /* to tell how to come back */
    bool verbose;
};

struct console_end {
    struct remote_end process; /* its `started` also on failure */
    bool left;                 /* by the user or a signal; the process lives on */
    int signal;                /* that ended it here; 0 none */
};

/** Until the process ends or somebody leaves. The errors of terminal_turn. */
bool console_run(const struct console_wanted *wanted, const struct grant_keeping *keeping, struct console_end *end,
                 struct error *err) MUST_USE;

/** The same with a grant for `request`: one that is spent is replaced, as long as the process did not start. */
bool console_run_with_grant(const struct console_wanted *wanted, const struct place *place,
                            const struct grant_request *request, struct grant *grant, struct console_end *end,
                            struct error *err) MUST_USE;

/** Exit status of parley after that; tells what is to be told. `err` when it failed. */
int console_status(const struct console_wanted *wanted, bool ran, const struct console_end *end,
                   const struct error *err) MUST_USE;
