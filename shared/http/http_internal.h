/** http_internal.h - a server's workers, connections and requests from inside; for this room only.
 *
 *  A connection goes HEAD -> (BODY ->) RUNNING -> HEAD ..., or at any point LINGER -> closed. libh2o gets the bytes of
 *  exactly one request at a time, after it was judged here; see DESIGN.md. */
#pragma once

#include "shared/base/metrics.h"
#include "shared/base/random.h"
#include "shared/base/text.h"
#include "shared/http/chunks.h"
#include "shared/http/head.h"
#include "shared/http/loop_internal.h"
#include "shared/http/rate.h"
#include "shared/http/routes.h"
#include "shared/http/server.h"
#include "shared/http/trace.h"

#include <netinet/in.h>
#include <stdatomic.h>

/* Numbers as they were given: 0.05, where all 17 digits of a double would tell 0.050000000000000003. */
#define HTTP_JSON_REALS JSON_REAL_PRECISION(15)

/* H2O_STRUCT_FROM_MEMBER without its alignment warning. */
#define HTTP_OWNER(type, member, pointer) ((type *)(void *)((char *)(pointer)-offsetof(type, member)))

enum {
    HTTP_REMOTE_BYTES = ADDRESS_TEXT_BYTES,
    HTTP_ID_BYTES = 65,
    HTTP_LABEL_BYTES = 65,
    HTTP_REQUEST_BUCKETS = 1024,
    HTTP_STATUS_CLASSES = 6, /* 0: none was sent */
    HTTP_ID_RANDOM_BYTES = 16,
    HTTP_FILE_SMALL_BYTES = 65536 /* up to here a copy is faster than a write of its own */
};

/* What was served by one route; or by the host rule's, or by none (measure.c). */
struct http_measure {
    struct metrics_counter by_class[HTTP_STATUS_CLASSES];
    struct metrics_histogram durations; /* until the answer begins */
};

struct http_server {
    struct http_server_options options; /* with the defaults filled in; host and name are ours */
    char *host, *name, *spool_folder;
    uint16_t port;
    int listen_fd;           /* -1: none */
    atomic_uint next_worker; /* of http_server_serve */
    struct http_routes *routes;
    bool spools; /* a route's body may be so large that it goes to spool_folder */
    h2o_globalconf_t config;
    size_t connections_max;      /* of one worker */
    atomic_size_t spooled_bytes; /* of all bodies that are held now */
    struct cidrs *trusted_proxies;
    struct http_rate *requests, *failures; /* by client address; NULL: not limited */
    struct http_worker *workers;
    unsigned worker_count;
    pthread_mutex_t mutex; /* guards the two counts */
    pthread_cond_t changed;
    unsigned ready_count, idle_count;
    bool is_stopped;
};

/* A loop of the server with its connections; everything is the loop thread's. */
struct http_worker {
    struct http_server *server;
    struct loop *loop;
    pthread_t thread;
    bool has_thread, is_joined;
    int listen_fd; /* its own duplicate; the listener's once the thread runs */
    h2o_context_t context;
    h2o_accept_ctx_t accept;
    h2o_socket_t *listener;   /* NULL when not accepting any more */
    struct loop_timer *retry; /* accepting pauses: out of descriptors */
    int peer_epoll;           /* for clients that leave while nothing is read from them */
    h2o_socket_t *peer_socket;
    h2o_linklist_t connections; /* all */
    h2o_linklist_t unguarded;   /* those whose reads libh2o took back */
    h2o_linklist_t doomed;      /* to be closed when nobody is inside of them */
    h2o_linklist_t orphans;     /* TLS of connections that have left, with bytes for the client */
    size_t orphan_count;
    h2o_linklist_t dialled;     /* TLS of ours, to upstreams */
    h2o_timeout_entry_t settle; /* goes through unguarded and doomed at the end of this turn */
    size_t connection_count;
    struct http_connection *current; /* the one whose bytes libh2o is handling; NULL once it is closed */
    struct http_request *requests[HTTP_REQUEST_BUCKETS];
    char id[RANDOM_ID_BYTES]; /* the first HTTP_ID_RANDOM_BYTES of every request id made here */
    uint64_t id_count;
    uint64_t span_seed, trace_seed; /* of the trace ids made here: unique, not secret */
    struct http_measure *measures;  /* of each route, then the host rule's and that of none; written by this thread */
    struct metrics_counter received_bytes, sent_bytes; /* of bodies, written by this thread */
    _Atomic int64_t in_flight, connected;              /* the same */
    bool is_stopping, is_idle_told, is_ending;
};

