/** execd_files.h - files and folders in this dialect: what they are, changes of several at once, uploads, downloads.
 *  Paths are judged one by one, as the native files are: fs:ro to look, fs:rw to change. */
#pragma once

#include "shared/http/server.h"

/** Its rows; *count says how many. Static. */
const struct http_route *execd_files_routes(size_t *count) MUST_USE;
