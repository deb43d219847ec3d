/** proxy.h - a request that goes on to another HTTP/1.1 server over a stream socket, and its answer that comes back:
 * bodies stream both ways with back-pressure, an upgrade becomes a tunnel, and whichever end leaves ends the other. */
#pragma once

#include "shared/http/server.h"

/** What is changed on the way; copied, but the socket, which is taken. */
struct http_proxy_order {
    int upstream;       /* a connected stream socket, or one whose non-blocking connect(2) is under way */
    const char *target; /* origin-form, "/path?query" (RFC 9112, 3.2.1) */
    const char *host;   /* the Host header; NULL: as it came */
    /* Headers that are set in place of what came under these names; a NULL value takes the header away. Hop-by-hop
     * headers (RFC 9110, 7.6.1) and the credential of the carrier that was judged never go on. */
    const struct http_pair *headers;
    size_t header_count;
    bool body_replaced; /* `body` goes on in place of the request's own, which must have been held */
    const void *body;
    size_t body_size;
    unsigned head_timeout_ms; /* until the answer's head; 0: none. Then 504 TIMEOUT */
    bool upgrades;            /* Upgrade is passed on, and a 101 makes a tunnel */
    /** Looks at each header of the answer (lower-case name): false leaves it out; *value may be replaced (it lives as
     *  long as the call). May be NULL. */
    bool (*answer_header)(void *cookie, const char *name, const char **value);
    /** The exchange is over, however; once, before the request is dead. May be NULL. */
    void (*over)(void *cookie);
    void *cookie;
};

/** Answers the request with what the upstream says; a server that cannot be reached, or speaks no HTTP, is 502
 *  (retryable), one that does not answer in time 504. The request is dead for its caller, but http_request_revoke and
 *  http_requests_each find it as ever. Of a route that pours, the body streams. */
void http_proxy(struct http_request *request, const struct http_proxy_order *order);
