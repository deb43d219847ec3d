/** files_watch.h - changes below a folder as an SSE stream. */
#pragma once

#include "sandboxd/sandbox/files.h"
#include "shared/http/server.h"

/** Starts WATCH; the stream lasts until the client leaves, the watched is gone, or the token expires. */
void files_watch_start(struct http_request *request, const struct files_request *asked);
