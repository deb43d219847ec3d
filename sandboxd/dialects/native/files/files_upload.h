/** files_upload.h - POST /upload: files into a folder, as curl -F and browsers send them. */
#pragma once

#include "shared/http/server.h"

void files_upload_post(struct http_request *request);
