/* files_archive.c - PACK's pipe is read into the reply; the reply is whole only when the helper says that tar went
 * well. */
#include "sandboxd/dialects/native/files/files_archive.h"

#include "sandboxd/dialects/native/files/files_answer.h"
#include "sandboxd/dialects/native/files/files_entry.h"
#include "sandboxd/dialects/native/files/files_request.h"
#include "sandboxd/dialects/plane.h"
#include "shared/base/memory.h"

#include <string.h>

struct packing {
    struct http_request *request;
    struct files_call *call; /* NULL: over */
    struct files_flow *flow; /* NULL: its end has come */
    const char *type;
    bool streaming, failed;
    struct error error; /* when failed */
    bool busy, over;    /* over inside a step: freed at its end */
};

static void packing_over(struct packing *packing)
{
    files_cancel(TAKE(packing->call));
    files_flow_free(TAKE(packing->flow));
    packing->over = true;
}

static void step_done(struct packing *packing)
{
    packing->busy = false;
    if (packing->over)
        free(packing);
}

static void on_gone(void *cookie)
{
    struct packing *packing = cookie;
    packing_over(packing);
    if (!packing->busy)
        free(packing);
}

static void on_drained(struct http_request *request UNUSED, void *cookie)
{
    const struct packing *packing = cookie;
    if (packing->flow)
        files_flow_pause(packing->flow, false);
}

static const struct http_stream_events STREAM_EVENTS = {.drained = on_drained, .gone = on_gone, .cut_stalled = true};

static void start_stream(struct packing *packing)
{
    packing->streaming = true;
    http_reply_header(packing->request, "Cache-Control", "no-store");
    http_stream_start(packing->request, 200, packing->type, &STREAM_EVENTS, packing);
}

/* When the bytes have ended and the helper has said how it went. */
static void end_when_done(struct packing *packing)
{
    if (packing->over || packing->call || (packing->flow && !packing->failed))
        return;
    struct http_request *request = packing->request;
    if (!packing->failed && !packing->streaming)
        start_stream(packing);
    if (packing->over)
        return;
    packing_over(packing);
    if (!packing->failed)
        http_stream_end(request);
    else if (packing->streaming)
        http_stream_abort(request);
    else
        http_reply_error(request, &packing->error);
}

static void pass_on(struct packing *packing, const void *data, size_t size)
{
    if (!packing->streaming)
        start_stream(packing);
    if (!packing->over && strcmp(http_request_method(packing->request), "HEAD") == 0) {
        http_stream_end(packing->request);
        packing_over(packing);
    }
    if (!packing->over && http_stream_send(packing->request, data, size) >= HTTP_STREAM_FULL_BYTES && packing->flow)
        files_flow_pause(packing->flow, true);
}

static void on_flowed(void *cookie, const void *data, size_t size)
{
    struct packing *packing = cookie;
    packing->busy = true;
    if (size > 0)
        pass_on(packing, data, size);
    else
        files_flow_free(TAKE(packing->flow));
    end_when_done(packing);
    step_done(packing);
}

static void on_record(void *cookie UNUSED, const struct files_record *record UNUSED, int descriptor)
{
    if (descriptor >= 0)
        close(descriptor);
}

static void on_over(void *cookie, const struct files_record *done UNUSED, const struct error *err)
{
    struct packing *packing = cookie;
    packing->call = NULL;
    packing->busy = true;
    if (err) {
        packing->failed = true;
        packing->error = *err;
    }
    end_when_done(packing);
    step_done(packing);
}

static const struct files_events EVENTS = {.record = on_record, .over = on_over};

void files_archive_get(struct http_request *request, struct files_request *asked)
{
    int ends[2];
    struct error err = {0};
    asked->operation = FILES_PACK;
    if (!files_pipe(ends, 0, &err)) {
        http_reply_error(request, &err);
        return;
    }
    struct packing *packing = memory_new(sizeof *packing);
    packing->request = request;
    packing->type = asked->flags & FILES_GZIP ? "application/gzip" : "application/x-tar";
    packing->flow = files_flow_new(ends[0], on_flowed, packing);
    packing->call = files_start(plane_of(request)->sandboxes, caller_of(request)->claims.sandbox_id, asked, ends[1],
                                &EVENTS, packing);
    http_request_when_gone(request, on_gone, packing);
}

/* How many entries there were, tar does not say. */
static void reply_unpacked(struct http_request *request, const struct files_found *found UNUSED,
                           const struct files_record *done UNUSED)
{
    AUTO_FREE char *path = files_request_path(request);
    AUTO_TEXT body = {0};
    text_append_string(&body, "{");
    files_entry_text(&body, "path", (struct files_bytes){path, strlen(path)});
    text_append_string(&body, "}");
    http_reply_bytes(request, 200, "application/json", body.data, body.length);
}

void files_archive_put(struct http_request *request, struct files_request *asked)
{
    asked->operation = FILES_UNPACK;
    asked->flags |= FILES_PARENTS;
    struct files_deed deed = {.action = "archive.put"};
    files_answer_pour(request, asked, &deed, reply_unpacked, UINT64_MAX);
}
