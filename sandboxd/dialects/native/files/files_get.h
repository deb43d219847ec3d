/** files_get.h - the bytes of a file as a reply. */
#pragma once

#include "sandboxd/sandbox/files.h"
#include "shared/http/server.h"

/** Answers GET and HEAD of a file: conditions, one range, and what is only there to be read (/proc). */
void files_get_start(struct http_request *request, const struct files_request *asked);

/** How another dialect shows a file. */
struct files_get_manner {
    /* A file with this version, open for reading, which it takes: it ends the request. */
    void (*file)(struct http_request *request, const struct files_version *version, int file);
    /* Headers, before bytes of unknown length are sent as `type`. */
    void (*stream)(struct http_request *request);
    const char *type;
    /* Ends the request: there are no bytes. */
    void (*failed)(struct http_request *request, const struct error *err);
};

/** That, as `manner` (which outlives it) has it. */
void files_get_start_as(struct http_request *request, const struct files_request *asked,
                        const struct files_get_manner *manner);