enum http_state {
    HTTP_HEAD,    /* waits for a head, or has part of one */
    HTTP_BODY,    /* the head is judged, libh2o collects the body */
    HTTP_RUNNING, /* a handler has the request, or its reply is being sent */
    HTTP_LINGER   /* refused and answered: what still comes is thrown away for a moment, so that no reset overtakes the
                     reply */
};

struct http_tls_relay;

struct http_connection {
    struct http_worker *worker;
    h2o_socket_t *socket;
    h2o_socket_cb h2o_read; /* libh2o's own callback; with an error it closes the connection, whatever its state */
    h2o_linklist_t all, unguarded, doomed;
    enum http_state state;
    bool has_bytes; /* HEAD: the first byte is there */
    bool is_fresh;  /* HEAD: no request was served yet */
    bool is_peer_watched;
    bool is_upgraded;         /* a WebSocket: libh2o has let go of the socket */
    uint64_t since_ns;        /* boot time when state or has_bytes changed last */
    uint64_t moved_ns, acked; /* RUNNING: when the client last took bytes that it has to take */
    size_t scanned;           /* HEAD: bytes that hold no end of the head */
    size_t head_bytes;        /* BODY */
    size_t drained_bytes;     /* LINGER */
    char *surplus;            /* what came behind the present request */
    size_t surplus_bytes;
    struct loop_timer *timer;
    uint64_t timer_ns;            /* when it fires */
    struct http_request *request; /* NULL in HEAD and LINGER */
    struct address peer;          /* zero with has_peer false: it has none */
    bool has_peer;
    struct http_tls_relay *tls; /* stands between it and the client; NULL: nothing does */
};

enum http_phase {
    HTTP_OPEN,      /* unanswered */
    HTTP_STREAMING, /* http_stream_start was called */
    HTTP_SOCKET,    /* http_websocket_accept was called */
    HTTP_ENDED,     /* the handler is through; bytes may still be on their way */
    HTTP_GONE       /* the client left, or we cut it; nothing more is sent */
};

struct http_stream {
    const struct http_stream_events *events;
    void *cookie;
    struct text waiting, flying;
    bool is_flying; /* one h2o_send at a time */
    bool is_ending, is_muted, is_chunked;
    bool is_sized;    /* its length was told, so nothing but its bytes can be sent */
    bool is_breaking; /* what waits is the last, and then the connection goes */
    unsigned zeros;   /* of the next chunk's size, already sent to see whether the client is there */
    char frame[24];
};

/* A body on its way into a pipe. */
struct http_pour {
    struct loop_watch *watch; /* the pipe; NULL before and after */
    struct loop_timer *timer; /* the begin, then the least rate */
    void (*poured)(void *cookie, uint64_t size, const struct error *err);
    void *cookie;
    char *held; /* what was read and not yet passed on: held[held_at..held_size) */
    size_t held_at, held_size, held_capacity;
    struct http_chunks chunks;
    uint64_t left;                        /* of a Content-Length */
    uint64_t size;                        /* bytes that are in the pipe */
    uint64_t looked_at, counted;          /* of them, at the last look; and those that count towards the least rate */
    uint64_t waited_ns, waiting_since_ns; /* for the client; 0: the pipe is full */
    uint64_t full_since_ns;               /* the pipe, or when it last had room */
    bool has_begun, is_reading;
    bool is_slow;  /* failed for that */
    bool is_whole; /* the connection holds nothing of the body any more */
    bool goes_on;  /* while the reply goes out: what takes the body is what answers */
    bool closes;   /* the reply's head said "close" for it */
};

enum http_file_step {
    HTTP_FILE_NONE,
    HTTP_FILE_WAITS, /* behind a stream's bytes */
    HTTP_FILE_HEAD,  /* what stands before it flies */
    HTTP_FILE_MOVES, /* sendfile */
    HTTP_FILE_TAIL   /* the end of its chunk flies */
};

/* A file on its way out. */
struct http_file {
    enum http_file_step step;
    int fd; /* ours, unless NONE */
    off_t offset;
    uint64_t left;
    size_t before; /* WAITS: bytes of the stream that come first */
    void (*moved)(struct http_request *request);
};

struct http_websocket;
struct http_relay;
struct http_tunnel;

