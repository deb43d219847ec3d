/** files_request.h - what a request about files says: its path, where its token allows that, its parameters and fields;
 *  and how a record tells a deed. */
#pragma once

#include "sandboxd/dialects/native/files/conditions.h"
#include "sandboxd/sandbox/files.h"
#include "shared/base/text.h"
#include "shared/capability/scope.h"
#include "shared/http/server.h"

/** The absolute path that the request's URL names. The caller frees it. */
char *files_request_path(const struct http_request *request) MUST_USE;

/** Whether a path could be one in a sandbox: absolute, 1..FRONT_FILES_PATH_MAX bytes, no empty, . or .. segment.
 *  ERROR_INVALID calls it `name`. */
bool files_request_check_path(const char *path, const char *name, struct error *err) MUST_USE;

/** The folder within which the request's token allows `verb` at `path`: "" for the whole sandbox. NULL is
 *  ERROR_CAPABILITY_DENIED, and recorded. It belongs to the identity. */
const char *files_request_root(const struct http_request *request, enum scope_verb verb, const char *path,
                               struct error *err) MUST_USE;

/** Records that the request's token does not allow at `path` what it asks; `err` is what the client is told. */
void files_request_record_denial(const struct http_request *request, const char *path, const struct error *err);

/** As files_request_root for the path of the URL, into `asked`, with the path: what is not a path, or not allowed, is
 * answered here, and false. The other texts of `asked` are made "". */
bool files_request_begin(struct http_request *request, enum scope_verb verb, char **path,
                         struct files_request *asked) MUST_USE;

/** ERROR_FORBIDDEN when the path is "/" or the scope's own folder: it is not for `deed` ("deleted"). */
bool files_request_check_movable(const char *path, const char *root, const char *deed, struct error *err) MUST_USE;

/** Whether no more than `max` requests of this route and sandbox are under way on this loop, this one among them: each
 * holds memory or descriptors of this process. NO_CAPACITY calls them `what`. */
bool files_request_has_room(const struct http_request *request, unsigned max, const char *what,
                            struct error *err) MUST_USE;

/** Headers of every reply that may show a file's bytes: browsers are to run none of it. */
void files_request_headers(struct http_request *request);

/** The conditions in the request's headers. */
struct conditions files_request_conditions(const struct http_request *request) MUST_USE;

/** "0644" -> FILES_MODE and the mode. */
bool files_request_mode(const char *text, struct files_request *asked, struct error *err) MUST_USE;

/** Whether it may be a user or group of a sandbox: 1 to FRONT_FILES_USER_MAX bytes. ERROR_INVALID calls it `field`. */
bool files_request_check_user(const char *name, const char *field, struct error *err) MUST_USE;

/** `path` as records show it: percent-encoded, so that it holds no blank, and cut when it is long. */
void files_request_append_shown(struct text *to, const char *path);

/** What a record says of the deed: where, and `more` ("key=value") when that is not NULL. Paths are percent-encoded,
 * and cut when they are long. The caller frees it. */
char *files_request_detail(const struct files_request *asked, const char *more) MUST_USE;
