/** guest_relay.h - a request on its way to the front inside of its sandbox, which is hostile as all that is inside: what
 *  it is told of who asks, and what it may say at this server's address. */
#pragma once

#include "shared/http/server.h"

/** Passes on an authorised request (caller_of) of a sandbox with a guest: the token is replaced by one of the same claims
 *  that the guest alone takes (key_guest_root), cookies and pages' addresses stay here. Of what it answers to a route that
 *  is ours only the headers go on that such a route has, and no page of it runs scripts here. False: nothing was done
 *  (GONE). The request is dead for its caller after true. */
bool guest_relay(struct http_request *request, struct error *err) MUST_USE;
