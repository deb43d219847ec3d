/** execd_request.h - the body of POST /command: JSON into a command. As its daemon does, it takes fields that it does
 * not know, and null for one that is missing. */
#pragma once

#include "sandboxd/sandbox/command.h"
#include "shared/base/error.h"

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

struct execd_request {
    struct command *command; /* the caller's */
    bool is_background;
};

/** ERROR_INVALID names the field and what is allowed; nothing is written then. `own_uid` is whom commands of the
 * sandbox run as. The command's cwd is as it came (execd_path.h), and is missing where that is empty. */
bool execd_request_parse(struct execd_request *request, const json_t *body, uint32_t own_uid,
                         struct error *err) MUST_USE;

/** Makes a command's arguments those of a shell's line. ERROR_INVALID when it is empty or too long. */
bool execd_request_set_line(struct command *command, const char *line, struct error *err) MUST_USE;

/** A field of text that may be missing: NULL then. `most` bytes. */
bool execd_request_text(const json_t *body, const char *name, size_t most, const char **text,
                        struct error *err) MUST_USE;
/** A field of milliseconds that may be missing: 0 then. */
bool execd_request_ms(const json_t *body, const char *name, uint64_t *ms, struct error *err) MUST_USE;
