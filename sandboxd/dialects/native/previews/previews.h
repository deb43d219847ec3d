/** previews.h - ports of sandboxes as origins of their own, for browsers: http://3000-sbx-1a2b.localhost:8701/
 *  (protocol.md, 5 "Ports"). A link with ?token= becomes a cookie that the page cannot read. */
#pragma once

#include "shared/base/text.h"
#include "shared/http/server.h"

/** The route of http_server_options.host_rule. Static. */
const struct http_route *previews_route(void) MUST_USE;

/** Its `below`: of "sbx-1a2b-44772", OpenSandbox's form, where the port stands for a service of ours. */
bool previews_below(const char *label, struct text *path) MUST_USE;
