/* execd_logs.c - follower in, bytes out, as far as there are any now. */
#include "sandboxd/dialects/execd/execd_logs.h"

#include "sandboxd/dialects/plane.h"
#include "shared/base/memory.h"
#include "shared/base/text.h"

#include <stdio.h>

enum { CHUNK_BYTES = 32 * 1024 };

struct logs {
    struct http_request *request;
    struct follower *follower;
    uint64_t cursor, until;
    bool is_due; /* `text` is being read */
    struct text text;
};

static void logs_free(struct logs *logs)
{
    follower_close(TAKE(logs->follower));
    text_done(&logs->text);
    free(logs);
}

static void on_gone(void *cookie)
{
    logs_free(cookie);
}

static void on_left(void *cookie)
{
    *(bool *)cookie = true;
}

/* Chunked even when it is nothing: some clients take no other empty reply. */
static void send_text(struct http_request *request, const struct text *text)
{
    static const struct http_stream_events EVENTS = {.gone = on_left};
    bool has_left = false; /* nobody is told after the end */
    http_stream_start(request, 200, "text/plain; charset=utf-8", &EVENTS, &has_left);
    if (!has_left && text->length > 0)
        http_stream_send(request, text->data, text->length);
    if (!has_left)
        http_stream_end(request);
}

static void answer(struct logs *logs)
{
    char cursor[24];
    struct http_request *request = logs->request;
    AUTO_TEXT text = logs->text;
    logs->text = (struct text){0};
    (void)snprintf(cursor, sizeof cursor, "%llu", (unsigned long long)logs->until);
    logs_free(logs);
    http_reply_header(request, "EXECD-COMMANDS-TAIL-CURSOR", cursor);
    http_reply_header(request, "Cache-Control", "no-store");
    http_reply_header(request, "X-Content-Type-Options", "nosniff");
    send_text(request, &text);
}

static void fail(struct logs *logs, const struct error *err)
{
    if (err->kind == ERROR_RANGE) { /* nothing is there yet */
        logs->until = logs->cursor;
        answer(logs);
        return;
    }
    http_reply_error(logs->request, err);
    logs_free(logs);
}

static void take(struct logs *logs, const struct follower_item *item, const char *data)
{
    uint64_t left = logs->until > item->offset ? logs->until - item->offset : 0;
    text_append(&logs->text, data, item->size < left ? item->size : (size_t)left);
    logs->cursor = item->offset + item->size;
    follower_consumed(logs->follower, item->stream, item->size);
    follower_delivered(logs->follower);
}

/* False: it is answered, or there is nothing more to do now. */
static bool step(struct logs *logs, char *buffer)
{
    struct follower_item item;
    if (logs->is_due && logs->cursor >= logs->until) {
        answer(logs);
        return false;
    }
    switch (follower_next(logs->follower, &item, buffer, CHUNK_BYTES)) {
    case FOLLOWER_STARTED:
        follower_ignore(logs->follower, OUTPUT_STDERR);
        logs->is_due = true;
        logs->until = item.view->output_gone ? logs->cursor : item.view->length[OUTPUT_STDOUT];
        logs->until = logs->until > logs->cursor ? logs->until : logs->cursor;
        return true;
    case FOLLOWER_DATA:
        take(logs, &item, buffer);
        return true;
    case FOLLOWER_GAP:
        logs->cursor = item.gap_to;
        return true;
    case FOLLOWER_ENDED:
        answer(logs);
        return false;
    case FOLLOWER_FAILED:
        fail(logs, item.error);
        return false;
    case FOLLOWER_NOTHING:
        break;
    }
    return false;
}

static void pull(void *cookie)
{
    char buffer[CHUNK_BYTES];
    while (step(cookie, buffer)) {
    }
}

void execd_logs(struct http_request *request, const char *id, uint64_t cursor)
{
    struct logs *logs = memory_new(sizeof *logs);
    const char *sandbox_id = caller_of(request)->claims.sandbox_id;
    logs->request = request;
    logs->cursor = cursor;
    const uint64_t offsets[OUTPUT_STREAMS] = {[OUTPUT_STDOUT] = cursor};
    logs->follower = follower_new(FOLLOWER_WATCHER, offsets, pull, logs);
    http_request_when_gone(request, on_gone, logs);
    process_follow(plane_of(request)->sandboxes, sandbox_id, id, logs->follower);
}
