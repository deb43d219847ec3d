/* execd_run.c - follower in, events out. */
#include "sandboxd/dialects/execd/execd_run.h"

#include "sandboxd/dialects/execd/execd_events.h"
#include "sandboxd/dialects/execd/execd_lines.h"
#include "sandboxd/dialects/execd/execd_stream.h"
#include "sandboxd/dialects/plane.h"
#include "shared/base/memory.h"
#include "shared/base/text.h"

enum { CHUNK_BYTES = 32 * 1024, BATCH_BYTES = 64 * 1024 };

struct execd_run {
    enum execd_run_kind kind;
    char id[FRONT_INIT_ID_BYTES];
    struct execd_stream *stream;
    struct follower *follower;
    struct execd_lines lines[OUTPUT_STREAMS];
    bool pulling, over; /* over inside pull: freed at its end */
};

static void pull(void *cookie);

static void run_over(struct execd_run *run)
{
    follower_close(TAKE(run->follower));
    run->over = true;
}

static void run_free(struct execd_run *run)
{
    for (int i = 0; i < OUTPUT_STREAMS; i++)
        execd_lines_done(&run->lines[i]);
    free(run);
}

static void on_gone(void *cookie)
{
    struct execd_run *run = cookie;
    execd_stream_close(TAKE(run->stream));
    run_over(run);
    if (!run->pulling)
        run_free(run);
}

static void on_drained(void *cookie)
{
    struct execd_run *run = cookie;
    follower_delivered(run->follower);
    if (!run->pulling)
        pull(run);
}

static const struct execd_stream_owner OWNER = {.drained = on_drained, .gone = on_gone};

/* ---- one step each; false when there is nothing more to do now ---- */

static bool end_stream(struct execd_run *run)
{
    if (run->stream)
        execd_stream_end(TAKE(run->stream));
    run_over(run);
    return false;
}

static bool on_started(struct execd_run *run, const struct process_view *view)
{
    execd_stream_begin(run->stream, view->id);
    if (run->over || run->kind == EXECD_RUN_FOREGROUND)
        return !run->over;
    execd_event_complete(execd_stream_text(run->stream), 0);
    return end_stream(run);
}

/* As many lines as there is room for; a chunk of blank ones is many times as much in events. */
static bool on_data(struct execd_run *run, const struct follower_item *item, const char *data)
{
    struct execd_lines *lines = &run->lines[item->stream];
    size_t done = 0;
    bool has_room = true;
    while (done < item->size && has_room) {
        const struct text *line;
        size_t used;
        bool is_line = execd_lines_take(lines, data + done, item->size - done, &used, &line);
        done += used;
        if (!is_line)
            continue;
        execd_event_line(execd_stream_text(run->stream), item->stream, line->data, line->length);
        if (execd_stream_text(run->stream)->length < BATCH_BYTES)
            continue;
        execd_stream_flush(run->stream);
        if (run->over)
            return false;
        has_room = execd_stream_has_room(run->stream);
    }
    follower_consumed(run->follower, item->stream, done);
    return has_room;
}

static bool on_ended(struct execd_run *run, const struct process_view *view)
{
    for (int i = 0; i < OUTPUT_STREAMS; i++) {
        const struct text *line;
        if (execd_lines_rest(&run->lines[i], &line))
            execd_event_line(execd_stream_text(run->stream), (enum output_stream)i, line->data, line->length);
    }
    execd_event_end(execd_stream_text(run->stream), &view->end);
    return end_stream(run);
}

/* A command that may not be what was asked for is one that could not be started, for this dialect's clients. */
static bool on_refused(struct execd_run *run, const struct error *err)
{
    const char *const traceback[] = {err->message};
    execd_stream_begin(run->stream, run->id);
    if (!run->over)
        execd_event_error(execd_stream_text(run->stream), "CommandExecError", err->message, traceback, 1);
    return end_stream(run);
}

static bool on_failed(struct execd_run *run, const struct error *err)
{
    if (err->kind == ERROR_FORBIDDEN && !execd_stream_has_begun(run->stream))
        return on_refused(run, err);
    execd_stream_fail(TAKE(run->stream), err);
    run_over(run);
    return false;
}

static bool step(struct execd_run *run, char *buffer)
{
    struct follower_item item;
    switch (follower_next(run->follower, &item, buffer, CHUNK_BYTES)) {
    case FOLLOWER_STARTED:
        return on_started(run, item.view);
    case FOLLOWER_DATA:
        return on_data(run, &item, buffer);
    case FOLLOWER_GAP: /* this dialect has no word for it */
        return true;
    case FOLLOWER_ENDED:
        return on_ended(run, item.view);
    case FOLLOWER_FAILED:
        return on_failed(run, item.error);
    case FOLLOWER_NOTHING:
        break;
    }
    return false;
}

static void pull(void *cookie)
{
    struct execd_run *run = cookie;
    char buffer[CHUNK_BYTES];
    if (!execd_stream_has_room(run->stream))
        return;
    run->pulling = true; /* the request may end inside any of these */
    while (step(run, buffer)) {
    }
    if (!run->over)
        execd_stream_flush(run->stream);
    run->pulling = false;
    if (run->over)
        run_free(run);
}

struct execd_run *execd_run_new(struct http_request *request, const char *id, enum execd_run_kind kind)
{
    static const uint64_t START[OUTPUT_STREAMS] = {0};
    struct execd_run *run = memory_new(sizeof *run);
    int64_t expires_s = caller_of(request)->claims.expires_at + PLANE_AFTER_EXPIRY_S;
    run->kind = kind;
    (void)!text_copy(run->id, sizeof run->id, id);
    run->stream = execd_stream_new(request, expires_s, &OWNER, run);
    run->follower = follower_new(kind == EXECD_RUN_BACKGROUND ? FOLLOWER_AT_END : FOLLOWER_DRIVER, START, pull, run);
    return run;
}

struct follower *execd_run_follower(struct execd_run *run)
{
    return run->follower;
}