struct http_request {
    struct http_worker *worker;
    struct http_connection *connection;
    h2o_req_t *h2o; /* NULL until the body is whole, and once it is a WebSocket */
    h2o_generator_t generator;
    uint64_t number;           /* 0 until its handler is called */
    struct http_request *next; /* in its bucket */
    bool is_registered;        /* found by http_request_find */
    struct http_head head;
    struct http_chunks framing; /* of a chunked body that is held: as far as it was judged */
    struct http_match match;
    struct http_pair *query; /* few_pairs; or many_pairs, where names may come again */
    struct http_pair few_pairs[HTTP_QUERY_MAX];
    struct http_pair *many_pairs;
    size_t query_count;
    char *moved_path; /* what head.path is, where it is not as it came */
    const char *credential;
    char *late_credential;   /* what a handler judged */
    char *query_came;        /* as it came; NULL: there is none, or head.query still is that */
    char *query_token;       /* of a query that is passed on: the value of `token` */
    char *protocol_bearer;   /* a copy of the credential in Sec-WebSocket-Protocol */
    bool carries_credential; /* in whatever carrier, ours or not */
    bool is_judged_early;    /* the body was not there yet */
    struct address client;   /* who asks: the peer, or whom trusted proxies name */
    bool has_client;
    bool is_admitted; /* its token was taken */
    bool is_failure_counted;
    char remote[HTTP_REMOTE_BYTES];
    struct error refusal; /* kind ERROR_NONE: served */
    char allow[HTTP_ALLOW_BYTES];
    char id[HTTP_ID_BYTES];
    struct http_trace trace;
    char label[HTTP_LABEL_BYTES];
    void *identity;
    void (*free_identity)(void *identity);
    size_t spooled_bytes;
    uint64_t began_ns;       /* CLOCK_MONOTONIC */
    uint64_t received_bytes; /* of a body that was held */
    uint64_t answered_ns;    /* the same: its answer began; 0 not yet */
    enum http_phase phase;
    int status;
    uint64_t sent_bytes;
    struct text headers; /* name NUL value NUL ... */
    void (*gone)(void *cookie);
    void *gone_cookie;
    struct loop_timer *probe; /* runs since the client sent a FIN, or the stream is being broken off */
    struct http_stream stream;
    struct http_websocket *websocket; /* NULL: not one */
    struct http_tunnel *tunnel;       /* SOCKET: of a request that was passed on, and upgraded; NULL: not one */
    bool pours;                       /* its route does: libh2o knows of no body */
    struct http_pour pour;
    struct http_file file;
};

/* ---- connection.c ---- */

/** Serves it; `tls`, if there is one, stands between socket and client. NULL: there is no room, the socket is closed.
 */
struct http_connection *http_connection_accept(struct http_worker *worker, h2o_socket_t *socket,
                                               struct http_tls_relay *tls);
/** Closes it at the end of this turn of the loop. */
void http_connection_doom(struct http_connection *connection);
/** Gives libh2o the bytes in the socket's input; the connection may be closed afterwards (then false). */
bool http_connection_feed(struct http_connection *connection) MUST_USE;
/** Puts the bytes behind the present request aside, where libh2o does not see them. */
void http_connection_set_surplus(struct http_connection *connection, const char *data, size_t size);
void http_connection_set_state(struct http_connection *connection, enum http_state state);
/** The reply's last byte was queued, or its stream is cut when it stalls: from now on the client has to take it. */
void http_connection_expect_taking(struct http_connection *connection);
/** The request has ended; its memory goes after this. */
void http_connection_request_ended(struct http_connection *connection);
/** Right behind that: the rest of its body is thrown away for a moment, and then the connection closes. */
void http_connection_linger(struct http_connection *connection);
/** The last byte is with the kernel: ends sending, frees the request, throws away for a moment what still comes. Only
 *  of an upgraded connection. */
void http_connection_leave(struct http_connection *connection);
/** Takes back reads and closes what is doomed. */
void http_connections_settle(struct http_worker *worker);
/** Calls that at the end of this turn, inside of libh2o's loop. */
void http_worker_settle_soon(struct http_worker *worker);
/** Closes those that serve nothing, and says 1001 to WebSockets. */
void http_connections_close_idle(struct http_worker *worker);

/* ---- body_guard.c ---- */

