/** execd_files_common.h - what the files of this dialect share: where a request's path leads, permissions, facts, and
 *  errors as its clients know them. */
#pragma once

#include "sandboxd/sandbox/files.h"
#include "shared/base/text.h"
#include "shared/capability/scope.h"
#include "shared/http/server.h"

#include <jansson.h>

/** A path of the sandbox, and the folder within which the token allows there what is asked. */
struct execd_place {
    char *path;
    const char *root; /* the identity's */
};

/** Frees what is in it; it may be all zero. */
void execd_place_done(struct execd_place *place);

/** Of a path as the client wrote it (execd_path.h). INVALID; CAPABILITY_DENIED, recorded. The caller calls done. */
bool execd_place_find(struct execd_place *place, const struct http_request *request, enum scope_verb verb,
                      const char *given, struct error *err) MUST_USE;

/** The query's `path`, into `asked` (whose other texts are made ""); what is wrong is answered here, and false. */
bool execd_files_begin(struct http_request *request, enum scope_verb verb, struct execd_place *place,
                       struct files_request *asked) MUST_USE;

/** {"mode": 755, "owner", "group"} of an object into `asked`, whose texts are then the object's; the mode's decimal
 * digits are octal, and 0, null and what is missing leaves things as they are, as does a name that the sandbox does not
 * know. */
bool execd_permission_read(const json_t *object, struct files_request *asked, struct error *err) MUST_USE;

/** Facts of an entry, as an object; its path is `path`, or with `below` that and `below` behind it. Pure. */
void execd_file_append(struct text *to, const struct files_record *entry, const char *path, struct files_bytes below);

/** Ends the request. What its clients know as 500 (a folder in the way, no right in the sandbox) is that. */
void execd_files_fail(struct http_request *request, const struct error *err);
