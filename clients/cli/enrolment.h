/** enrolment.h - `parley up` gives this machine's node its key by itself: over loopback, as any other node gets it. */
#pragma once

#include "clients/cli/supervisor.h"

/** Sees to it that STATE/sandboxd/node.json is this deployment's and names this negotiator. One that is gets at most
 *  another URL; else a join token is made with STATE/admin.key, once the negotiator answers, and used by
 *  `parley-sandboxd enrol`. Blocks for up to 30 s. */
bool enrolment_ensure(const struct supervisor *supervisor, struct error *err) MUST_USE;
