/** launcher.h - parley-sandboxd itself: the privileged process that makes sandboxes for its front and keeps them when
 * the front, or the launcher before it, was killed. See ../DESIGN.md. */
#pragma once

#include "sandboxd/launcher/settings.h"

/** Runs until SIGTERM or SIGINT; sandboxes stay. `argv` (with the program's name) is what the front is started with.
 *  Returns the exit status; has logged what went wrong. */
int launcher_run(const struct settings *settings, char *const argv[]) MUST_USE;

/** Ends and removes every sandbox of this state folder; no launcher may be running on it. */
int launcher_purge(const struct settings *settings) MUST_USE;

/** Prints each layer of isolation, storage and the pool as a JSON line {"name","active","detail"}; 1 when one is
 * missing. `settings` NULL: they could not be read, `why` says so. `rootless`: why an ordinary user's node is not
 * possible here; NULL as root of whatever user namespace. */
int launcher_doctor(const struct settings *settings, const struct error *why, const struct error *rootless) MUST_USE;
