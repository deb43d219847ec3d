/** proxy_internal.h - one request that is being passed on; for proxy*.c only. */
#pragma once

#include "shared/http/http_internal.h"
#include "shared/http/proxy.h"
#include "shared/http/proxy_answer.h"

/* Where the request's body comes from. */
enum relay_body {
    RELAY_BODY_NONE,
    RELAY_BODY_HELD,  /* rest[0..rest_size) */
    RELAY_BODY_POURED /* out of a pipe */
};

struct http_relay {
    struct http_request *request;
    struct http_proxy_order order; /* its texts are copies */
    struct loop_watch *upstream;
    struct http_answer answer;
    struct loop_timer *timer; /* until the answer's head */
    struct text out;          /* what goes to the upstream next: out.data[out_at..) */
    size_t out_at;
    enum relay_body body;
    const char *rest; /* HELD: the request's, or the order's */
    size_t rest_size, rest_at;
    struct loop_watch *pipe; /* POURED: its read end; NULL once it is empty */
    bool is_chunked;         /* POURED: no length is known */
    bool is_poured;          /* the client's last byte is in the pipe */
    bool is_sent;            /* all of the request is with the kernel */
    bool is_deaf;            /* the upstream takes nothing more; it may still answer */
    bool asks_upgrade;
    bool took_bearer;  /* a subprotocol was our credential */
    bool wants_parley; /* ... and parley.v1 was offered beside it */
    bool is_started;   /* the reply is on its way */
    bool is_full;      /* the client is slow: nothing is read */
    bool is_reusable;  /* the upstream may serve another request */
    bool is_timed_out;
    struct text first; /* of the answer's body, before is_started */
};

/* ---- proxy_request.c ---- */

/** Writes the head into relay->out. ERROR_INVALID: the order's target is none. */
bool http_relay_write_head(struct http_relay *relay, struct error *err) MUST_USE;
/** Whether a list of tokens has this one, in any case. */
bool http_relay_list_has(const char *list, const char *wanted) MUST_USE;
/** Whether a header is between two neighbours only (RFC 9110, 7.6.1); `name` in lower case. */
bool http_relay_is_hop(const char *name) MUST_USE;

/* ---- proxy_upload.c ---- */

/** Finds out where the body comes from; before the head is written. */
void http_relay_choose_body(struct http_relay *relay);
/** Begins to take it. */
bool http_relay_start_body(struct http_relay *relay, struct error *err) MUST_USE;
/** Sends what there is and the socket takes. The last thing its caller does. */
void http_relay_send(struct http_relay *relay);

/* ---- proxy.c ---- */

/** It cannot go on: an error for the client, or a reply that breaks off. The last thing its caller does. */
void http_relay_fail(struct http_relay *relay, const struct error *err);
/** The upstream is closed, or kept; its owner is told. */
void http_relay_finish(struct http_relay *relay);
/** Gives the reply the answer's headers. */
void http_relay_set_headers(struct http_relay *relay);

/* ---- proxy_tunnel.c ---- */

struct http_tunnel;
/** The upstream said 101, and these bytes behind it. Takes the relay over. The last thing its caller does. */
void http_tunnel_start(struct http_relay *relay, const char *data, size_t size);
/** The client is gone. */
void http_tunnel_gone(struct http_tunnel *tunnel);
/** Ends it at once, both ways. */
void http_tunnel_cut(struct http_tunnel *tunnel);
/** With its request. NULL is allowed. */
void http_tunnel_free(struct http_tunnel *tunnel);
