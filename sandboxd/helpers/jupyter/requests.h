/** requests.h - what the front asks: lines of JSON on a descriptor, taken one at a time and only when the one before is
 * done, so that what waits stays in the pipe. */
#pragma once

#include "sandboxd/helpers/jupyter/message.h"
#include "shared/base/error.h"
#include "shared/base/text.h"

#include <stdbool.h>

enum request_kind { REQUEST_NONE, REQUEST_RUN, REQUEST_EXIT };

struct request {
    enum request_kind kind;
    char run[MESSAGE_ID_BYTES];
    json_t *code; /* a string, owned */
    bool silent;
};

void request_done(struct request *request);

/** Embedded; zero but `fd` is a fresh one. */
struct requests {
    int fd;            /* not owned */
    struct text bytes; /* read, not taken */
    bool has_ended;    /* end of file */
};

void requests_done(struct requests *requests);

/** Reads once, after poll(2) said so. TOO_LARGE: a line beyond DRIVER_REQUEST_MAX. */
bool requests_read(struct requests *requests, struct error *err) MUST_USE;

/** The next whole line, REQUEST_NONE when there is none; REQUEST_EXIT at the end of file. INVALID: it is no request. */
bool requests_take(struct requests *requests, struct request *to, struct error *err) MUST_USE;
