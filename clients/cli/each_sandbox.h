/** each_sandbox.h - what commands do to each sandbox that they are given, one after the other. */
#pragma once

#include "clients/cli/cli.h"

struct each_sandbox {
    const char *thread; /* whose sandbox is meant where none is named; NULL: the current folder's */
    /** To the sandbox of this id; *sandbox: as it is then, the callee's. */
    bool (*act)(const struct place *place, const char *id, const void *cookie, json_t **sandbox, struct error *err);
    /** One line about it, for people. */
    void (*print)(const json_t *sandbox);
    const void *cookie;
};

/** To each of `words` (names or ids, NULL behind them; none: the thread's), as far as it can be done; then tells all
 *  that were. The exit status: CLI_OK, or of the last that failed; each failure is told. */
int each_sandbox(const struct cli_common *common, char *const words[], const struct each_sandbox *each) MUST_USE;
