/** files_get.h - the bytes of a file as a reply. */
#pragma once

#include "sandboxd/sandbox/files.h"
#include "shared/http/server.h"

/** Answers GET and HEAD of a file: conditions, one range, and what is only there to be read (/proc). */
void files_get_start(struct http_request *request, const struct files_request *asked);
