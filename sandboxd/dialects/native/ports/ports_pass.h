/** ports_pass.h - a request that goes on to what listens on a port of a sandbox. */
#pragma once

#include "shared/http/server.h"

/** The handler of a row with {port} and {rest...}: what rest stands for is asked there. Refused are ports that the
 *  capability does not cover, and tokens in the path that are for more than ports. */
void ports_pass(struct http_request *request);
