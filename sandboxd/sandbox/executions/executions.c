/* executions.c - one execution, step by step: its files are written, it runs, what it left is collected, its folder
 * goes. A timer watches over all of it, so that the client is answered while it still waits. */
#include "sandboxd/sandbox/executions/executions_internal.h"

#include "sandboxd/sandbox/sandbox_internal.h"
#include "shared/base/clock.h"
#include "shared/base/memory.h"
#include "shared/base/random.h"

#include <string.h>

enum { CHUNK_BYTES = 32 * 1024, TIMED_OUT = 124, REFUSED = 1 };
static const char TIMED_OUT_TEXT[] = "Execution timed out";

struct execution {
    struct sandboxes *all;
    struct execution_order *order;
    void (*done)(void *cookie, struct execution_result *result, const struct error *err);
    void *cookie;
    char id[RANDOM_ID_BYTES];
    char folder[EXECUTION_FOLDER_BYTES];
    struct execution_entry entry;
    size_t written; /* files */
    bool has_folder, has_started;
    bool forks; /* from a process that has the interpreter ready */
    struct execution_write *write;
    struct follower *follower; /* while it runs */
    struct execution_harvest *harvest;
    struct loop_timer *timer;
    struct text raw[OUTPUT_STREAMS]; /* as it was written */
    uint64_t lost[OUTPUT_STREAMS];   /* bytes before that */
    struct text marks;               /* for the end of stderr */
    struct error why;                /* what result.error points to */
    struct execution_result result;
};

/* ---- its end ---- */

static void kill_rest(struct execution *execution)
{
    char id[FRONT_INIT_ID_BYTES];
    (void)snprintf(id, sizeof id, EXECUTION_COMMAND "%s", execution->id);
    const struct process_call call = {.sandbox_id = execution->order->sandbox_id, .process_id = id};
    process_kill(execution->all, &call);
}

/* Stops whatever is under way. */
static void halt(struct execution *execution)
{
    execution_write_cancel(TAKE(execution->write));
    execution_harvest_cancel(TAKE(execution->harvest));
    if (execution->follower)
        kill_rest(execution);
    follower_close(TAKE(execution->follower));
    loop_timer_cancel(TAKE(execution->timer));
    if (execution->has_folder)
        execution_remove(execution->all, execution->order->sandbox_id, execution->folder);
    execution->has_folder = false;
}

static void execution_free(struct execution *execution)
{
    execution_result_done(execution->all, execution->order->sandbox_id, &execution->result);
    if (execution->has_started)
        execution_book_leave(execution->all->executions, execution->order->sandbox_id);
    for (int i = 0; i < OUTPUT_STREAMS; i++)
        text_done(&execution->raw[i]);
    text_done(&execution->marks);
    execution_order_free(execution->order);
    free(execution);
}

void execution_cancel(struct execution *execution)
{
    if (!execution)
        return;
    halt(execution);
    execution_free(execution);
}

static void fail(struct execution *execution, const struct error *err)
{
    struct error why = *err;
    halt(execution);
    execution->done(execution->cookie, NULL, &why);
    execution_free(execution);
}

/* What is no UTF-8 becomes U+FFFD, a byte each. */
static void append_clean(struct text *to, const char *data, size_t size)
{
    while (size > 0) {
        size_t good = text_utf8_prefix(data, size);
        text_append(to, data, good);
        if (good < size)
            text_append_string(to, "\xef\xbf\xbd");
        size_t past = good < size ? good + 1 : good;
        data += past;
        size -= past;
    }
}

/* The rest of a character whose beginning is lost is none. */
static size_t count_rest(const struct text *raw)
{
    size_t rest = 0;
    while (rest < 3 && rest < raw->length && ((unsigned char)raw->data[rest] & 0xc0) == 0x80)
        rest++;
    return rest;
}

