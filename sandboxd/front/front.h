/** front.h - the front: the process that parses strangers' bytes and has no rights. Event loops for HTTP, one thread
 * for the negotiator, one socket to the launcher. */
#pragma once

#include "sandboxd/launcher/settings.h"
#include "shared/base/cleanup.h"

/** A front inside of a guest (guest/guest.h): one sandbox, no negotiator, so no node routes, no audit and no marks but
 * its key's epoch; who is outside judges and records what comes. */
struct front_guest {
    int connections; /* a socket that connections come over, and then there is no listener; -1: none */
};

/** The whole life of the front, started by the launcher over exec with the socket to it. Gives up all rights before any
 *  thread exists. Returns the exit status: 0 after SIGTERM, else 1 (logged). When the launcher goes, it ends at once.
 *  `guest` NULL: it is none.
 */
int front_main(int launcher_socket, const struct settings *settings, const struct front_guest *guest) MUST_USE;

/** Prints the one table of routes, for --routes. */
void front_print_routes(void);
