/** execd_pty_internal.h - one open socket of a terminal, shared by the files that make it up: execd_pty_socket.c (its
 * life, and what comes out), execd_pty_input.c (what its client sends). Belongs to the request's loop. */
#pragma once

#include "sandboxd/dialects/plane.h"
#include "sandboxd/sandbox/follower.h"
#include "sandboxd/sandbox/terminal_holders.h"
#include "shared/base/text.h"
#include "shared/http/websocket.h"

#include <jansson.h>

enum { PTY_FRAME_STDIN, PTY_FRAME_STDOUT, PTY_FRAME_STDERR, PTY_FRAME_REPLAY };

struct pty {
    struct http_websocket *socket;
    struct http_request *request;
    struct plane *plane;
    uint64_t number;
    struct terminal_holder holder;
    char sandbox_id[CAPABILITY_ID_BYTES], id[FRONT_INIT_ID_BYTES];
    char *origin;
    struct follower *follower;
    struct loop_timer *expiry, *retry;
    bool pipes, is_known; /* known: it ran before this socket */
    bool is_started, is_connected;
    bool full, over;
    unsigned inside;                        /* calls that are under way: freed behind the last of them */
    uint64_t replayed_from, replayed_until; /* of stdout */
    struct text replay;                     /* until it is connected */
    unsigned columns, rows;                 /* asked for before it was started; 0: not */
    struct text input;                      /* what waits for stdin */
    size_t writing;                         /* of it, on its way */
};

/* ---- execd_pty_socket.c ---- */

/** A frame of text; nothing when it is over. Takes the reference. */
void pty_send_json(struct pty *pty, json_t *object);
/** {"type": "error"} with a code and a sentence, any bytes; nothing when it is over. */
void pty_send_error(struct pty *pty, const char *code, const char *message);
/** The open socket of that cookie (pty_call_of) on this loop; NULL. */
struct pty *pty_find(void *cookie) MUST_USE;
/** The command's size as its client asked for it last, if it did. */
void pty_resize(struct pty *pty);
/** A verb on its process; `done` gets what pty_find takes. */
struct process_call pty_call_of(const struct pty *pty,
                                void (*done)(void *cookie, const struct verb_answer *answer)) MUST_USE;
/** Before whatever may end it: it is not freed before pty_leave. */
void pty_enter(struct pty *pty);
/** Behind it: frees what is over. */
void pty_leave(struct pty *pty);

/* ---- execd_pty_input.c ---- */

/** One message of the client's. */
void pty_take(struct pty *pty, bool is_text, const char *data, size_t size);
/** It has been started: what waits goes on. */
void pty_input_go_on(struct pty *pty);