/** Looks at the bytes of a head, judges it when it is whole, and starts the request. Last thing its caller does. */
void http_guard_head(struct http_connection *connection);
/** Looks at a body that has grown by the last `fresh` bytes of the socket's input. Last thing its caller does. */
void http_guard_body(struct http_connection *connection, size_t fresh);
/** How many bytes the body may still grow in one read. */
size_t http_guard_body_room(const struct http_connection *connection) MUST_USE;
/** Answers without libh2o, and lingers. `status` 0: the error's own. */
void http_guard_refuse(struct http_connection *connection, const struct error *err, int status);
/** Lets a client that asked for it send its body. */
void http_guard_send_continue(struct http_connection *connection);
/** Checks the body's rate; true when it is too slow. */
bool http_guard_is_slow(const struct http_connection *connection, uint64_t now_ns) MUST_USE;

/* ---- body_pour.c ---- */

/** The head is judged, and `size` bytes of the body came with it (copied; of a chunked one maybe more). */
void http_pour_prepare(struct http_request *request, const char *data, size_t size);
/** Closes the pipe and reads no more; nobody is told. */
void http_pour_stop(struct http_request *request);
void http_pour_done(struct http_request *request);
/** True when some of the body may still be in the connection. */
bool http_pour_is_cut_short(const struct http_request *request) MUST_USE;
/** The reply's head is with libh2o and says "close": libh2o itself must not, as what is left of the body would make the
 *  kernel send a reset that overtakes the reply. */
void http_pour_head_sent(struct http_request *request);

/* ---- find_route.c ---- */

/** Checks what is looked for elsewhere than it says, against the rows. ERROR_INVALID. */
bool http_find_route_check(const struct http_server_options *options, struct error *err) MUST_USE;
/** Finds the request's row, by host, header and path; head.path is from then on as the table has it. As
 *  http_routes_find. */
bool http_find_route(struct http_request *request, struct error *err) MUST_USE;

/* ---- request.c, credential.c ---- */

struct http_request *http_request_new(struct http_connection *connection);
/** Reads the head and finds route and credential. False: too broken for libh2o to see. What a well-formed request is
 *  refused for goes into request->refusal. */
bool http_request_read_head(struct http_request *request, const char *data, size_t length, struct error *err) MUST_USE;
/** Asks the authorize hook when the route needs it. */
bool http_request_authorize(struct http_request *request, struct error *err) MUST_USE;
/** Sets request->credential; two different ones are ERROR_INVALID. */
bool http_credential_find(struct http_request *request, struct error *err) MUST_USE;
/** Its number finds it no more. */
void http_request_forget(struct http_request *request);
/** Tells its owner that it is gone, if it was not answered, logs, frees. */
void http_request_free(struct http_request *request);
/** The handler is through with it: the last byte is about to be queued. */
void http_request_end(struct http_request *request);
/** Dead for its owner, who is not told; the connection is doomed. */
void http_request_drop(struct http_request *request);
/** The client is not there any more, or must not be: tells the owner and dooms the connection. */
void http_request_cut(struct http_request *request);
/** libh2o's handler. */
int http_request_on_request(h2o_handler_t *handler, h2o_req_t *h2o);

/* ---- limits.c ---- */

bool http_limits_open(struct http_server *server, struct error *err) MUST_USE;
void http_limits_close(struct http_server *server);
/** Once the head is read: whom proxies that are trusted name. */
void http_limits_find_client(struct http_request *request);
/** Takes a token of the client's, once a request. ERROR_RATE_LIMITED, with Retry-After. */
bool http_limits_admit(struct http_request *request, struct error *err) MUST_USE;
/** Each error that a request ends with: of a credential that was shown and proved nothing. */
void http_limits_count_refusal(struct http_request *request, const struct error *err);

/* ---- proxy_target.c ---- */

/** Finds `token` in a query that is otherwise left alone; given twice it is ERROR_INVALID. */
bool http_proxy_find_token(struct http_request *request, struct error *err) MUST_USE;

/* ---- reply.c ---- */

/** Calls emit for each header that a reply to this request carries besides its content's. */
void http_reply_each_header(const struct http_request *request,
                            void (*emit)(void *to, const char *name, const char *value), void *to);
/** Calls emit for each header that an error adds. */
void http_reply_each_error_header(const struct http_request *request, int status,
                                  void (*emit)(void *to, const char *name, const char *value), void *to);
