/** files_change.h - PUT, DELETE and POST on a file or folder. */
#pragma once

#include "shared/http/server.h"

void files_change_put(struct http_request *request);
void files_change_delete(struct http_request *request);
/** ?op=mkdir, move, copy, chmod or edit, with a JSON body. */
void files_change_post(struct http_request *request);
