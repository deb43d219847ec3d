/** files_many.h - POST /s/{sandbox}/batch: several ops on several paths. */
#pragma once

#include "shared/http/server.h"

void files_many_post(struct http_request *request);
