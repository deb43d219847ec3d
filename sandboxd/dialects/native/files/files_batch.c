/* files_batch.c - one call at a time. */
#include "sandboxd/dialects/native/files/files_batch.h"

#include "sandboxd/dialects/native/files/files_request.h"
#include "sandboxd/dialects/plane.h"
#include "shared/base/memory.h"

struct batch {
    struct http_request *request;
    const struct files_batch_events *events;
    void *cookie;
    struct files_call *call;  /* of the step under way */
    struct loop_timer *timer; /* before the first one */
    const char *action;       /* of its record; NULL: there is none */
    char *detail;
};

static void batch_free(struct batch *batch)
{
    files_cancel(batch->call);
    loop_timer_cancel(batch->timer);
    free(batch->detail);
    free(batch);
}

static void on_gone(void *cookie)
{
    struct batch *batch = cookie;
    batch->events->gone(batch->cookie);
    batch_free(batch);
}

/* The last thing its caller does. */
static void end(struct batch *batch, const struct error *err)
{
    batch->events->over(batch->cookie, err);
    batch_free(batch);
}

static void on_record(void *cookie, const struct files_record *record, int descriptor)
{
    struct batch *batch = cookie;
    if (descriptor >= 0) {
        close(descriptor);
        files_file_closed(plane_of(batch->request)->sandboxes, caller_of(batch->request)->claims.sandbox_id);
    }
    batch->events->record(batch->cookie, record);
}

static void advance(struct batch *batch);

static void on_over(void *cookie, const struct files_record *done, const struct error *err)
{
    struct batch *batch = cookie;
    batch->call = NULL;
    if (err && batch->action)
        plane_record_failure(batch->request, batch->action, batch->detail, error_http_status(err->kind), err->message);
    if (batch->events->stepped(batch->cookie, done, err) || !err)
        advance(batch);
    else
        end(batch, err);
}

static const struct files_events EVENTS = {.record = on_record, .over = on_over};

/* Takes the step's descriptor. */
static bool begin(struct batch *batch, const struct files_step *step, struct error *err)
{
    struct http_request *request = batch->request;
    free(TAKE(batch->detail));
    batch->action = step->action;
    if (step->action)
        batch->detail = files_request_detail(&step->asked, NULL);
    if (step->action && !plane_audit(request, err, step->action, "%s", batch->detail)) {
        if (step->descriptor >= 0)
            close(step->descriptor);
        return false;
    }
    batch->call = files_start(plane_of(request)->sandboxes, caller_of(request)->claims.sandbox_id, &step->asked,
                              step->descriptor, &EVENTS, batch);
    return true;
}

/* The last thing its caller does. */
static void advance(struct batch *batch)
{
    struct files_step step = {.descriptor = -1};
    struct error err = {0};
    switch (batch->events->next(batch->cookie, &step, &err)) {
    case FILES_BATCH_OVER:
        end(batch, NULL);
        return;
    case FILES_BATCH_FAILED:
        end(batch, &err);
        return;
    case FILES_BATCH_STEP:
        break;
    }
    if (!begin(batch, &step, &err))
        end(batch, &err);
}

static void on_timer(void *cookie)
{
    struct batch *batch = cookie;
    batch->timer = NULL;
    advance(batch);
}

void files_batch_start(struct http_request *request, const struct files_batch_events *events, void *cookie)
{
    struct batch *batch = memory_new(sizeof *batch);
    batch->request = request;
    batch->events = events;
    batch->cookie = cookie;
    batch->timer = loop_timer_start(http_request_loop(request), 0, on_timer, batch);
    http_request_when_gone(request, on_gone, batch);
}
