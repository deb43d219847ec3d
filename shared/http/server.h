/** server.h - an HTTP/1.1 server over libh2o: one loop a thread, a table of routes, bounded bodies judged before they
 *  are read, replies and streams with back-pressure. It knows no program: who may do what comes in as a hook.
 *
 *  A request and everything here belongs to the loop it arrived on. It lives from its handler's call until its reply
 *  has ended or its client is gone; other threads keep only its number (http_request_number) and find it again on its
 *  loop with http_request_find.
 *
 *  A client that half-closes (shutdown(SHUT_WR) behind its request) still gets its reply. Whether it reads is asked
 *  0.2 s later and then every 5 s: with an interim "100 Continue" while the request is unanswered, with a leading zero
 *  of the next chunk's size in a stream (RFC 9112, 7.1 allows both); a closed one answers with a reset and is gone. In
 *  HTTP/1.0, where nothing can be asked, a half-closed client counts as gone after 5 s. */
#pragma once

#include "shared/base/text.h"
#include "shared/http/loop.h"
#include "shared/http/trace.h"

#include <jansson.h>
#include <stddef.h>

struct http_server;
struct http_request;

/* Where a route accepts its credential (protocol.md, 3 "Carriers"). */
enum http_carrier {
    HTTP_BEARER = 1 << 0,   /* Authorization: Bearer <t> */
    HTTP_API_KEY = 1 << 1,  /* X-API-Key: <k>, or Authorization: ApiKey <k> */
    HTTP_PATH = 1 << 2,     /* /c/<token>/rest instead of /s/{sandbox}/rest */
    HTTP_QUERY = 1 << 3,    /* ?token= */
    HTTP_PROTOCOL = 1 << 4, /* Sec-WebSocket-Protocol: parley.v1, bearer.<token> */
    /* None need come with the head: the handler asks for it (a WebSocket's first frame). Then authorize is not called,
     * and the identity is NULL until the handler sets one. */
    HTTP_LATER = 1 << 5,
    /* No carrier, but said beside them: the handler is called when the head is there and takes the body with
     * http_body_pour; it is never held here, so body_max_bytes alone bounds it. */
    HTTP_POURS = 1 << 6,
    /* Nor this: what is asked is meant for another server (proxy.h). The query is kept as it came, whatever it is;
     * http_request_query knows `token` alone, and that only where the route takes HTTP_QUERY or HTTP_LATER. A {x...}
     * may have empty segments. Beside a credential in the path or in a header that has no other use, Authorization is
     * the other server's. */
    HTTP_PROXIES = 1 << 7,
    /* Nor this: http_limits.per_minute is not for it. */
    HTTP_UNLIMITED = 1 << 8,
    /* Nor this: http_limits.per_minute is for it although it needs nothing. */
    HTTP_LIMITED = 1 << 9,
    HTTP_EXECD = 1 << 10,       /* X-EXECD-ACCESS-TOKEN: <t> */
    HTTP_EGRESS_AUTH = 1 << 11, /* OPENSANDBOX-EGRESS-AUTH: <t> */
    HTTP_OPENSANDBOX = 1 << 12, /* OPEN-SANDBOX-API-KEY: <k> */
    /* Nor this: a query parameter other than `token` may be given several times; http_request_query is the first.
     * There may be 1024 in all. */
    HTTP_REPEATS = 1 << 16
};

/** One row of a dialect's table. */
struct http_route {
    const char *method; /* "GET" (serves HEAD too) ... or "*" */
    /* "/s/{sandbox}/processes/{id}"; {x} is one segment, a last {x...} the rest (any bytes but NUL: a file's name need
     * not be UTF-8; no empty, . or .. segment). A path that begins with /s/{sandbox} and takes HTTP_PATH is also served
     * below /c/{token}, where it has no parameter "sandbox". A literal beats {x}, that {x...}, which may be empty. */
    const char *path;
    unsigned carriers; /* bits of enum http_carrier; 0 (or HTTP_LIMITED) only with needs NULL */
    /* Scope ("process") or role ("user"); "" any valid credential; NULL open to everybody: machines ask these all the
     * time, successes are logged at debug level. */
    const char *needs;
    size_t body_max_bytes; /* 0: no body */
    void (*handle)(struct http_request *request);
};

/** Requests for hosts `{label}.{suffix}` (in any case, with any port, with or without a dot at the end), whatever their
 *  path. They are served by this one route, which finds the parameter "label" in small letters (any text, also with
 *  dots, or none), and by no other; other requests never reach it. Its own path is for the log alone. */
