/** dial.h - a connection to where a node serves its clients, for requests that are passed on to it. */
#pragma once

#include "negotiator/fleet/fleet.h"

#define DIAL_AUTHORITY_BYTES FLEET_URL_BYTES

/** A connection to a node's front. */
struct fleet_dialled {
    int socket;                           /* the caller's; connect(2) may still be under way */
    char authority[DIAL_AUTHORITY_BYTES]; /* for the Host header */
    char host[DIAL_AUTHORITY_BYTES];      /* name or address: what its certificate is for */
    bool is_tls;                          /* TLS is to be spoken over it */
};

/** Makes one without waiting. A name is known as it was when the node was called last. NODE_UNREACHABLE; INVALID for a
 *  URL that is neither http nor https. Any thread. */
bool fleet_dial(struct fleet *fleet, const char *node, struct fleet_dialled *dialled, struct error *err) MUST_USE;
