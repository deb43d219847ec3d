/** execd_errors.h - errors as this dialect's clients read them: {"code", "message"}, and {"error": "Unauthorized: ..."}
 *  of a credential that does not hold. */
#pragma once

#include "shared/base/error.h"
#include "shared/http/server.h"

#include <jansson.h>

/** For http_server_options.error_body: the body of an error of one of this dialect's routes; NULL of any other. */
json_t *execd_error(const struct http_request *request, const struct error *err) MUST_USE;

/** The word for an error of a route of this path ("/s/{sandbox}/port/44772/files/info"). Static. */
const char *execd_error_code(const char *path, enum error_kind kind) MUST_USE;

/** Ends the request with a status and a code of its own, where clients expect others than the error's kind has. */
void execd_reply_error(struct http_request *request, int status, const char *code, const char *message);
