/* execd_files_list.c - the array is sent as its parts come; an error before the first has its status, one behind it
 * breaks the reply off. */
#include "sandboxd/dialects/execd/execd_files_list.h"

#include "sandboxd/dialects/execd/execd_files_common.h"
#include "sandboxd/dialects/fields.h"
#include "sandboxd/dialects/plane.h"
#include "shared/base/memory.h"

#include <string.h>

enum { DEPTH_MAX = 64 };

struct listing {
    struct http_request *request;
    struct files_call *call;
    struct execd_place place;
    struct files_request asked; /* LIST, after the folder was looked at; or GLOB */
    bool is_looking;            /* the STAT before a LIST */
    enum files_type type;       /* what it found */
    bool streaming;
    struct text text; /* of one step */
    bool has_records;
    bool busy, gone; /* gone inside a step: freed at its end */
};

static void listing_free(struct listing *listing)
{
    files_cancel(listing->call);
    execd_place_done(&listing->place);
    text_done(&listing->text);
    free(listing);
}

static void on_gone(void *cookie)
{
    struct listing *listing = cookie;
    files_cancel(TAKE(listing->call));
    listing->gone = true;
    if (!listing->busy)
        listing_free(listing);
}

static void on_drained(struct http_request *request UNUSED, void *cookie)
{
    struct listing *listing = cookie;
    if (listing->call)
        files_pause(listing->call, false);
}

static const struct http_stream_events STREAM_EVENTS = {.drained = on_drained, .gone = on_gone, .cut_stalled = true};

static void start_stream(struct listing *listing)
{
    if (listing->streaming)
        return;
    listing->streaming = true;
    http_reply_header(listing->request, "Cache-Control", "no-store");
    http_stream_start(listing->request, 200, "application/json", &STREAM_EVENTS, listing);
    text_append_string(&listing->text, "[");
}

static void send_text(struct listing *listing)
{
    if (listing->gone)
        return;
    size_t waiting = http_stream_send(listing->request, listing->text.data, listing->text.length);
    listing->text.length = 0;
    if (waiting >= HTTP_STREAM_FULL_BYTES && listing->call)
        files_pause(listing->call, true);
}

static void on_record(void *cookie, const struct files_record *record, int descriptor)
{
    struct listing *listing = cookie;
    if (descriptor >= 0)
        close(descriptor);
    if (record->kind != FILES_ENTRY)
        return;
    listing->type = record->type;
    if (listing->is_looking || record->path.size == 0) /* the folder itself */
        return;
    listing->busy = true;
    start_stream(listing);
    if (listing->has_records)
        text_append(&listing->text, ",", 1);
    listing->has_records = true;
    execd_file_append(&listing->text, record, listing->place.path, record->path);
    send_text(listing);
    listing->busy = false;
    if (listing->gone)
        listing_free(listing);
}

static void end_stream(struct listing *listing)
{
    start_stream(listing);
    text_append_string(&listing->text, "]");
    send_text(listing);
    if (!listing->gone)
        http_stream_end(listing->request);
}

static void begin(struct listing *listing, const struct files_request *asked);

/* The folder was looked at: false with the answer's error, or the list begins, or is empty. */
static bool go_on(struct listing *listing, struct error *err)
{
    if (listing->type == FILES_SYMLINK)
        return error_set(err, ERROR_INVALID, "path: a symbolic link is not followed; give the folder's own path");
    if (listing->type != FILES_FOLDER)
        return error_set(err, ERROR_INVALID, "path: not a folder");
    listing->is_looking = false;
    if (listing->asked.depth > 0)
        begin(listing, &listing->asked);
    return true;
}

static void on_over(void *cookie, const struct files_record *done UNUSED, const struct error *err)
{
    struct listing *listing = cookie;
    struct error wrong = {0};
    listing->call = NULL;
    if (!err && listing->is_looking && !go_on(listing, &wrong))
        err = &wrong;
    if (listing->call)
        return;
    listing->busy = true;
    if (!err)
        end_stream(listing);
    else if (listing->streaming)
        http_stream_abort(listing->request);
    else
        execd_files_fail(listing->request, err);
    listing_free(listing);
}

static const struct files_events EVENTS = {.record = on_record, .over = on_over};

static void begin(struct listing *listing, const struct files_request *asked)
{
    const struct http_request *request = listing->request;
    listing->call =
        files_start(plane_of(request)->sandboxes, caller_of(request)->claims.sandbox_id, asked, -1, &EVENTS, listing);
}

/* Takes the place. */
static void start(struct http_request *request, struct execd_place *place, const struct files_request *asked)
{
    struct listing *listing = memory_new(sizeof *listing);
    struct files_request look = *asked;
    listing->request = request;
    listing->place = *place;
    listing->asked = *asked;
    listing->is_looking = asked->operation == FILES_LIST;
    look.operation = FILES_STAT;
    begin(listing, listing->is_looking ? &look : asked);
    http_request_when_gone(request, on_gone, listing);
}

void execd_files_search(struct http_request *request)
{
    struct execd_place place = {0};
    struct files_request asked;
    if (!execd_files_begin(request, SCOPE_FS_RO, &place, &asked)) {
        execd_place_done(&place);
        return;
    }
    const char *pattern = http_request_query(request, "pattern");
    asked.operation = FILES_GLOB;
    asked.flags = FILES_BY_NAME | FILES_NO_FOLDERS;
    asked.pattern = pattern && pattern[0] ? pattern : "**";
    start(request, &place, &asked);
}

void execd_files_list(struct http_request *request)
{
    struct execd_place place = {0};
    struct files_request asked;
    struct error err = {0};
    uint64_t depth = 1;
    if (!execd_files_begin(request, SCOPE_FS_RO, &place, &asked)) {
        execd_place_done(&place);
        return;
    }
    if (!fields_query_number(request, "depth", 0, INT32_MAX, &depth, &err)) {
        http_reply_error(request, &err);
        execd_place_done(&place);
        return;
    }
    asked.operation = FILES_LIST;
    asked.depth = depth < DEPTH_MAX ? (uint32_t)depth : DEPTH_MAX;
    start(request, &place, &asked);
}
