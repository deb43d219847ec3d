/** dial.h - a connection to where a node serves its clients, for requests that are passed on to it. */
#pragma once

#include "negotiator/fleet/fleet.h"

#define DIAL_AUTHORITY_BYTES FLEET_URL_BYTES

/** A socket (the caller's) that connects to the node, without waiting: connect(2) may still be under way; and what the
 * Host header is there. A name is known as it was when the node was called last. NODE_UNREACHABLE; INVALID for a URL
 * that is not http. Any thread. */
bool fleet_dial(struct fleet *fleet, const char *node, int *socket, char authority[static DIAL_AUTHORITY_BYTES],
                struct error *err) MUST_USE;