static void clean_streams(struct execution *execution)
{
    struct text *told = &execution->result.streams[OUTPUT_STDERR];
    for (int i = 0; i < OUTPUT_STREAMS; i++) {
        const struct text *raw = &execution->raw[i];
        size_t skip = execution->lost[i] > 0 ? count_rest(raw) : 0;
        append_clean(&execution->result.streams[i], raw->data ? raw->data + skip : "", raw->length - skip);
        if (execution->lost[i] > 0)
            text_append_format(&execution->marks, "[parley] %s was too long: its first %llu bytes are left out\n",
                               output_stream_name((enum output_stream)i),
                               (unsigned long long)execution->lost[i] + skip);
    }
    if (execution->marks.length == 0)
        return;
    if (told->length > 0 && told->data[told->length - 1] != '\n')
        text_append_string(told, "\n");
    text_append(told, execution->marks.data, execution->marks.length);
}

static void answer(struct execution *execution)
{
    halt(execution);
    clean_streams(execution);
    execution->result.id = execution->id;
    if (execution->why.kind != ERROR_NONE)
        execution->result.error = execution->why.message;
    execution->done(execution->cookie, &execution->result, NULL);
    execution_free(execution);
}

static void time_out(struct execution *execution)
{
    execution->result.timed_out = true;
    execution->result.exit_code = TIMED_OUT;
    error_set(&execution->why, ERROR_TIMEOUT, TIMED_OUT_TEXT);
}

/* The last moment: setting it up, or collecting what it left, takes longer than there is time. */
static void on_give_up(void *cookie)
{
    struct execution *execution = cookie;
    execution->timer = NULL;
    if (execution->harvest)
        text_append_string(&execution->marks, "[parley] there was no time to collect all artifacts\n");
    else
        time_out(execution);
    answer(execution);
}

/* ---- it ran ---- */

static void on_harvested(void *cookie)
{
    struct execution *execution = cookie;
    execution->harvest = NULL;
    answer(execution);
}

static void take_end(struct execution *execution, const struct process_end *end)
{
    execution->result.exit_code = end->exit_code;
    if (end->timed_out)
        time_out(execution);
    else if (end->oom)
        error_set(&execution->why, ERROR_NO_CAPACITY,
                  "Out of memory: the program was killed because the sandbox had no more");
}

static void on_ended(struct execution *execution, const struct process_view *view)
{
    for (int i = 0; i < OUTPUT_STREAMS; i++)
        execution->lost[i] =
            view->length[i] > execution->raw[i].length ? view->length[i] - execution->raw[i].length : 0;
    take_end(execution, &view->end);
    kill_rest(execution); /* what it started and left behind */
    follower_close(TAKE(execution->follower));
    if (execution->result.timed_out) {
        answer(execution);
        return;
    }
    execution->harvest = execution_harvest_start(execution->all, execution->order->sandbox_id, execution->folder,
                                                 &execution->result, &execution->marks, on_harvested, execution);
}

/* Should more come than is kept at the end: what came last counts. */
static void collect(struct execution *execution, const struct follower_item *item, const uint8_t *data)
{
    struct text *raw = &execution->raw[item->stream];
    text_append(raw, data, item->size);
    if (raw->length > EXECUTION_OUTPUT_BYTES) {
        size_t over = raw->length - EXECUTION_OUTPUT_BYTES;
        memmove(raw->data, raw->data + over, EXECUTION_OUTPUT_BYTES);
        raw->length = EXECUTION_OUTPUT_BYTES;
        raw->data[raw->length] = 0;
    }
    follower_consumed(execution->follower, item->stream, item->size);
    follower_delivered(execution->follower);
}

static void run(struct execution *execution);

/* That process may have been killed from inside, or have no memory: then it starts like any other. */
static void on_not_started(struct execution *execution, const struct error *err)
{
    if (!execution->forks || err->kind == ERROR_GONE || err->kind == ERROR_STARTING) {
        fail(execution, err);
        return;
    }
    execution->forks = false;
    follower_close(TAKE(execution->follower));
    run(execution);
}

