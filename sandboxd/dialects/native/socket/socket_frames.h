/** socket_frames.h - the frames of the route /ws (specs/websocket.md) as text: a client's taken apart, every field
 *  checked, and ours printed. Pure. */
#pragma once

#include "sandboxd/dialects/native/exec_request.h"
#include "sandboxd/sandbox/process_view.h"
#include "shared/base/error.h"
#include "shared/base/text.h"
#include "shared/capability/capability.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define SOCKET_OFFSET_NONE UINT64_MAX /* == PROCESS_OFFSET_NONE */

/* The first byte of a binary frame. */
enum socket_channel { SOCKET_STDIN = 0, SOCKET_STDOUT = 1, SOCKET_STDERR = 2 };

enum socket_mode { SOCKET_DRIVE, SOCKET_WATCH };

/** "drive", "watch". */
const char *socket_mode_name(enum socket_mode mode) MUST_USE;

enum socket_frame_type {
    SOCKET_AUTH,
    SOCKET_START,
    SOCKET_ATTACH,
    SOCKET_INPUT, /* "stdin" */
    SOCKET_EOF,
    SOCKET_RESIZE,
    SOCKET_SIGNAL,
    SOCKET_PING
};

/** A frame of a client; what belongs to another type is zero. */
struct socket_frame {
    enum socket_frame_type type;
    char *token;                      /* AUTH; owned, wiped */
    struct exec_frame start;          /* START; the command is owned until taken */
    char id[FRONT_INIT_ID_BYTES];     /* ATTACH */
    uint64_t offsets[OUTPUT_STREAMS]; /* ATTACH */
    enum socket_mode mode;            /* ATTACH */
    bool binary, acks;                /* ATTACH */
    uint8_t *data;                    /* INPUT; owned until taken */
    size_t size;                      /* INPUT */
    uint64_t offset;                  /* INPUT; SOCKET_OFFSET_NONE: at the end */
    unsigned columns, rows;           /* RESIZE */
    int signal;                       /* SIGNAL, 1..64 */
};

/** A text message, valid UTF-8. ERROR_INVALID says what is wrong; nothing is written then. */
bool socket_frame_parse(struct socket_frame *frame, const char *text, size_t size, struct error *err) MUST_USE;
void socket_frame_done(struct socket_frame *frame);
#define AUTO_SOCKET_FRAME __attribute__((cleanup(socket_frame_done))) struct socket_frame

/* ---- ours that are not events (events.h); each appends one JSON object ---- */

void socket_print_auth_ok(struct text *to, const char *session_id, const struct capability_claims *claims);
/** `offsets`: where the data begins that this socket is sent. */
void socket_print_started(struct text *to, const struct process_view *view, enum socket_mode mode,
                          const uint64_t offsets[OUTPUT_STREAMS]);
void socket_print_stdin_ack(struct text *to, uint64_t stdin_offset);
void socket_print_pong(struct text *to);
/** `in`: seconds. */
void socket_print_expiring(struct text *to, unsigned in);