struct http_host_rule {
    const char *suffix; /* "localhost"; outlives the server */
    const struct http_route *route;
    /** Of a label: true, and appends a path ("/s/x"), for requests that are looked for in the table below it, as if
     * they had come so. False: the route above. May be NULL. */
    bool (*below)(const char *label, struct text *path);
};

/** Paths that begin with `from` are looked for as if they began with `to`. Both begin and end with '/', `to` is not the
 *  longer one; no row begins with `from`, so there is one way to read a path. NULL in it: none. */
struct http_prefix_alias {
    const char *from, *to;
};

/** Requests that carry the header (lower-case name; even an empty one) are looked for below `prefix` ("/v1"), those
 * that say it in their path as they are. NULL in it: none. */
struct http_header_prefix {
    const char *header, *prefix;
};

/** How often one client address may ask. Zero: nothing is limited, and a request is its peer's. IPv6 counts by /64. */
struct http_limits {
    unsigned per_minute, burst;   /* requests for routes that need a credential; burst 0: per_minute */
    bool loopback;                /* those of peers on loopback count too */
    unsigned failures_per_minute; /* credentials that prove nothing; from loopback too */
    const char *trusted_proxies;  /* networks (address.h) whose X-Forwarded-For is believed; NULL: none */
};

struct http_server_options {
    const char *host;     /* address to listen on, "127.0.0.1"; NULL: none, connections come by http_server_serve */
    uint16_t port;        /* 0: any free one, see http_server_port */
    struct http_tls *tls; /* who it is to those that connect (not: http_server_serve); NULL: plain HTTP */
    struct ssl_ctx_st *upstream_tls; /* OpenSSL's, of a client: for proxies to https (proxy.h); NULL: there are none */
    unsigned loops;                  /* threads, 1..64 */
    const char *name;                /* for the log's area */
    const struct http_route *routes;
    size_t route_count;
    struct http_host_rule host_rule; /* a NULL in it: none */
    struct http_prefix_alias prefix_alias;
    struct http_header_prefix header_prefix;
    /** Judges the request's credential against its route, and may http_request_set_identity. Called when the head is
     *  there, before the body is read, and once more before the handler when the body came later. Not called for
     *  routes that need nothing. A refusal is answered by http_reply_error. NULL: only such routes are served. */
    bool (*authorize)(struct http_request *request, const struct http_route *route, struct error *err);
    /** Called in place of the route's handler, when that would be: true, it has taken the request; false, the handler
     * is called. May be NULL. */
    bool (*gate)(struct http_request *request);
    /** Called on each loop's thread before it serves, and before it ends; may be NULL. */
    void (*loop_started)(struct loop *loop, void *context);
    void (*loop_ending)(struct loop *loop, void *context);
    void *context;            /* http_server_context, and the two hooks' argument */
    unsigned head_timeout_ms; /* a whole head within this; 0: 10 s */
    unsigned body_min_rate;   /* bytes/s a body must keep up on average after the grace; 0: 1024 */
    unsigned body_grace_ms;   /* 0: 10 s */
    size_t spool_max_bytes;   /* bytes of bodies in memory or spooled, whole server; 0: 256 MiB */
    size_t turn_bytes;        /* of one poured body or file in one turn of a loop, as others wait; 0: 1 MiB */
    unsigned stall_ms;        /* a client that takes nothing of a finished reply for so long is gone; 0: 60 s */
    const char *spool_folder; /* where bodies over 1 MiB go, NULL: "/tmp". The process's first server decides that has a
                                 route for such; else none is written, so the process need not be able to */
    unsigned
        descriptors_apart; /* of the process's limit, what it opens whoever comes: connections get 3/4 of the rest */
    /** An error's body for a request whose route found it, where its dialect has one of its own (the caller's); NULL of
     *  the result, or of this: http_error_json. A JSON text goes out as plain text, without its quotes. */
    json_t *(*error_body)(const struct http_request *request, const struct error *err);
    struct http_limits limits;
    unsigned ping_ms, pong_ms; /* of WebSockets: HTTP_WEBSOCKET_PING_MS, HTTP_WEBSOCKET_PONG_MS; 0: those */
};

/** Listens and starts the threads. Two routes for one method and path, and proxies that are none, are ERROR_INVALID, a
 * taken port ERROR_CONFLICT. The caller owns it and calls stop, then free. */
struct http_server *http_server_start(const struct http_server_options *options, struct error *err) MUST_USE;

uint16_t http_server_port(const struct http_server *server) MUST_USE;
/** Serves a connected stream socket (owned from now on) as one that was accepted, on the next loop in turn. Any thread.
 */
