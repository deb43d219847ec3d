/** become.h - from a warm init to the sandbox that a lease asked for: the dialogue with the launcher, and all that
 * needs capabilities. What is in the file system may be a snapshot of a hostile sandbox's: nothing here follows a link,
 * waits for a pipe, or writes to what is no regular file. */
#pragma once

#include "sandboxd/init/init.h"
#include "sandboxd/launcher_init/launcher_init.h"

/** Before anything else here. */
void become_open(struct init *init);

/** Says that it is warm and waits; then becomes: names, /dev/shm, volumes, the user, limits, deadline; at last the
 *  capabilities go. False with ERROR_GONE: the launcher went away. The launcher has not been told of the end yet. */
bool become(struct init *init, struct error *err) MUST_USE;

/** Tells the launcher; `failed` NULL: ready. Closes the dialogue, which a guest keeps to see the launcher's end by. */
bool become_tell(struct init *init, const struct error *failed) MUST_USE;
