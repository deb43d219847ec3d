/** files_answer.h - a request about files that gets one short reply when its operation is over. Belongs to the
 * request's loop; lives until the reply, or until its client is gone. */
#pragma once

#include "sandboxd/sandbox/files.h"
#include "shared/base/text.h"
#include "shared/http/server.h"

/** What is kept of the records until then. */
struct files_found {
    struct text entry; /* the fields of the last ENTRY; empty when there was none */
    char etag[72];     /* of that, when it is a regular file; else "" */
    bool has_state;
    uint64_t received, total; /* of the last STATE */
};

/** Answers the request; `done` is the operation's last word. */
typedef void files_answer_reply(struct http_request *request, const struct files_found *found,
                                const struct files_record *done);

/** What an operation changes, for the audit: recorded before it begins (else it is not begun), and once more when it
 * failed. */
struct files_deed {
    const char *action; /* "write" */
    const char *more;   /* "key=value"; may be NULL */
};

/** Takes charge of the request's answer and starts the operation (`descriptor` as in files_start); a NULL `deed`
 *  changes nothing. The entry is shown with the path where it is afterwards. `reply` is called when it went well; an
 * error is answered here. */
void files_answer_start(struct http_request *request, const struct files_request *asked, int descriptor,
                        const struct files_deed *deed, files_answer_reply *reply);

/** The same of an operation that takes the request's body, which has to be `size` bytes long (UINT64_MAX: any size). */
void files_answer_pour(struct http_request *request, const struct files_request *asked, const struct files_deed *deed,
                       files_answer_reply *reply, uint64_t size);

/** {entry}, with `status` and the header ETag. */
void files_answer_entry(struct http_request *request, int status, const struct files_found *found);
