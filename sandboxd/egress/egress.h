/** egress.h - the egress process from its configuration to its end: one loop that serves the sandboxes that the
 * launcher names. */
#pragma once

#include "sandboxd/egress/house.h"

struct egress_options {
    int launcher; /* SOCK_SEQPACKET, blocking; the first message, EG_CONFIG, is read here. Taken over */
    struct house_face face;
    /** Gives up all rights; after all that needs files was read. */
    bool (*confine)(const struct eg_config *config, struct error *err);
};

/** Ignores SIGPIPE. Runs until the launcher is gone (true) or something cannot be had or be true (false). Ends every
 * connection. */
bool egress_run(const struct egress_options *options, struct error *err) MUST_USE;
