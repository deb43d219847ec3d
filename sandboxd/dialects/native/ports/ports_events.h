/** ports_events.h - which ports are listened at, once as JSON or as SSE events as they open and close. */
#pragma once

#include "shared/http/server.h"

/** GET /ports, of an authorised request: those that listen now and its scopes cover, as one JSON. */
void ports_events_once(struct http_request *request);
/** GET /ports?watch=1: SSE, the list first, then what opens and closes, until the token's or the sandbox's end. */
void ports_events_watch(struct http_request *request);
