/** call.h - one JSON request and its answer (libcurl), for the CLI and whoever links libparley. Blocks; any thread. */
#pragma once

#include "shared/base/error.h"

#include <curl/curl.h>
#include <jansson.h>
#include <stdbool.h>

#define CALL_REPLY_MAX_BYTES (32 * 1024 * 1024)

struct call {
    const char *method;     /* "GET" */
    const char *url;        /* whole */
    const char *credential; /* API key or capability, sent as Bearer; NULL none */
    json_t *body;           /* borrowed; NULL none */
    unsigned timeout_ms;    /* 0: 60 s */
};

/** Does it. 2xx: true, *reply (may be NULL to ignore it) gets the JSON or NULL when empty, owned by the caller; *status
 *  (may be NULL) the code. Else the server's own error kind and sentence; NODE_UNREACHABLE when nobody answered. */
bool call_json(const struct call *call, json_t **reply, int *status, struct error *err) MUST_USE;

/** The options every transfer of ours has: no proxy, no redirects, no signals, http(s) only, connect within 5 s. */
void call_prepare(CURL *curl);

/** "Authorization: Bearer x" added to `headers`; NULL credential adds nothing. */
struct curl_slist *call_add_credential(struct curl_slist *headers, const char *credential) MUST_USE;

/** Turns a reply that is not 2xx into an error: its JSON error object, else its status. Returns false. */
bool call_refused(long status, const char *body, size_t size, struct error *err);

/** What curl says of a failed transfer as NODE_UNREACHABLE or TIMEOUT. Returns false. */
bool call_failed(CURLcode code, const char *url, struct error *err);
