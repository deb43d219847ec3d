/** osb_port.h - the ports of a sandbox as OpenSandbox's clients name them: two are services of ours, and of each it is
 *  known what a token for it may do. Private to this folder. */
#pragma once

#include "negotiator/leasing/wanted.h"
#include "shared/http/server.h"

#include <stdint.h>

enum {
    OSB_PORT_EXECD = 44772,  /* the daemon that runs commands and code */
    OSB_PORT_EGRESS = 18080, /* the policy of what leaves: opensandbox.h, OSB_EGRESS */
};

/** The route's {port}, 1 to 65535, in one spelling alone. ERROR_INVALID. */
bool osb_port_read(const struct http_request *request, uint16_t *port, struct error *err) MUST_USE;

/** Asks for the scopes that a token for this port has: of execd all that its clients use, as far as policy gives it; of
 *  any other no more than the port. */
bool osb_port_scopes(uint16_t port, struct wanted *wanted, struct error *err) MUST_USE;
