/** completion.h - `parley completion`: knows all commands, so main gives it their table. */
#pragma once

#include "clients/cli/cli.h"

/** A row of main's table. */
struct cli_command {
    const char *name;
    int (*main)(int argc, char *argv[]);
    const char *help; /* one line */
};

int completion_run(const struct cli_command *commands, size_t count, int argc, char *argv[]);
