/** execd_files_list.h - what is in a folder, and what is found below one, as an array of facts. */
#pragma once

#include "shared/http/server.h"

/** Handles GET /files/search; answers. */
void execd_files_search(struct http_request *request);
/** Handles GET /directories/list; answers. */
void execd_files_list(struct http_request *request);
