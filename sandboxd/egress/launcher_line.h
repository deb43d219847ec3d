/** launcher_line.h - the egress process's end of the socket to the launcher: pins and their answers. One loop. */
#pragma once

#include "sandboxd/launcher_egress/launcher_egress.h"
#include "shared/http/loop.h"

struct launcher_line;

struct launcher_line_face {
    /** A message other than EG_PINNED; the descriptors are the receiver's now. */
    void (*message)(void *cookie, const struct launcher_egress_message *message, const int *fds, size_t fd_count);
    /** The launcher is gone, or said what cannot be; `err` says. Once; the line is not to be used after that but to be
     *  freed, later. */
    void (*gone)(void *cookie, const struct error *err);
    void *cookie;
};

/** The socket (non-blocking) belongs to the line. Loop thread. */
struct launcher_line *launcher_line_new(struct loop *loop, int socket, const struct launcher_line_face *face) MUST_USE;
/** Answers that are awaited never come. NULL is allowed. */
void launcher_line_free(struct launcher_line *line);

/** Tells that sandboxes may be told of. Once. */
void launcher_line_ready(struct launcher_line *line);

/** Asks for a pin. done(cookie, ok) is called once, later, unless cancelled; done may be NULL. Returns what to cancel
 *  it with, never 0. */
uint64_t launcher_line_pin(struct launcher_line *line, const struct eg_pin *pin, void (*done)(void *cookie, bool ok),
                           void *cookie);
/** Its `done` is not called any more; the launcher may still pin. */
void launcher_line_cancel(struct launcher_line *line, uint64_t request);
