/** plane.h - what the routes of this program stand on, and who asks: the server's context and each request's identity.
 */
#pragma once

#include "sandboxd/journal/marks.h"
#include "sandboxd/journal/spool.h"
#include "sandboxd/sandbox/node_seal.h"
#include "sandboxd/sandbox/sandboxes.h"
#include "shared/capability/capability.h"
#include "shared/http/server.h"

/** The http server's context begins with this. */
struct plane {
    struct sandboxes *sandboxes;
    struct node_seal *seal;
    struct marks *marks;
    struct spool *spool;
};

/** The identity that authorisation sets on a request of a route with a scope. */
struct caller {
    struct capability_claims claims;
};

static inline struct plane *plane_of(const struct http_request *request)
{
    return http_server_context(request);
}

static inline const struct caller *caller_of(const struct http_request *request)
{
    return http_request_identity(request);
}

/** One line in area "audit": the action, who by which token and links, the sandbox, the request, and `detail`, which
 *  holds key=value pairs. (The audit spool of protocol.md, 7 takes its place in the next step.) */
void plane_audit(const struct http_request *request, const char *action, const char *detail, ...)
    __attribute__((format(printf, 3, 4)));
