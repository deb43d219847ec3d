/** proxy.h - a request that goes on to another HTTP/1.1 server over a stream socket, and its answer that comes back:
 * bodies stream both ways with back-pressure, an upgrade becomes a tunnel, and whichever end leaves ends the other. */
#pragma once

#include "shared/base/text.h"
#include "shared/http/head.h"
#include "shared/http/server.h"

/** What is changed on the way; copied, but the socket, which is taken. */
struct http_proxy_order {
    int upstream;             /* a connected stream socket, or one whose non-blocking connect(2) is under way */
    const char *upstream_tls; /* whose certificate it must show, a name or an address: TLS over it. NULL: none */
    struct loop_watch *kept_upstream; /* in its place: one that `kept` was given before; taken. NULL: none */
    const char *target;               /* origin-form, "/path?query" (RFC 9112, 3.2.1) */
    const char *host;                 /* the Host header; NULL: as it came */
    /* Headers that are set in place of what came under these names; a NULL value takes the header away. Hop-by-hop
     * headers (RFC 9110, 7.6.1), those of framing and the credential of the carrier that was judged never go on, nor
     * does a `pk_` key; X-Request-ID is this request's. */
    const struct http_pair *headers;
    size_t header_count;
    const char *secret; /* headers that carry credentials do not go on when they hold this text; NULL: none */
    bool body_replaced; /* `body` goes on in place of the request's own, which must have been held */
    const void *body;
    size_t body_size;
    unsigned head_timeout_ms; /* until the answer's head, from when all of the request was sent; 0: none. 504 TIMEOUT */
    bool upgrades;            /* Upgrade is passed on, and a 101 makes a tunnel */
    /** Looks at each header of the answer (lower-case name): false leaves it out; *value may be replaced (it lives as
     *  long as the call). Hop-by-hop headers, Content-Length, Date and X-Request-ID are not shown: they are this
     *  server's. May be NULL. */
    bool (*answer_header)(void *cookie, const char *name, const char **value);
    /** The connection may serve another request: whoever is given it (nothing is watched) owns it. NULL: the upstream
     *  is asked to close. Before `over`. */
    void (*kept)(void *cookie, struct loop_watch *upstream);
    /** The upstream ended before a byte of an answer, and none of the request is lost: it is the callee's again, to
     *  answer or to pass on over another socket. For connections that were kept. Not followed by `over`. May be NULL.
     */
    void (*stale)(void *cookie, struct http_request *request);
    /** The upstream failed before its answer: *err is what the client will be told, and may be changed. May be NULL. */
    void (*failed)(void *cookie, struct error *err);
    /** The exchange is over, however; once, before the request is dead. May be NULL. */
    void (*over)(void *cookie);
    void *cookie;
};

/** A copy of the order's texts, headers and body, for who must wait before it can be given; sockets and callbacks stay
 *  whose they are. */
void http_proxy_order_copy(struct http_proxy_order *to, const struct http_proxy_order *from);
/** Frees what the copy owns. */
void http_proxy_order_done(struct http_proxy_order *order);

/** Answers the request with what the upstream says; a server that cannot be reached, or speaks no HTTP, is 502
 *  BAD_GATEWAY (retryable), one that does not answer in time 504. The request is dead for its caller, but
 *  http_request_revoke and http_requests_each find it as ever. Of a route that pours, the body streams, also while the
 *  answer does. An answer that ends early breaks the connection off. */
void http_proxy(struct http_request *request, const struct http_proxy_order *order);

/** The target to pass on, raw: what the route's last parameter `rest` ({rest...}) stood for, "/" first, as it came; the
 *  whole path when that is NULL; and the query, without the credential that was judged (`token=`). */
void http_proxy_target(const struct http_request *request, const char *rest, struct text *target);
