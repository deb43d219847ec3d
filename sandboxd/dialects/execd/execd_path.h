/** execd_path.h - paths as this dialect's clients write them: with ~ and variables of the sandbox, perhaps relative. */
#pragma once

#include "shared/base/error.h"
#include "shared/http/server.h"

#include <stdbool.h>
#include <stddef.h>

/** The absolute path, without empty, . or .. segments, that `given` names in the request's sandbox: ~ (at the
 * beginning, alone or before a slash), $NAME and ${NAME} are put in, a relative one lies where commands start, .. is
 * resolved by the text alone. The caller frees it. NULL, INVALID: it is empty or too long, or names a variable that is
 * not there. */
char *execd_path(const struct http_request *request, const char *given, struct error *err) MUST_USE;

/** Where execd_path_resolve finds a variable's value: into `to`, false when there is none. */
typedef bool execd_path_find(const void *cookie, const char *name, char *to, size_t size);

/** The same with variables from anywhere; `workdir` absolute. Pure. */
char *execd_path_resolve(const char *given, const char *workdir, execd_path_find *find, const void *cookie,
                         struct error *err) MUST_USE;