void http_server_serve(struct http_server *server, int fd);

unsigned http_server_loop_count(const struct http_server *server) MUST_USE;
struct loop *http_server_loop(const struct http_server *server, unsigned index) MUST_USE;

/** Stops accepting, lets running requests finish for up to grace_ms, cuts the rest, joins the threads. Blocks; not on
 *  a loop. Loops serve posts until the last of them is idle, as one's request may wait for another's answer. */
void http_server_stop(struct http_server *server, unsigned grace_ms);
/** Stops with no grace when that was not done; runs the posts that are left. NULL is allowed. */
void http_server_free(struct http_server *server);
DEFINE_AUTO(http_server)

/** One line a route: "POST /s/{sandbox}/exec  carriers=bearer,path  needs=process", for --routes and its test. */
void http_routes_print(const struct http_route *routes, size_t route_count);

/* ---- what came in ---- */

/** "POST". */
const char *http_request_method(const struct http_request *request) MUST_USE;
/** The path as it came, but for what an alias, a header or a host puts before it, percent-encoded, without query; a
 *  token in it is still there: never log it. */
const char *http_request_path(const struct http_request *request) MUST_USE;
/** A {name} of the route, percent-decoded once; NUL, '/' from %2F in a one-segment parameter and invalid UTF-8 were
 *  refused with 400 before. A {name...} is any bytes but NUL, perhaps no UTF-8, without the slash at its end; "" or
 *  segments that are not empty, `.` or `..`. NULL when the route has none of that name. */
const char *http_request_parameter(const struct http_request *request, const char *name) MUST_USE;
/** A query parameter, decoded; NULL when missing. A repeated one was refused with 400 (but see HTTP_REPEATS). */
const char *http_request_query(const struct http_request *request, const char *name) MUST_USE;
/** Of a route with HTTP_REPEATS: the nth one of that name, from 0; NULL when there are no more. */
const char *http_request_query_nth(const struct http_request *request, const char *name, size_t nth) MUST_USE;
/** Whether the query has only parameters of these names (the last is NULL): ERROR_INVALID names another. */
bool http_request_query_only(const struct http_request *request, const char *const *names, struct error *err) MUST_USE;
/** A header by lower-case name; NULL when missing. Those that must not be repeated (head.c, ONCE): 400 before. */
const char *http_request_header(const struct http_request *request, const char *name) MUST_USE;
/** The credential in the carrier this route takes (a capability beats an API key; a `pk_` key in a capability's carrier
 *  is ignored where the route takes no keys), NULL when there is none. Two different ones: 400 before. */
const char *http_request_credential(const struct http_request *request) MUST_USE;
/** What the handler of a route with HTTP_LATER has judged, wherever it stood (copied): it is the request's credential
 *  from now on, and is not passed on (proxy.h). */
void http_request_set_credential(struct http_request *request, const char *credential);
/** The whole body; *size bytes, not NUL-terminated. Empty in the first authorize call. */
const char *http_request_body(const struct http_request *request, size_t *size) MUST_USE;
/** The body as one JSON object (RFC 8259; duplicate keys, depth over 32, NUL in text: ERROR_INVALID; over
 *  100,000 values: TOO_LARGE). An empty body is {}. The caller owns a reference. */
json_t *http_request_json(const struct http_request *request, struct error *err) MUST_USE;
/** The same of a body that is one JSON array; an empty body is []. */
json_t *http_request_json_array(const struct http_request *request, struct error *err) MUST_USE;
/** Whose request it is, as text: the peer's address, "127.0.0.1", or what proxies that are trusted say; "?": none. */
const char *http_request_remote(const struct http_request *request) MUST_USE;
/** Whether its bytes came by TLS that ends here. */
bool http_request_is_tls(const struct http_request *request) MUST_USE;
/** "req_..." or the client's own X-Request-ID when it is 1..64 of A-Za-z0-9._-. */
const char *http_request_id(const struct http_request *request) MUST_USE;
/** The request is part of what another program does, under that program's id and traceparent (NULL: none; what is not
 *  sound is left out): for messages that tell them in their body. From here on it has these, and logs them. */
void http_request_continue(struct http_request *request, const char *id, const char *traceparent);
/** What a call made for this request says of its trace: the one that the client's `traceparent` named, or one that
 * began here; by this request's own span. */
