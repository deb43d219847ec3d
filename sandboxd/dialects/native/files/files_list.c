/* files_list.c - records in, text out; the reply starts with the first of them, so that an error before has its status.
 */
#include "sandboxd/dialects/native/files/files_list.h"

#include "sandboxd/dialects/native/events.h"
#include "sandboxd/dialects/native/files/files_entry.h"
#include "sandboxd/dialects/plane.h"
#include "shared/base/memory.h"

#include <inttypes.h>
#include <string.h>

struct listing {
    struct http_request *request;
    struct files_call *call;
    char *path;
    bool is_grep, is_lines;
    bool streaming;
    bool has_records;
    struct text text; /* of one step */
    bool busy, gone;  /* gone inside a step: freed at its end */
};

static void listing_free(struct listing *listing)
{
    files_cancel(listing->call);
    text_done(&listing->text);
    free(listing->path);
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

/* The token holds no more. One JSON object cannot say so: it breaks off. */
static void on_cut(struct http_request *request, void *cookie, const struct error *err)
{
    const struct listing *listing = cookie;
    AUTO_TEXT text = {0};
    if (listing->is_lines) {
        events_error(&text, HTTP_NDJSON, err);
        http_stream_send(request, text.data, text.length);
    }
    on_gone(cookie);
}

static const struct http_stream_events STREAM_EVENTS = {
    .drained = on_drained, .gone = on_gone, .cut = on_cut, .cut_stalled = true};

/* ---- text ---- */

static void append_head(struct listing *listing)
{
    if (listing->is_lines)
        return;
    text_append_string(&listing->text, "{");
    files_entry_text(&listing->text, "path", (struct files_bytes){listing->path, strlen(listing->path)});
    text_append_format(&listing->text, ",\"%s\":[", listing->is_grep ? "matches" : "entries");
}

static void append_record(struct listing *listing, const struct files_record *record)
{
    struct text *text = &listing->text;
    if (!listing->is_lines && listing->has_records)
        text_append(text, ",", 1);
    text_append(text, "{", 1);
    if (listing->is_grep && listing->is_lines)
        text_append_string(text, "\"type\":\"match\",");
    if (record->kind == FILES_MATCH)
        files_entry_match(text, record);
    else
        files_entry_fields(text, record, NULL);
    text_append_string(text, listing->is_lines ? "}\n" : "}");
    listing->has_records = true;
}

static uint64_t bounded(uint64_t value)
{
    return value > INT64_MAX ? INT64_MAX : value;
}

static void append_tail(struct listing *listing, const struct files_record *done)
{
    text_append_format(&listing->text, "%s\"count\":%" PRIu64 ",\"skipped\":%" PRIu64 ",\"truncated\":%s}%s",
                       listing->is_lines ? "{\"type\":\"done\"," : "],", bounded(done->count), bounded(done->skipped),
                       done->is_truncated ? "true" : "false", listing->is_lines ? "\n" : "");
}

/* ---- steps ---- */

static void start_stream(struct listing *listing)
{
    listing->streaming = true;
    http_reply_header(listing->request, "Cache-Control", "no-store");
    http_stream_start(listing->request, 200, listing->is_lines ? "application/x-ndjson" : "application/json",
                      &STREAM_EVENTS, listing);
    append_head(listing);
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
    if (record->kind != (listing->is_grep ? FILES_MATCH : FILES_ENTRY))
        return;
    listing->busy = true;
    if (!listing->streaming)
        start_stream(listing);
    append_record(listing, record);
    send_text(listing);
    listing->busy = false;
    if (listing->gone)
        listing_free(listing);
}

static void end_stream(struct listing *listing, const struct files_record *done)
{
    if (!listing->streaming)
        start_stream(listing);
    append_tail(listing, done);
    send_text(listing);
    if (!listing->gone)
        http_stream_end(listing->request);
}

static void break_stream(struct listing *listing, const struct error *err)
{
    if (!listing->is_lines) {
        http_stream_abort(listing->request);
        return;
    }
    events_error(&listing->text, HTTP_NDJSON, err);
    send_text(listing);
    if (!listing->gone)
        http_stream_end(listing->request);
}

static void on_over(void *cookie, const struct files_record *done, const struct error *err)
{
    struct listing *listing = cookie;
    listing->call = NULL;
    listing->busy = true;
    if (!err)
        end_stream(listing, done);
    else if (listing->streaming)
        break_stream(listing, err);
    else
        http_reply_error(listing->request, err);
    listing_free(listing);
}

static const struct files_events EVENTS = {.record = on_record, .over = on_over};

void files_list_start(struct http_request *request, const struct files_request *asked)
{
    const char *accept = http_request_header(request, "accept");
    struct listing *listing = memory_new(sizeof *listing);
    listing->request = request;
    listing->path = memory_string(asked->path);
    listing->is_grep = asked->operation == FILES_GREP;
    listing->is_lines = accept && strstr(accept, "application/x-ndjson");
    listing->call =
        files_start(plane_of(request)->sandboxes, caller_of(request)->claims.sandbox_id, asked, -1, &EVENTS, listing);
    http_request_when_gone(request, on_gone, listing);
}
