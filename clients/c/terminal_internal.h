/** terminal_internal.h - a session, shared by the two files that make it up: terminal.c (its life, its connection, what
 * the caller does) and terminal_read.c (what the sandbox says). */
#pragma once

#include "clients/c/terminal.h"
#include "clients/c/terminal_input.h"
#include "clients/c/websocket.h"

#include "shared/capability/capability.h"

#include <stdbool.h>
#include <stdint.h>

enum { TERMINAL_CELLS_MAX = 1000, TERMINAL_STREAMS = 2 };

struct terminal {
    struct terminal_wanted wanted;
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
    struct error said; /* the last error frame on this socket */
    struct terminal_facts facts;
    unsigned columns, rows; /* as wanted now; 0 unknown */
    struct terminal_input input;
    bool input_ended, eof_sent;
    uint64_t arrives[TERMINAL_STREAMS]; /* offset of the next byte of this socket */
    uint64_t had[TERMINAL_STREAMS];     /* offset behind the last byte that was passed on */
    bool over;
    struct remote_end end;
    struct error failure; /* for good */
};

/* ---- terminal.c ---- */

/** Tells the caller's user. */
void terminal_note(const struct terminal *terminal, const char *sentence);

/** It is over, for good; the first failure is the one that counts. */
void terminal_fail(struct terminal *terminal, enum error_kind kind, const char *sentence);

/** The token is no good, or no more. */
bool terminal_is_token_error(enum error_kind kind) MUST_USE;

/** The same may succeed later. */
bool terminal_may_pass(enum error_kind kind) MUST_USE;

/** Sends a frame, if there is one and a socket. */
void terminal_send(struct terminal *terminal, const char *frame);

/** Tells the size of the caller's terminal if the process has another. */
void terminal_send_size(struct terminal *terminal);

/* ---- terminal_read.c ---- */

/** One message of the socket; the cookie is the terminal. */
void terminal_read(void *cookie, bool is_text, const char *data, size_t size);
