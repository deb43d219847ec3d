/** execd_folder.h - the folder in which something is to begin: looked at, or made with those above it. */
#pragma once

#include "shared/base/error.h"
#include "shared/http/server.h"

#include <stdbool.h>

/** `request` NULL: it has ended, and only the cookie is to be freed. `err` NULL: the folder is there. Else INVALID: it
 * is not, or something else is; or another error of files. */
typedef void execd_folder_next(struct http_request *request, void *cookie, const struct error *err);

/** Looks whether `path` (of execd_path) is a folder of the request's sandbox, or, when it `makes`, sees to it; then
 * calls next, once, on this loop and never before this returns. What it makes is recorded. */
void execd_folder(struct http_request *request, const char *path, bool makes, execd_folder_next *next, void *cookie);
