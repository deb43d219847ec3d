/** remote_http.h - one request of a file operation: its head, its body from wherever, its reply to wherever. Inside
 *  libparley. */
#pragma once

#include "shared/base/error.h"
#include "shared/base/text.h"

#include <curl/curl.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

/** A request. Zero is empty. */
struct remote_http {
    const char *method;
    const char *url;
    const char *credential;
    struct curl_slist *headers; /* ours beside the credential; freed by remote_http_perform */
    /* The body: `text` (size bytes), or read() until it gives 0; both NULL: none. */
    const void *text;
    size_t text_size;
    ssize_t (*read)(void *cookie, void *to, size_t size, struct error *err);
    uint64_t read_size; /* of it all; UINT64_MAX: not known */
    /* The reply's bytes when it is 2xx; NULL: into `reply`. */
    bool (*write)(void *cookie, const void *data, size_t size, struct error *err);
    bool (*moved)(void *cookie, uint64_t bytes); /* of read or write; 0: none for a while. May be NULL */
    void *cookie, *moved_cookie;

    /* What came: */
    long status;       /* 0: no answer */
    char etag[128];    /* as in the header, with its quotes; "" none */
    struct text reply; /* what write was not given; the caller's to free (text_done) */
    uint64_t received; /* bytes given to write */
};

/** Does it on `curl` (reset before; its connection is used again). 2xx: true. Else what the server says, what read or
 * write said, GONE when moved gave up, NODE_UNREACHABLE or TIMEOUT. A transfer without a byte for 60 s is given up
 * (TIMEOUT). */
bool remote_http_perform(CURL *curl, struct remote_http *http, struct error *err) MUST_USE;
