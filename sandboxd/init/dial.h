/** dial.h - what only a process inside can give to the front: sockets of the sandbox's net namespace. */
#pragma once

#include "sandboxd/init/init.h"

/** FI_DIAL: begins to connect, never waits. */
void dial_start(struct init *init, const struct fi_dial *dial);
/** FI_LISTENERS. */
void dial_give_listeners(struct init *init);
