/** session_view.h - finds a process of the sandbox that is there and attaches the console to it. */
#pragma once

#include "clients/cli/cli.h"

#include "clients/c/grant.h"

#include <stdbool.h>

enum session_view_use {
    SESSION_VIEW_TYPES,   /* drives, with stdin */
    SESSION_VIEW_LISTENS, /* drives, without stdin */
    SESSION_VIEW_WATCHES, /* is never able to type */
    SESSION_VIEW_WATCHES_TERMINAL
};

/** `id` NULL: the newest terminal that runs. Returns parley's exit status, everything has been told. */
int session_view_attach(const struct place *place, const struct grant_request *request, struct grant *grant,
                        const char *id, enum session_view_use use, bool verbose) MUST_USE;