/** An error's body, its dialect's where that has one, as it goes out; the caller frees. *type is its media type. */
char *http_reply_error_body(const struct http_request *request, const struct error *err, const char **type) MUST_USE;
const char *http_reply_reason(int status) MUST_USE;
/** Ends the request with bytes that stay until then; NULL when it has none to send. */
void http_reply_finish(struct http_request *request, char *data, size_t size);
/** As that; the reply says `length`, or nothing for UINT64_MAX: the answer to a HEAD that tells what there would be. */
void http_reply_finish_of(struct http_request *request, char *data, size_t size, uint64_t length);
/** Sets status and headers of libh2o's reply. */
void http_reply_prepare(struct http_request *request, int status, const char *type);
/** libh2o's filter: errors that libh2o prints itself (a broken chunk) get our form. */
void http_reply_on_setup_ostream(h2o_filter_t *filter, h2o_req_t *h2o, h2o_ostream_t **slot);

/* ---- websocket.c, websocket_handshake.c ---- */

/** Tells its owner that it is over. */
void http_websocket_gone(struct http_websocket *socket);
/** Its credential holds no more: the owner's last word, then close 4401. */
void http_websocket_revoke(struct http_websocket *socket, const struct error *err);
/** Close 1001. */
void http_websocket_stop(struct http_websocket *socket);
/** With its request. NULL is allowed. */
void http_websocket_free(struct http_websocket *socket);
enum { HTTP_ACCEPT_KEY_BYTES = 29 };
/** What proves that the server understood the handshake (RFC 6455, 4.2.2). */
void http_websocket_accept_key(const struct http_request *request, char accepted[static HTTP_ACCEPT_KEY_BYTES]);
/** Whether the client offers this subprotocol. */
bool http_websocket_offers(const struct http_request *request, const char *protocol) MUST_USE;
/** The next "bearer.<token>" of a list of subprotocols: the token, or NULL. `*list` moves behind it. */
const char *http_websocket_next_bearer(const char **list, size_t *size) MUST_USE;

/* ---- stream.c, peer.c, access_log.c ---- */

/** As http_stream_start, with the headers that were set and no other; `length` UINT64_MAX: not known. One that is
 *  known is what the reply says, and its sender must keep to it, or abort. */
void http_stream_start_of(struct http_request *request, int status, uint64_t length,
                          const struct http_stream_events *events, void *cookie);
/** True when a byte may be sent to see whether the client is there. */
bool http_stream_probe(struct http_request *request);
void http_stream_done(struct http_request *request);
/** Drops what waits, lets the owner say a last word, and breaks the connection off behind it. */
void http_stream_break(struct http_request *request, const struct error *err);
/** Whenever the connection closes from now on, it is by a reset. */
void http_stream_linger_never(struct http_request *request);
/** Breaks the connection with a reset, so that what was sent cannot be taken for complete. The request is dead. */
void http_stream_reset(struct http_request *request);

/* ---- reply_file.c ---- */

/** Sends what the socket takes; file->moved(request) when all of it is in the kernel, and the last thing its caller
 * does. libh2o has nothing in flight. */
void http_file_move(struct http_request *request);
/** That, as soon as the socket takes anything. */
void http_file_move_soon(struct http_request *request);
void http_file_done(struct http_request *request);
/** One that still waits is not sent. */
void http_file_forget(struct http_request *request);
bool http_file_is_long_enough(int file, uint64_t offset, uint64_t size) MUST_USE;
/** False when it is shorter. */
bool http_file_read(int file, uint64_t offset, char *data, size_t size) MUST_USE;

bool http_peers_open(struct http_worker *worker, struct error *err) MUST_USE;
void http_peers_on_ready(h2o_socket_t *socket, const char *broken);
/** From now on a client that leaves is noticed although nothing is read from it. */
void http_peer_watch(struct http_request *request);
void http_peer_forget(struct http_connection *connection);
/** Bytes that the client has acknowledged in all. */
uint64_t http_peer_acked(const struct http_connection *connection) MUST_USE;
/** Whether something that was sent is not acknowledged yet. */
bool http_peer_has_to_take(const struct http_connection *connection) MUST_USE;

void http_access_log(const struct http_request *request);

/* ---- measure.c ---- */

/** Room for what its worker counts. */
void http_measure_open(struct http_worker *worker);
void http_measure_close(struct http_worker *worker);
void http_measure_began(const struct http_request *request);
/** The head of the answer goes out, the first time it is called. */
void http_measure_answered(struct http_request *request);
/** It is being freed. */
void http_measure_ended(const struct http_request *request);
