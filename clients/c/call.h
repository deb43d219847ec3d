/** call.h - one JSON request and its answer (libcurl), for the CLI and whoever links libparley. Blocks; any thread. */
#pragma once

#include "shared/base/error.h"
#include "shared/base/text.h"

#include <curl/curl.h>
#include <jansson.h>
#include <stdbool.h>

#define CALL_REPLY_MAX_BYTES (32 * 1024 * 1024)

struct call {
    const char *method;     /* "GET" */
    const char *url;        /* whole */
    const char *credential; /* API key or capability, sent as Bearer; NULL none */
    const char *if_match;   /* the value of If-Match; NULL none */
    json_t *body;           /* borrowed; NULL none */
    unsigned timeout_ms;    /* 0: 60 s */
};

/** Does it. 2xx: true, *reply (may be NULL to ignore it) gets the JSON or NULL when empty, owned by the caller; *status
 *  (may be NULL) the code. Else the server's own error kind and sentence; NODE_UNREACHABLE when nobody answered. */
bool call_json(const struct call *call, json_t **reply, int *status, struct error *err) MUST_USE;

/** The same call as a transfer that somebody else's loop performs (curl_multi): `curl` is the handle. Zero is empty.
 *  Embedded; the fields are private but for `curl`. */
struct call_transfer {
    CURL *curl; /* NULL: none is under way */
    struct curl_slist *headers;
    char *url, *body;
    struct text *reply;
};

/** Makes the handle ready; nothing of `call` is needed afterwards. ERROR_INTERNAL. */
bool call_transfer_start(struct call_transfer *transfer, const struct call *call, struct error *err) MUST_USE;

/** The handle is done and off its loop: what call_json says of its end. The transfer is empty then. */
bool call_transfer_finish(struct call_transfer *transfer, CURLcode code, json_t **reply, int *status,
                          struct error *err) MUST_USE;

/** Gives it up, off its loop; an empty one is fine. What it carried is wiped. */
void call_transfer_done(struct call_transfer *transfer);

/** The options every transfer of ours has: no proxy, no redirects, no signals, http(s) only, connect within 5 s. */
void call_prepare(CURL *curl);

/** "Authorization: Bearer x" added to `headers` (NULL credential: not), and what call_context.h says of all calls. */
struct curl_slist *call_add_credential(struct curl_slist *headers, const char *credential) MUST_USE;

/** Turns a reply that is not 2xx into an error: its JSON error object, else its status. Returns false. */
bool call_refused(long status, const char *body, size_t size, struct error *err);

/** What curl says of a failed transfer as NODE_UNREACHABLE or TIMEOUT. Returns false. */
bool call_failed(CURLcode code, const char *url, struct error *err);
