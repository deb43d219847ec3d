/** execd_upload.h - POST /files/upload: a form of pairs of parts, `metadata` (JSON: path, owner, group, mode) and
 * `file`, the first with the first, however they stand, as long as no file comes before its metadata. Folders above are
 * made; each file is written whole or not at all, and those written before one that fails stay. */
#pragma once

#include "shared/http/server.h"

/** Handles the route, with scope fs:rw; answers. On the request's loop. */
void execd_upload(struct http_request *request);