static void on_output(void *cookie)
{
    struct execution *execution = cookie;
    uint8_t buffer[CHUNK_BYTES];
    for (;;) {
        struct follower_item item;
        switch (follower_next(execution->follower, &item, buffer, sizeof buffer)) {
        case FOLLOWER_DATA:
            collect(execution, &item, buffer);
            break;
        case FOLLOWER_GAP: /* before all that is kept; counted at the end */
        case FOLLOWER_STARTED:
            break;
        case FOLLOWER_ENDED:
            on_ended(execution, item.view);
            return;
        case FOLLOWER_FAILED:
            on_not_started(execution, item.error);
            return;
        case FOLLOWER_NOTHING:
            return;
        }
    }
}

static void run(struct execution *execution)
{
    static const uint64_t FROM_THE_START[OUTPUT_STREAMS] = {0};
    struct error err = {0};
    uint64_t now = clock_boot_ns(), by = execution->order->answer_by;
    AUTO(command) *command =
        execution_command(execution->order, execution->id, execution->folder, execution->forks, &err);
    if (!command) {
        fail(execution, &err);
        return;
    }
    command->timeout_ms = by > now + 1000000 ? (by - now) / 1000000 : 1;
    execution->follower = follower_new(FOLLOWER_AT_END, FROM_THE_START, on_output, execution);
    process_exec(execution->all, execution->order->sandbox_id, TAKE(command), execution->follower);
}

/* ---- its files ---- */

static void write_next(struct execution *execution);

/* What only a name can have brought about is told as the program's failure. */
static bool is_about_name(const struct error *err)
{
    return err->kind == ERROR_CONFLICT || err->kind == ERROR_NOT_FOUND || err->kind == ERROR_FORBIDDEN ||
           err->kind == ERROR_INVALID;
}

static void on_written(void *cookie, const struct error *err)
{
    struct execution *execution = cookie;
    size_t which = execution->written++;
    execution->write = NULL;
    if (!err) {
        write_next(execution);
        return;
    }
    if (which == 0 || !is_about_name(err)) {
        fail(execution, err);
        return;
    }
    error_set(&execution->why, ERROR_INVALID, "Invalid file path: %.100s: %.100s", execution->order->files[which].path,
              err->message);
    execution->result.exit_code = REFUSED;
    answer(execution);
}

static void write_next(struct execution *execution)
{
    const struct execution_order *order = execution->order;
    if (execution->written == order->file_count) {
        run(execution);
        return;
    }
    execution->has_folder = true;
    execution->write =
        execution_write_start(execution->all, order->sandbox_id, execution->folder, &order->files[execution->written],
                              execution->written == 0, on_written, execution);
}

/* ---- its beginning ---- */

static void on_refused(void *cookie)
{
    struct execution *execution = cookie;
    execution->timer = NULL;
    fail(execution, &execution->why);
}

static int64_t made_ms(const struct execution *execution)
{
    AUTO_REGISTRY_VIEW view = {0};
    bool is_known = registry_find(execution->all->registry, execution->order->sandbox_id, &view);
    return is_known ? view.created_ms : INT64_MAX;
}

struct execution *execution_start(struct sandboxes *all, struct execution_order *order,
                                  void (*done)(void *cookie, struct execution_result *result, const struct error *err),
                                  void *cookie)
{
    struct execution *execution = memory_new(sizeof *execution);
    *execution = (struct execution){.all = all, .order = order, .done = done, .cookie = cookie};
    random_id(execution->id, "run");
    (void)snprintf(execution->folder, sizeof execution->folder, EXECUTION_FOLDER "/" EXECUTION_NAME "%s-%s",
                   execution_book_tag(all->executions), execution->id);
    execution->has_started = execution_book_enter(all->executions, order->sandbox_id, made_ms(execution),
                                                  &execution->entry, &execution->why);
    if (!execution->has_started) {
        execution->timer = loop_timer_start(loop_current(), clock_boot_ns(), on_refused, execution);
        return execution;
    }
    if (execution->entry.is_first)
        execution_sweep(all, order->sandbox_id);
    execution->forks = execution->entry.is_soon && execution_can_fork(order);
    execution->timer = loop_timer_start(loop_current(), order->give_up_at, on_give_up, execution);
    write_next(execution);
    return execution;
}
