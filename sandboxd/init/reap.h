/** reap.h - the dead: commands, and the orphans that every sandbox's PID 1 inherits. */
#pragma once

#include "sandboxd/init/init.h"

/** Watches SIGCHLD. */
bool reap_open(struct init *init, struct error *err) MUST_USE;

/** Reaps what is dead, boundedly: init->reap_again says that more may be. */
void reap_children(struct init *init);
