/** execd_download.h - GET /files/download: a file, a range of its bytes, or some of its lines. */
#pragma once

#include "shared/http/server.h"

/** Handles the route, with scope fs:ro; answers. On the request's loop. */
void execd_download(struct http_request *request);
