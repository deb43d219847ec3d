/** files_batch.h - several operations for one request, one after another, each judged and recorded as alone; the first
 * that fails ends it, and what was done before stays. Belongs to the request's loop; lives until `over` has answered,
 * or until its client is gone. */
#pragma once

#include "sandboxd/sandbox/files.h"
#include "shared/http/server.h"

#define FILES_BATCH_MAX   1000 /* steps, which its asker keeps to */
#define FILES_BATCHES_MAX 16 /* at once, of one sandbox and route, on one loop; its asker asks files_request_has_room  \
                              */

/** One operation. */
struct files_step {
    struct files_request asked; /* its texts are good until its `stepped` */
    int descriptor;             /* as files_start takes it; -1: none */
    const char *action;         /* of the record; NULL: it changes nothing */
};

enum files_batch_next { FILES_BATCH_STEP, FILES_BATCH_OVER, FILES_BATCH_FAILED };

/** The dialect's side. Nothing is called inside of files_batch_start. */
struct files_batch_events {
    /** The step to come (which is zero, with descriptor -1); or OVER, when there is none; or FAILED with the error. */
    enum files_batch_next (*next)(void *cookie, struct files_step *step, struct error *err);
    /** A record of the step under way, never DONE or ERROR; a descriptor that came with it is closed. */
    void (*record)(void *cookie, const struct files_record *record);
    /** It ended: with `done`, or with `why` it failed, and then true says that this is no reason to stop. */
    bool (*stepped)(void *cookie, const struct files_record *done, const struct error *why);
    /** To be answered: all is done (NULL), or why it ended early. Frees the cookie. */
    void (*over)(void *cookie, const struct error *err);
    /** Nobody is there to be answered. Frees the cookie. */
    void (*gone)(void *cookie);
};

/** Begins, and takes charge of the request's end. A step with an action is recorded before it is begun (else it ends
 *  the batch), and once more when it failed. */
void files_batch_start(struct http_request *request, const struct files_batch_events *events, void *cookie);
