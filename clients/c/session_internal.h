/** session_internal.h - a session, shared by the two files that make it up: session.c (its life, its connection, what
 * the caller does) and session_read.c (what the sandbox says). */
#pragma once

#include "clients/c/session.h"
#include "clients/c/session_input.h"
#include "clients/c/websocket.h"

#include "shared/capability/capability.h"

#include <stdbool.h>
#include <stdint.h>

enum { SESSION_CELLS_MAX = 1000, SESSION_STREAMS = 2 };

struct session {
    struct session_wanted wanted;
    CURLM *multi;
    struct grant_keeper *keeper;
    struct websocket *socket;      /* NULL: none; the next is due at: */
    uint64_t retry_ns;             /* boot time, as all here */
    unsigned tries;                /* in a row that came to nothing */
    uint64_t lost_ns;              /* since when; 0: it is attached */
    bool told_lost;                /* and that was told */
    char jti[CAPABILITY_ID_BYTES]; /* of the newest token this socket was shown */
    unsigned refusals;             /* of tokens, in a row */
    bool waits_for_token;
    bool greeted;      /* start or attach was sent on this socket */
    bool attached;     /* and answered */
    bool asked;        /* a start was sent and not refused */
    struct error said; /* the last error frame on this socket */
    struct session_facts facts;
    unsigned columns, rows; /* as wanted now; 0 unknown */
    struct session_input input;
    bool input_ended, eof_sent;
    bool paused;
    char signal[16];                   /* to be sent; "" none */
    uint64_t arrives[SESSION_STREAMS]; /* offset of the next byte of this socket */
    uint64_t had[SESSION_STREAMS];     /* offset behind the last byte that was passed on */
    bool over;
    struct session_end end;
    struct error failure; /* for good */
};

/* ---- session.c ---- */

/** Tells the caller's user. */
void session_note(const struct session *session, const char *sentence);

/** It is over, for good; the first failure is the one that counts. */
void session_fail(struct session *session, enum error_kind kind, const char *sentence);

/** The token is no good, or no more. */
bool session_is_token_error(enum error_kind kind) MUST_USE;

/** The same may succeed later. */
bool session_may_pass(enum error_kind kind) MUST_USE;

/** Sends a frame, if there is one and a socket. */
void session_send(struct session *session, const char *frame);

/** Tells the size of the caller's terminal if the process has another. */
void session_send_size(struct session *session);

/** Sends the signal that waits, if there is one and a process. */
void session_send_signal(struct session *session);

/* ---- session_read.c ---- */

/** One message of the socket; the cookie is the session. */
void session_read(void *cookie, bool is_text, const char *data, size_t size);
