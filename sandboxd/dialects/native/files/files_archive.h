/** files_archive.h - a folder as a tar, both ways. */
#pragma once

#include "sandboxd/sandbox/files.h"
#include "shared/http/server.h"

/** Packs `asked`'s folder and streams it. */
void files_archive_get(struct http_request *request, struct files_request *asked);
/** Unpacks the request's body into it. */
void files_archive_put(struct http_request *request, struct files_request *asked);
