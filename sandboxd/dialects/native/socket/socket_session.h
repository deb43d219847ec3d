/** socket_session.h - one open WebSocket, shared by the files that make it up: socket.c (its life, who speaks),
 *  socket_command.c (the command it is attached to), socket_input.c (what it types). Belongs to the request's loop. */
#pragma once

#include "sandboxd/dialects/native/socket/socket_frames.h"
#include "sandboxd/dialects/plane.h"
#include "sandboxd/sandbox/follower.h"
#include "shared/base/text.h"
#include "shared/http/websocket.h"

enum {
    SOCKET_CLOSE_NORMAL = 1000,
    SOCKET_CLOSE_STOPPING = 1001,
    SOCKET_CLOSE_MISTAKES = 4400,
    SOCKET_CLOSE_TOKEN = 4401,
    SOCKET_CLOSE_SCOPES = 4403,
    SOCKET_CLOSE_SANDBOX_GONE = 4410,
    SOCKET_CLOSE_CROWDED = 4429
};

enum socket_attached {
    SOCKET_IDLE,    /* to nothing */
    SOCKET_WAITING, /* the sandbox has been asked */
    SOCKET_ATTACHED /* the command has been told as started */
};

/* A piece of input that waits for its turn. */
struct socket_piece {
    struct socket_piece *next;
    struct text data;
    uint64_t offset; /* SOCKET_OFFSET_NONE: behind the one before */
    bool eof;
};

struct socket_input {
    struct socket_piece *first, *last;
    size_t held;    /* bytes, with what each piece costs */
    bool writing;   /* the first one is on its way */
    bool stale;     /* ... and belongs to a command that the socket has left: it is not in the list any more */
    bool ack_due;   /* an answer waits for room in the socket */
    bool paused;    /* the socket is not read */
    uint64_t acked; /* stdin_offset as the command's side said last */
    struct loop_timer *retry;
    unsigned retry_ms;
};

struct socket_session {
    struct http_websocket *socket;
    struct http_request *request;
    struct plane *plane;
    uint64_t number;             /* the request's; by which answers find the session */
    unsigned busy;               /* calls that are inside it; the last one frees it when it is over */
    bool over;                   /* the socket is closed, nothing reaches it any more */

    /* who speaks */
    bool is_judged;  /* the request has an identity */
    bool is_counted; /* among those that have none */
    bool is_warned;  /* has been told that its token expires */
    unsigned mistakes;
    char sandbox_id[CAPABILITY_ID_BYTES];
    char *origin; /* plane_origin of the newest token */
    struct loop_timer *timer;

    /* the command */
    enum socket_attached attached;
    struct follower *follower;
    enum socket_mode mode;
    bool binary, acks, terminal;
    char process_id[FRONT_INIT_ID_BYTES];
    uint64_t position[OUTPUT_STREAMS];
    unsigned columns, rows; /* asked for before the command was there; 0: not */
    bool full;              /* waits for drained */
    bool skipped;           /* a stream's rest waits for more bytes, and nothing was sent since */
    struct socket_input input;
};

/* ---- socket.c ---- */

/** The living session of that number on this loop; NULL. */
struct socket_session *socket_session_find(uint64_t number) MUST_USE;
static inline void *socket_session_cookie(const struct socket_session *session)
{
    return (void *)(uintptr_t)session->number;
}

/** Around whatever may end the session; `leave` may free it. */
void socket_session_enter(struct socket_session *session);
void socket_session_leave(struct socket_session *session);

/** One JSON object, with or without the newline that events end in. Nothing when it is over. */
void socket_session_send(struct socket_session *session, const struct text *text);
void socket_session_tell(struct socket_session *session, const struct error *err);
/** Closes the WebSocket; the session is over. */
void socket_session_close(struct socket_session *session, int code, const char *reason);
const struct scope_set *socket_session_scopes(const struct socket_session *session) MUST_USE;

/* ---- socket_command.c ---- */

void socket_command_start(struct socket_session *session, struct exec_frame *start);
void socket_command_attach(struct socket_session *session, const struct socket_frame *frame);
/** The socket has room again. */
void socket_command_pull(struct socket_session *session);
/** Another token is in force, and recorded as the terminal's: what it no longer allows becomes watching, or is the end
 *  of the session. */
void socket_command_judge_again(struct socket_session *session);
void socket_command_resize(struct socket_session *session, unsigned columns, unsigned rows);
void socket_command_signal(struct socket_session *session, int number);
/** Leaves the command, which goes on. */
void socket_command_leave(struct socket_session *session);
/** Whether it drives a command; if not, the client has been told why. */
bool socket_command_may_drive(struct socket_session *session) MUST_USE;

/* ---- socket_input.c ---- */

/** `data` is taken. */
void socket_input_add(struct socket_session *session, uint8_t *data, size_t size, uint64_t offset, bool eof);
/** The command has been told as started, or the socket has room. */
void socket_input_go_on(struct socket_session *session);
/** What waits is dropped. */
void socket_input_drop(struct socket_session *session);