void http_request_traceparent(const struct http_request *request, char to[static HTTP_TRACEPARENT_BYTES]);
/** What goes with it; NULL: none came, or a bad or missing traceparent, or it is over HTTP_TRACESTATE_MAX. */
const char *http_request_tracestate(const struct http_request *request) MUST_USE;
struct loop *http_request_loop(const struct http_request *request) MUST_USE;
/** Whether it was sent from this machine itself, by nobody who passes on what others sent (a header that a proxy adds).
 */
bool http_request_is_local(const struct http_request *request) MUST_USE;
/** The row it was found in; NULL when there is none. */
const struct http_route *http_request_route(const struct http_request *request) MUST_USE;
void *http_server_context(const struct http_request *request) MUST_USE;

/** For handlers of routes with HTTP_UNLIMITED, before what is dear: counts the request towards http_limits.per_minute
 * all the same, once. RATE_LIMITED; the reply will say Retry-After. */
bool http_request_admit(struct http_request *request, struct error *err) MUST_USE;

/** For handlers that judge a credential which stood in no carrier (a body's, a frame's, a cookie's); for others the
 * server asks before authorize, and counts each UNAUTHENTICATED that a request ends with. Before: whether the client
 * may still try; else ERROR_RATE_LIMITED, and the reply will say Retry-After. */
bool http_authentication_allowed(struct http_request *request, struct error *err) MUST_USE;
/** After: one that proved nothing (an expired or revoked one did prove something) counts against its client. */
void http_authentication_failed(struct http_request *request);

/** Keeps what authorize found; free_identity(identity) is called when the request ends or a new one is set. `label`
 *  (copied, <= 64 bytes) is what the access log shows for the credential: a jti or a principal. */
void http_request_set_identity(struct http_request *request, void *identity, void (*free_identity)(void *),
                               const char *label);
void *http_request_identity(const struct http_request *request) MUST_USE;

/** The request's number, unique in this process, never reused; what other threads keep. */
uint64_t http_request_number(const struct http_request *request) MUST_USE;
/** The living request of that number on the calling loop; NULL when it ended or its client left. */
struct http_request *http_request_find(struct loop *loop, uint64_t number) MUST_USE;

/* ---- all of them ---- */

/** What the request's server has served since it started, for /metrics: requests and their durations by the pattern of
 *  their route, what is in flight, connections, bytes; each name begins with `prefix`. Any loop. */
void http_server_measure(const struct http_request *request, const char *prefix, struct text *to);

/** Calls visit for each living request of the calling loop: its body still arrives, it waits for its answer, it
 *  streams, is a WebSocket, or the end of its reply is still on its way. Visit may http_request_revoke the one it is
 *  given, and end no other. */
void http_requests_each(struct loop *loop, void (*visit)(void *cookie, struct http_request *request), void *cookie);

/** Ends a living request that its handler may know of: its credential holds no more. One whose body still arrives, or
 *  that is unanswered, is answered with the error (its owner is told gone before). Of a stream what waits is dropped,
 *  its owner is told by events->cut, or gone, and the connection is broken off, within a second if the client does not
 *  read. A WebSocket: events->cut, then close 4401. A reply that is still on its way breaks off. On the request's loop;
 *  the request is dead for its caller. */
void http_request_revoke(struct http_request *request, const struct error *err);

/* ---- what goes out ---- */

/** Adds a header to the reply; before it starts. Both are copied; one with control characters is left out. */
void http_reply_header(struct http_request *request, const char *name, const char *value);
/** Ends the request with JSON; takes the reference to `body`. */
void http_reply_json(struct http_request *request, int status, json_t *body);
/** Ends it with bytes, copied. */
void http_reply_bytes(struct http_request *request, int status, const char *type, const void *data, size_t size);
/** Ends it with a status alone, and a length of 0 where the status may have one (not 204). */
void http_reply_empty(struct http_request *request, int status);
/** Ends it with the error object of protocol.md, 6; 401 adds WWW-Authenticate, 429 and 503 Retry-After. */
void http_reply_error(struct http_request *request, const struct error *err);
/** The error object alone, for replies that embed it. The caller owns it. */
json_t *http_error_json(const struct http_request *request, const struct error *err) MUST_USE;

/** Tells a handler that has not answered that its client is gone: gone(cookie) is called once, at the latest when the
 *  request is freed unanswered; afterwards the request is dead. A reply or stream start forgets it. */
void http_request_when_gone(struct http_request *request, void (*gone)(void *cookie), void *cookie);

