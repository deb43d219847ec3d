/** files_list.h - lists, globs and greps as streamed replies: one JSON object, or a line for each record (NDJSON). */
#pragma once

#include "sandboxd/sandbox/files.h"
#include "shared/http/server.h"

/** Starts LIST, GLOB or GREP and answers with what it finds, as fast as the client takes it. */
void files_list_start(struct http_request *request, const struct files_request *asked);
