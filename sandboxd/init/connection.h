/** connection.h - the one front that is connected: what it asks, and what it has still to be told. There is no queue of
 *  messages: what it was not told yet stands in the commands themselves, so a front that comes anew misses nothing. */
#pragma once

#include "sandboxd/init/command.h"

/** Starts to listen on the bound socket. */
bool connection_listen(struct init *init, int socket, struct error *err) MUST_USE;

/** Something about the command changed: tells it now, or when the socket has room, or when a front connects. A REFUSED
 *  one is freed when told or when there is nobody to tell. */
void connection_tell(struct init *init, struct command *command);

/** Gives the connected front an answer with a descriptor (taken; -1: none); closed when there is no front. */
void connection_give(struct init *init, const struct front_init_message *message, int fd);

/** True when no one is there or all has been told. */
bool connection_is_told(const struct init *init) MUST_USE;

/** Before init ends: reads away what is there, because closing a socket with unread bytes would take from the front
 *  what it has not read yet (ECONNRESET, unix(7)). */
void connection_close(struct init *init);