struct http_stream_events {
    /* Everything sent so far has been handed to the kernel. */
    void (*drained)(struct http_request *request, void *cookie);
    void (*gone)(void *cookie); /* client left or server stops; the request is dead. Not called after http_stream_end */
    /* http_request_revoke was called: may http_stream_send a last word; the request is dead afterwards. NULL: gone */
    void (*cut)(struct http_request *request, void *cookie, const struct error *err);
    /* For one that holds something dear: a client that takes nothing of what was sent for stall_ms is gone. */
    bool cut_stalled;
};

#define HTTP_STREAM_FULL_BYTES (256 * 1024)

/** Starts a reply of unknown length (chunked). `events` must outlive the stream. A client that leaves is noticed while
 *  the stream is idle too (EPOLLRDHUP). */
void http_stream_start(struct http_request *request, int status, const char *type,
                       const struct http_stream_events *events, void *cookie);
/** Queues bytes (copied). Returns how many wait in all; at HTTP_STREAM_FULL_BYTES or more stop until drained. A stream
 *  that lets 64 MiB wait is cut. */
size_t http_stream_send(struct http_request *request, const void *data, size_t size);
/** Ends the stream after what is queued; the request is dead for its caller, who is told nothing more. */
void http_stream_end(struct http_request *request);
/** Ends it by breaking the connection, so that the client cannot take it for complete. The request is dead for its
 *  caller; gone is not called. */
void http_stream_abort(struct http_request *request);

/** How JSON objects follow each other. */
enum http_framing {
    HTTP_NDJSON,    /* "{...}\n" */
    HTTP_SSE,       /* "event: <name>\ndata: {...}\n\n" */
    HTTP_BLANK_LINE /* "{...}\n\n", told as an event stream, which it is not: some clients want it so */
};
/** http_stream_start with the media type of the framing; of event streams also with what keeps proxies from holding
 * them back (Cache-Control: no-cache, X-Accel-Buffering: no). */
void http_stream_start_json(struct http_request *request, int status, enum http_framing framing,
                            const struct http_stream_events *events, void *cookie);
/** One JSON object; `name` is for HTTP_SSE alone. Takes the reference. Returns as http_stream_send. */
size_t http_stream_send_json(struct http_request *request, enum http_framing framing, const char *name, json_t *object);

/* ---- bodies and files that go through without being held ---- */

/** Of a route that pours: the Content-Length, or UINT64_MAX when it is not said (chunked). */
uint64_t http_body_length(const struct http_request *request) MUST_USE;

/** Moves the body into `pipe` (a pipe's write end, taken, made non-blocking) as it comes and as the pipe takes it,
 *  by splice where it can. At the body's end closes it and then calls poured(cookie, size, NULL) on this loop, once;
 *  never inside of this call. Or an error, with `size` what went through: TOO_LARGE, TIMEOUT (slower than the body's
 *  least rate while the pipe had room, or silent for six of its graces, which http_reply_error makes 408; or the
 *  pipe was full for as long), INVALID (a broken chunk), CONFLICT when nobody reads the pipe any more. A client that
 *  leaves is told by http_request_when_gone as ever, also after poured; then poured is not called any more. In both
 *  cases the pipe is closed after the call, so that its reader can be ended before it takes the end of the pipe for
 *  the body's. To be called once, in or after the handler, before the reply. A reply without it, or before its end,
 *  closes the pipe without a word, goes out, and closes the connection behind it (RFC 9112, 9.3). "100 Continue" is
 *  sent by this call. */
void http_body_pour(struct http_request *request, int pipe,
                    void (*poured)(void *cookie, uint64_t size, const struct error *err), void *cookie);

/** The whole reply: `size` bytes of the regular file `file` (taken) from `offset` on, with Content-Length, by
 *  sendfile(2); up to 64 KiB are read and go with the head. HEAD gets the head alone. A file that turns out shorter
 *  breaks the connection off. The request is dead for its caller. sendfile waits for the file's disk, so it must be of
 *  a file system that waits for nobody else (no FUSE). */
void http_reply_file(struct http_request *request, int status, const char *type, int file, uint64_t offset,
                     uint64_t size);

/** In a stream: queues `size` bytes of `file` (duplicated; the caller keeps its own) from `offset` behind what waits,
 *  by sendfile, or up to 64 KiB as http_stream_send does; one at a time, the next when drained was called. What is sent
 *  later stands behind it. None for size 0. False: the file is shorter or another is on its way, and the stream was
 *  aborted. One that gets shorter on the way breaks the connection off, and the owner is told gone. http_request_revoke
 *  does not finish it and sends no last word in it. */
bool http_stream_send_file(struct http_request *request, int file, uint64_t offset, uint64_t size) MUST_USE;
