/** delivery.h - one attempt to send one event: a signed POST (Standard Webhooks), as a transfer of a curl_multi.
 * Private to this folder and its tests. */
#pragma once

#include "negotiator/leasing/events/webhook.h"

#include <curl/curl.h>

#define DELIVERY_CONNECT_MS      5000
#define DELIVERY_TOTAL_MS        15000
#define DELIVERY_REPLY_MAX       65536 /* bytes of an answer that are read; its status alone counts */

#define DELIVERY_SIGNATURE_BYTES 48 /* "v1,", 44 characters, a NUL */

struct delivery {
    CURL *curl; /* NULL: none is under way */
    struct curl_slist *headers;
    char *body;
    bool is_anywhere;        /* any address may be dialled */
    bool was_refused;        /* an address was not */
    size_t received;         /* bytes of the answer */
    int64_t at_ms, began_ns; /* wall clock; CLOCK_MONOTONIC */
};

/** "v1,<base64 of HMAC-SHA256>" over "<id>.<timestamp>.<body>". */
void delivery_sign(const struct key *key, const char *id, int64_t timestamp, const char *body,
                   char to[static DELIVERY_SIGNATURE_BYTES]);

/** Makes ready what sends `event` to the webhook; the caller adds delivery->curl to its multi. `hosts` as in target.h.
 *  ERROR_INTERNAL. */
bool delivery_start(struct delivery *delivery, const struct leasing *leasing, const struct webhook *webhook,
                    const json_t *event, const char *hosts, struct error *err) MUST_USE;

/** What came of it, off its multi: status, delivered, disable, error, times, wait_s of the note. It is empty then. */
void delivery_finish(struct delivery *delivery, CURLcode code, struct webhook_note *note);

/** Gives it up, off its multi; an empty one is fine. */
void delivery_done(struct delivery *delivery);
