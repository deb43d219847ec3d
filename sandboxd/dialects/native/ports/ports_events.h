/** ports_events.h - which ports are listened at, once as JSON or as SSE events as they open and close. */
#pragma once

#include "shared/http/server.h"

void ports_events_once(struct http_request *request);
void ports_events_watch(struct http_request *request);
