/** exec_request.h - the body of `POST /exec` (protocol.md, 5), and the frame `start` of a WebSocket, which has fewer
 *  fields: JSON into a command, every field checked. */
#pragma once

#include "sandboxd/sandbox/command.h"
#include "shared/base/error.h"

#include <jansson.h>
#include <stdbool.h>

enum exec_reply { EXEC_NDJSON, EXEC_SSE, EXEC_ONE_JSON, EXEC_DETACHED };

struct exec_request {
    struct command *command; /* the caller's */
    enum exec_reply reply;
    bool reply_chosen; /* the body said `stream` or `detach` */
};

/** ERROR_INVALID names the field and what is allowed; nothing is written then. */
bool exec_request_parse(struct exec_request *request, const json_t *body, struct error *err) MUST_USE;

struct exec_frame {
    struct command *command; /* the caller's */
    bool binary, acks;       /* `bin`, `ack` */
};

/** A frame `start`: with neither cmd nor argv it is a login shell; tty is true unless the frame says no, and so is
 *  stdin_open. Errors as above. */
bool exec_request_parse_frame(struct exec_frame *frame, const json_t *body, struct error *err) MUST_USE;

/** Columns or rows, 1..FRONT_INIT_CELLS_MAX; ERROR_INVALID names the field. */
bool exec_request_cells(const json_t *value, const char *name, unsigned *cells, struct error *err) MUST_USE;
