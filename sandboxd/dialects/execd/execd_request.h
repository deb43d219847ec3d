/** execd_request.h - the body of POST /command: JSON into a command. As its daemon does, it takes fields that it does not
 *  know, and null for one that is missing. */
#pragma once

#include "sandboxd/sandbox/command.h"
#include "shared/base/error.h"

#include <jansson.h>
#include <stdbool.h>

struct execd_request {
    struct command *command; /* the caller's */
    bool is_background;
};

/** ERROR_INVALID names the field and what is allowed; nothing is written then. */
bool execd_request_parse(struct execd_request *request, const json_t *body, struct error *err) MUST_USE;

/** A field of text that may be missing: NULL then. `most` bytes. */
bool execd_request_text(const json_t *body, const char *name, size_t most, const char **text, struct error *err)
    MUST_USE;
/** A field of milliseconds that may be missing: 0 then. */
bool execd_request_ms(const json_t *body, const char *name, uint64_t *ms, struct error *err) MUST_USE;
