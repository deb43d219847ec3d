/** console.h - a session with a process of the sandbox at the user's console: its output to stdout and stderr, keys or
 * a pipe to its input, signals, size, and the way out. Used by run, shell, attach and watch. */
#pragma once

#include "clients/cli/cli.h"

#include "clients/c/session.h"

#include <stdbool.h>
#include <stdint.h>

enum console_input {
    CONSOLE_KEYS, /* stdin is a terminal, and raw: all keys but the escapes are the process's */
    CONSOLE_PIPE, /* stdin as it comes, and its end; signals too */
    CONSOLE_NONE  /* no stdin; ^C leaves unless the process is owned */
};

struct console_wanted {
    enum session_use use;
    enum console_input input;
    bool tty; /* it is a terminal */
    const char *id;
    const struct remote_command *command; /* as session.h has it */
    const char *narrow_to;
    bool has_from;
    uint64_t from;
    uint64_t replay_to; /* output up to here is old: what the user's terminal answers to it is dropped */
    const char *thread; /* to tell how to come back */
    /** The process goes when we do: signals are passed to it, the second ^C kills it, who leaves ends it. */
    bool owned;
    /** Takes the output instead of stdout and stderr; NULL none. */
    void (*output)(void *cookie, bool is_stderr, const void *data, size_t size);
    void *cookie;
    bool verbose;
};

struct console_end {
    struct session_end process; /* if it ended */
    bool started;               /* the process did, or may have; also on failure */
    bool left;                  /* by the user or a signal; the process lives on unless owned */
    int signal;                 /* that ended it here; 0 none */
    bool unread;                /* on failure: its output could not be passed on */
};

/** Until the process ends or somebody leaves. The errors of session_turn. */
bool console_run(const struct console_wanted *wanted, const struct grant_keeping *keeping, struct console_end *end,
                 struct error *err) MUST_USE;

/** The same with a grant for `request`: it is told, and replaced when it is spent, as long as the process did not
 *  start. */
bool console_run_with_grant(const struct console_wanted *wanted, const struct place *place,
                            const struct grant_request *request, struct grant *grant, struct console_end *end,
                            struct error *err) MUST_USE;

/** Exit status of parley after that; tells what is to be told. `err` when it failed. */
int console_status(const struct console_wanted *wanted, bool ran, const struct console_end *end,
                   const struct error *err) MUST_USE;
