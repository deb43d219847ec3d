/** osb_ask.h - a question to the rules and its answer, refused as OpenSandbox clients read it. Private to this folder.
 */
#pragma once

#include "negotiator/dialects/opensandbox/osb_errors.h"
#include "negotiator/dialects/visit.h"

/** The sandbox of the route. ERROR_NOT_FOUND. */
bool osb_sandbox_id(const struct http_request *request, char to[static RANDOM_ID_BYTES], struct error *err) MUST_USE;

/** Asks the rules; takes the question. print(request, q) runs on the request's loop unless they refuse, which is
 *  printed, or its client left. */
void osb_ask(struct http_request *request, struct question *question,
             void (*print)(struct http_request *request, const struct question *q));

/** `page` (1 up) and `pageSize` (1 to 200) of the query. ERROR_INVALID. */
bool osb_read_page(const struct http_request *request, size_t *page, size_t *page_size, struct error *err) MUST_USE;
