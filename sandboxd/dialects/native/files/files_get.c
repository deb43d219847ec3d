/* files_get.c - a descriptor goes to sendfile; bytes that come as records go on as a stream. */
#include "sandboxd/dialects/native/files/files_get.h"

#include "sandboxd/dialects/native/files/conditions.h"
#include "sandboxd/dialects/native/files/files_request.h"
#include "sandboxd/dialects/plane.h"
#include "shared/base/memory.h"

#include <inttypes.h>
#include <string.h>

#define TYPE "application/octet-stream"

struct download {
    struct http_request *request;
    struct files_call *call;
    struct files_version version;
    const struct files_get_manner *manner;
    int file; /* -1: none came */
    bool streaming;
    bool busy, gone; /* gone inside a step: freed at its end */
};

static void download_free(struct download *download)
{
    files_cancel(download->call);
    if (download->file >= 0)
        close(download->file);
    free(download);
}

static void on_gone(void *cookie)
{
    struct download *download = cookie;
    files_cancel(TAKE(download->call));
    download->gone = true;
    if (!download->busy)
        download_free(download);
}

static bool is_head(const struct http_request *request)
{
    return strcmp(http_request_method(request), "HEAD") == 0;
}

/* ---- a file with a descriptor ---- */

static void put_version(struct http_request *request, const struct files_version *version)
{
    char tag[CONDITIONS_ETAG_BYTES], date[CONDITIONS_DATE_BYTES];
    conditions_etag(tag, version);
    conditions_date(date, version->mtime_ns);
    http_reply_header(request, "ETag", tag);
    http_reply_header(request, "Last-Modified", date);
    http_reply_header(request, "Accept-Ranges", "bytes");
}

static void reply_part(struct http_request *request, const struct conditions *asked,
                       const struct files_version *version, int file)
{
    uint64_t offset = 0, size = version->size;
    enum conditions_part part = conditions_range(asked, version, &offset, &size);
    char range[80];
    if (part == CONDITIONS_UNSATISFIABLE) {
        struct error err = {0};
        error_set(&err, ERROR_RANGE, "the file has %" PRIu64 " bytes", version->size);
        snprintf(range, sizeof range, "bytes */%" PRIu64, version->size);
        http_reply_header(request, "Content-Range", range);
        http_reply_error(request, &err);
        close(file);
        return;
    }
    if (part == CONDITIONS_PART) {
        snprintf(range, sizeof range, "bytes %" PRIu64 "-%" PRIu64 "/%" PRIu64, offset, offset + size - 1,
                 version->size);
        http_reply_header(request, "Content-Range", range);
    }
    http_reply_file(request, part == CONDITIONS_PART ? 206 : 200, TYPE, file, offset, size);
}

/* Takes the file. */
static void reply_file(struct http_request *request, const struct files_version *version, int file)
{
    struct conditions asked = files_request_conditions(request);
    enum conditions_verdict verdict = conditions_judge(&asked, version);
    put_version(request, version);
    if (verdict == CONDITIONS_GO) {
        reply_part(request, &asked, version, file);
        return;
    }
    close(file);
    struct error err = {0};
    error_set(&err, ERROR_PRECONDITION, "the file has changed");
    if (verdict == CONDITIONS_NOT_MODIFIED)
        http_reply_empty(request, 304);
    else
        http_reply_error(request, &err);
}

/* ---- one without ---- */

static void on_drained(struct http_request *request UNUSED, void *cookie)
{
    const struct download *download = cookie;
    if (download->call)
        files_pause(download->call, false);
}

static const struct http_stream_events STREAM_EVENTS = {.drained = on_drained, .gone = on_gone, .cut_stalled = true};

static void take_data(struct download *download, const struct files_bytes *data)
{
    if (!download->streaming) {
        download->streaming = true;
        http_reply_header(download->request, "Cache-Control", "no-store");
        download->manner->stream(download->request);
        http_stream_start(download->request, 200, download->manner->type, &STREAM_EVENTS, download);
    }
    if (!download->gone && http_stream_send(download->request, data->data, data->size) >= HTTP_STREAM_FULL_BYTES &&
        download->call)
        files_pause(download->call, true);
}

/* ---- the operation ---- */

static void take_entry(struct download *download, const struct files_record *entry, int descriptor)
{
    if (descriptor < 0 || download->file >= 0)
        return;
    download->version = entry->version;
    download->file = descriptor;
    plane_stay_with_file(download->request); /* the operation is over soon, its reply may take hours */
}

static void on_record(void *cookie, const struct files_record *record, int descriptor)
{
    struct download *download = cookie;
    int held = descriptor;
    if (record->kind == FILES_ENTRY && download->file < 0)
        take_entry(download, record, TAKE_FD(held));
    if (held >= 0)
        close(held);
    if (record->kind != FILES_DATA || download->file >= 0)
        return;
    download->busy = true;
    take_data(download, &record->text);
    if (!download->gone && is_head(download->request)) { /* how much there is shows only when it is read */
        http_stream_end(download->request);
        download->gone = true;
    }
    download->busy = false;
    if (download->gone)
        download_free(download);
}

/* Nothing came but the entry: an empty file of those that are only there to be read. */
static void reply_rest(struct download *download)
{
    struct http_request *request = download->request;
    if (download->streaming)
        http_stream_end(request);
    else if (download->file >= 0)
        download->manner->file(request, &download->version, TAKE_FD(download->file));
    else {
        download->manner->stream(request);
        http_reply_bytes(request, 200, download->manner->type, "", 0);
    }
}

/* Why there are no bytes; of a folder with what there is instead. */
static void reply_failure(struct http_request *request, const struct error *err)
{
    struct error told = *err;
    if (err->kind == ERROR_CONFLICT && strncmp(err->message, "is a folder", 11) == 0)
        error_set(&told, ERROR_CONFLICT, "is a folder: ?list=1 lists it, and /archive packs it");
    http_reply_error(request, &told);
}

static void on_over(void *cookie, const struct files_record *done UNUSED, const struct error *err)
{
    struct download *download = cookie;
    download->call = NULL;
    download->busy = true;
    if (!err)
        reply_rest(download);
    else if (download->streaming)
        http_stream_abort(download->request);
    else
        download->manner->failed(download->request, err);
    download_free(download);
}

static const struct files_events EVENTS = {.record = on_record, .over = on_over};

static void add_no_headers(struct http_request *request UNUSED)
{
}

static const struct files_get_manner
    NATIVE = {.file = reply_file, .stream = add_no_headers, .type = TYPE, .failed = reply_failure},
    NATIVE_LINES = {.file = reply_file, .stream = add_no_headers, .type = "text/plain", .failed = reply_failure};

void files_get_start_as(struct http_request *request, const struct files_request *asked,
                        const struct files_get_manner *manner)
{
    struct download *download = memory_new(sizeof *download);
    download->request = request;
    download->file = -1;
    download->manner = manner;
    download->call =
        files_start(plane_of(request)->sandboxes, caller_of(request)->claims.sandbox_id, asked, -1, &EVENTS, download);
    http_request_when_gone(request, on_gone, download);
}

void files_get_start(struct http_request *request, const struct files_request *asked)
{
    files_get_start_as(request, asked, asked->flags & FILES_LINES ? &NATIVE_LINES : &NATIVE);
}
