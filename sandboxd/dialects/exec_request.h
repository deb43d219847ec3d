/** exec_request.h - the body of `POST /exec` (protocol.md, 5): JSON into a command, every field checked. */
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
