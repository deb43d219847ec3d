/** execd_pty_socket.h - one open socket of a terminal: bytes both ways, as binary frames; the rest as text. */
#pragma once

#include "sandboxd/sandbox/process_view.h"
#include "sandboxd/sandbox/terminal_holders.h"
#include "shared/http/server.h"

/** What a client asks a terminal's socket for. */
struct execd_pty_wish {
    const char *id;
    bool pipes;      /* no terminal: stdout and stderr apart */
    bool takes_over; /* whoever holds it */
    uint64_t since;  /* of its output: what lies behind comes again first */
};

/** Answers an authorised request that was checked (http_websocket_check): with a socket, or a refusal. `view`: of the
 *  process that runs already; NULL: it waits for its first socket. */
void execd_pty_socket_open(struct http_request *request, const struct execd_pty_wish *wish,
                           const struct process_view *view);
