/** node_call.h - one blocking HTTP request (libcurl): the POSTs of the two ends of the node link, and requests that a
 *  node passes on. Never on a loop. */
#pragma once

#include "shared/base/error.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct node_caller; /* one kept-alive connection; one thread at a time */

struct node_caller *node_caller_new(void);
void node_caller_free(struct node_caller *caller);
DEFINE_AUTO(node_caller)

/** From now on a call of it ends with ERROR_NODE_UNREACHABLE within about a second of *flag being true; NULL: none
 * does. The flag outlives the calls. */
void node_caller_cancel_by(struct node_caller *caller, const atomic_bool *flag);

/** POSTs `body` as application/octet-stream to an http or https URL, through no proxy, following no redirect; *reply
 * (the caller frees, never NULL) gets at most LINK_MESSAGE_MAX_BYTES, more is ERROR_TOO_LARGE. Any status but 200 is an
 * error: NODE_UNREACHABLE when no whole answer came within timeout_ms and for 503, else the kind that the status says
 *  (error_kind_of_http_status); nothing in such an answer is authenticated. A broken kept-alive connection may make it
 *  send twice: the receiver's link window takes one. The program ignores SIGPIPE. */
bool node_call(struct node_caller *caller, const char *url, const void *body, size_t body_size, unsigned timeout_ms,
               uint8_t **reply, size_t *reply_size, struct error *err) MUST_USE;

struct node_request {
    const char *method, *url;
    const char *const *headers; /* "Name: value", a NULL behind the last, 7 at most */
    const void *body;           /* NULL: none */
    size_t body_size;           /* at most LINK_MESSAGE_MAX_BYTES */
    unsigned timeout_ms;
};

struct node_answer {
    int status;
    char type[64]; /* Content-Type; "" none, or a longer one */
    uint8_t *body; /* the caller's, to free; never NULL */
    size_t body_size;
};

/** Any request, and its answer whatever its status; else as node_call. */
bool node_ask(struct node_caller *caller, const struct node_request *request, struct node_answer *answer,
              struct error *err) MUST_USE;
