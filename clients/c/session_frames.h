/** session_frames.h - the frames of /ws that a client sends, as JSON texts, and what it needs of those that come.
 *  Pure. Inside libparley. */
#pragma once

#include "clients/c/session.h"
#include "clients/c/session_input.h"

#include "shared/base/error.h"

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

/* The first byte of a binary frame. */
enum session_channel { SESSION_STDIN = 0, SESSION_STDOUT = 1, SESSION_STDERR = 2 };

/** All of them: the caller frees. */
char *session_frame_auth(const char *token) MUST_USE;

/** `columns` 0: the sandbox's own default. ERROR_INVALID when a text of it is not UTF-8. */
char *session_frame_start(const struct session_wanted *wanted, unsigned columns, unsigned rows,
                          struct error *err) MUST_USE;

/** `offsets`: of stdout and stderr, where output is wanted from. */
char *session_frame_attach(const struct session_wanted *wanted, const uint64_t offsets[static 2]) MUST_USE;
char *session_frame_input(const struct session_piece *piece) MUST_USE;
char *session_frame_eof(void) MUST_USE;
char *session_frame_resize(unsigned columns, unsigned rows) MUST_USE;
char *session_frame_signal(const char *name) MUST_USE;

/** A member that is a number from 0 to `most`; `otherwise` when it is missing or anything else. */
uint64_t session_frame_number(const json_t *frame, const char *name, uint64_t most, uint64_t otherwise) MUST_USE;

/** What an error frame says; false always, as error_set. */
bool session_frame_error(const json_t *frame, struct error *err);
