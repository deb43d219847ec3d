/** terminal.h - a new pseudo-terminal for a command, the user's own: the master stays here, the child gets the slave.
 */
#pragma once

#include "sandboxd/init/streams.h"

struct terminal_order {
    unsigned columns, rows;
    uint32_t uid, gid; /* whose it will be */
};

/** As streams_open. ERROR_NO_CAPACITY also when the sandbox (devpts max=) or the host has no terminal left. */
bool terminal_open(struct streams *streams, const struct terminal_order *order, int limit, struct error *err) MUST_USE;
