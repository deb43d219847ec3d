/* heartbeat.c - one message every two seconds: all that lives in the first, then what the negotiator does not know. */
#include "sandboxd/front/heartbeat.h"

#include "shared/base/clock.h"
#include "shared/base/log.h"
#include "shared/base/memory.h"
#include "shared/base/text.h"
#include "shared/node_protocol/node_call.h"

#include <pthread.h>
#include <string.h>
#include <time.h>

enum {
    BEAT_S = 2,
    CALL_TIMEOUT_MS = 4000,
    LIVING_MAX = 4096,
    ENDED_MAX = 1000 /* told in one beat; the rest in the next */
};

struct heartbeat {
    struct heartbeat_options options;
    char *call_url;
    char *node_url;
    struct node_caller *caller; /* the thread's */
    pthread_t thread;
    bool started;
    pthread_mutex_t mutex; /* guards the four below */
    pthread_cond_t changed;
    bool wanted, stopping;
    bool is_taking;          /* a page of marks is being written: no other is taken */
    json_t *position;        /* of the marks, as the last message said it */
    bool full;               /* the next one names all that lives; the thread's, as the next */
    uint64_t templates_told; /* the version that the negotiator has; 0: none */
    unsigned failures;       /* in a row */
};

/* What one message says of the living, until it is answered. */
struct told {
    struct registry_line *lines;
    size_t count;
    uint64_t templates; /* their version */
};

static void told_done(struct told *told)
{
    free(told->lines);
}
#define AUTO_TOLD __attribute__((cleanup(told_done))) struct told

/* A mark may have raised an epoch before the sandbox was told of here. */
static void raise_epoch(const struct heartbeat *heartbeat, struct registry_line *line)
{
    uint32_t epoch = marks_epoch(heartbeat->options.marks, line->id);
    if (epoch <= line->epoch)
        return;
    registry_raise_epoch(heartbeat->options.registry, line->id, epoch);
    line->epoch = epoch;
}

static json_t *line_json(const struct registry_line *line)
{
    const struct registry_usage *usage = &line->usage;
    return json_pack("{s:s,s:I,s:I,s:I,s:I,s:I,s:I,s:I,s:b}", "id", line->id, "active_at", (json_int_t)line->active_ms,
                     "deadline", (json_int_t)line->deadline_ms, "epoch", (json_int_t)line->epoch, "cpu_ms",
                     (json_int_t)usage->cpu_ms, "memory_bytes", (json_int_t)usage->memory_bytes, "disk_bytes",
                     (json_int_t)usage->disk_bytes, "pids", (json_int_t)usage->pids, "paused", line->paused);
}

static json_t *living(const struct heartbeat *heartbeat, struct told *told)
{
    told->count = registry_lines(heartbeat->options.registry, heartbeat->full ? REGISTRY_LIVING : REGISTRY_CHANGED,
                                 LIVING_MAX, &told->lines);
    json_t *list = json_array();
    for (size_t i = 0; i < told->count; i++) {
        struct registry_line *line = &told->lines[i];
        raise_epoch(heartbeat, line);
        json_array_append_new(list, line_json(line));
    }
    return list;
}

static json_t *ended(struct registry *registry)
{
    AUTO_FREE struct registry_line *lines = NULL;
    size_t count = registry_lines(registry, REGISTRY_UNREPORTED, ENDED_MAX, &lines);
    json_t *list = json_array();
    for (size_t i = 0; i < count; i++)
        json_array_append_new(list, json_pack("{s:s,s:s,s:I}", "id", lines[i].id, "reason", lines[i].reason, "at",
                                              (json_int_t)lines[i].ended_ms));
    return list;
}

static json_t *tell_position(struct heartbeat *heartbeat)
{
    json_t *position = marks_position(heartbeat->options.marks);
    pthread_mutex_lock(&heartbeat->mutex);
    json_decref(heartbeat->position);
    heartbeat->position = json_incref(position);
    pthread_mutex_unlock(&heartbeat->mutex);
    return position;
}

static json_t *checked_text(const char *text)
{
    return json_stringn(text, text_utf8_prefix(text, strlen(text)));
}

/* All of them, when the negotiator has not this list. */
static void put_templates(const struct heartbeat *heartbeat, json_t *message, struct told *told)
{
    AUTO_FREE struct fl_template *all = NULL;
    size_t count = template_list_copy(heartbeat->options.templates, &all, &told->templates);
    if (!heartbeat->full && told->templates == heartbeat->templates_told)
        return;
    json_t *list = json_array();
    for (size_t i = 0; i < count; i++)
        json_array_append_new(list, json_pack("{s:o,s:o,s:I,s:I,s:o}", "name", checked_text(all[i].name), "digest",
                                              checked_text(all[i].digest), "size_bytes", (json_int_t)all[i].size_bytes,
                                              "created_at", (json_int_t)all[i].created_ms, "source",
                                              checked_text(all[i].source)));
    json_object_set_new(message, "templates", list);
}

static json_t *isolations(const char *names)
{
    json_t *list = json_array();
    for (size_t length; *names; names += length + (names[length] == ' ')) {
        length = strcspn(names, " ");
        json_array_append_new(list, json_stringn(names, length));
    }
    return list;
}

static json_t *make_message(struct heartbeat *heartbeat, struct told *told)
{
    struct registry *registry = heartbeat->options.registry;
    const struct fl_identity *identity = node_seal_identity(heartbeat->options.seal);
    json_t *message = json_pack("{s:s,s:I,s:s,s:I,s:I,s:o}", "call", "heartbeat", "time", (json_int_t)clock_wall_ms(),
                                "url", heartbeat->node_url, "slots", (json_int_t)identity->slots_max, "used",
                                (json_int_t)registry_count(registry), "isolation", isolations(identity->isolations));
    json_object_set_new(message, "full", json_boolean(heartbeat->full));
    json_object_set_new(message, "marks", tell_position(heartbeat));
    json_object_set_new(message, "storage", json_string(identity->storage));
    put_templates(heartbeat, message, told);
    json_object_set_new(message, "sandboxes", living(heartbeat, told));
    json_object_set_new(message, "ended", ended(registry));
    return message;
}

/* On the marks thread. */
static void on_page_settled(void *cookie)
{
    struct heartbeat *heartbeat = cookie;
    json_t *position = marks_position(heartbeat->options.marks);
    pthread_mutex_lock(&heartbeat->mutex);
    heartbeat->is_taking = false;
    /* One that moved is told, which fetches the next page. One that did not (the disk is full) would fetch the same. */
    heartbeat->wanted = heartbeat->wanted || !json_equal(position, heartbeat->position);
    pthread_cond_signal(&heartbeat->changed);
    pthread_mutex_unlock(&heartbeat->mutex);
    json_decref(position);
}

static bool set_taking(struct heartbeat *heartbeat, bool is_taking)
{
    pthread_mutex_lock(&heartbeat->mutex);
    bool before = heartbeat->is_taking;
    heartbeat->is_taking = is_taking;
    pthread_mutex_unlock(&heartbeat->mutex);
    return before;
}

static void take_page(struct heartbeat *heartbeat, const json_t *page)
{
    struct error err = {0};
    if (set_taking(heartbeat, true))
        return;
    if (marks_take(heartbeat->options.marks, page, on_page_settled, heartbeat, &err))
        return;
    (void)set_taking(heartbeat, false);
    log_warn("node", "marks of the negotiator were not taken: %s", err.message);
}

static void take_reply(struct heartbeat *heartbeat, const struct told *told, const json_t *reply)
{
    struct registry *registry = heartbeat->options.registry;
    size_t index;
    const json_t *id, *page = json_object_get(reply, "marks");
    json_array_foreach (json_object_get(reply, "ended_known"), index, id) {
        if (json_is_string(id))
            registry_reported(registry, json_string_value(id));
    }
    registry_told(registry, told->lines, told->count);
    heartbeat->templates_told = told->templates;
    const json_t *time = json_object_get(reply, "time"); /* within seconds of ours, or it would not have been opened */
    if (json_is_integer(time))
        marks_tell_time(heartbeat->options.marks, json_integer_value(time));
    bool was_full = heartbeat->full;
    heartbeat->full = json_is_true(json_object_get(reply, "full_wanted"));
    if (heartbeat->full && !was_full)
        heartbeat_wake(heartbeat);
    if (json_is_object(page))
        take_page(heartbeat, page);
}

static bool beat(struct heartbeat *heartbeat, struct error *err)
{
    AUTO_TOLD told = {0};
    struct node_seal *seal = heartbeat->options.seal;
    AUTO_FREE uint8_t *bytes = NULL, *answer = NULL;
    size_t size = 0, answer_size = 0;
    uint64_t number = 0;
    json_t *message = make_message(heartbeat, &told);
    bool sealed = node_seal_close(seal, message, 0, &bytes, &size, &number, err);
    json_decref(message);
    if (!sealed ||
        !node_call(heartbeat->caller, heartbeat->call_url, bytes, size, CALL_TIMEOUT_MS, &answer, &answer_size, err))
        return false;
    json_t *reply = node_seal_open_reply(seal, answer, answer_size, number, clock_wall_ms(), err);
    if (!reply)
        return false;
    const json_t *refusal = json_object_get(json_object_get(reply, "error"), "message");
    if (json_is_string(refusal))
        error_set(err, ERROR_FORBIDDEN, "refused: %.200s", json_string_value(refusal));
    else
        take_reply(heartbeat, &told, reply);
    bool ok = !json_is_string(refusal);
    json_decref(reply);
    return ok;
}

/* Repeats are counted, not repeated. */
static void tell(struct heartbeat *heartbeat, bool ok, const struct error *err)
{
    if (ok && heartbeat->failures)
        log_info("node", "the negotiator answers again after %u heartbeats", heartbeat->failures);
    if (!ok && heartbeat->failures == 0)
        log_warn("node", "heartbeat: %s", err->message);
    heartbeat->failures = ok ? 0 : heartbeat->failures + 1;
}

/* False when the thread is to end. */
static bool wait_for_next(struct heartbeat *heartbeat)
{
    struct timespec until;
    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_sec += BEAT_S;
    pthread_mutex_lock(&heartbeat->mutex);
    int waited = 0;
    while (!heartbeat->stopping && !heartbeat->wanted && waited == 0)
        waited = pthread_cond_timedwait(&heartbeat->changed, &heartbeat->mutex, &until);
    heartbeat->wanted = false;
    bool go_on = !heartbeat->stopping;
    pthread_mutex_unlock(&heartbeat->mutex);
    return go_on;
}

static void *run(void *cookie)
{
    struct heartbeat *heartbeat = cookie;
    do {
        struct error err = {0};
        bool ok = beat(heartbeat, &err);
        tell(heartbeat, ok, &err);
    } while (wait_for_next(heartbeat));
    return NULL;
}

static void prepare_condition(struct heartbeat *heartbeat)
{
    pthread_condattr_t attributes;
    pthread_condattr_init(&attributes);
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    pthread_cond_init(&heartbeat->changed, &attributes);
    pthread_condattr_destroy(&attributes);
    pthread_mutex_init(&heartbeat->mutex, NULL);
}

struct heartbeat *heartbeat_start(const struct heartbeat_options *options, struct error *err)
{
    AUTO(heartbeat) *heartbeat = memory_new(sizeof *heartbeat);
    heartbeat->options = *options;
    heartbeat->node_url = memory_string(options->url);
    heartbeat->full = true;
    prepare_condition(heartbeat);
    const char *negotiator = node_seal_identity(options->seal)->negotiator_url;
    if (!negotiator[0])
        return TAKE(heartbeat);
    heartbeat->call_url = memory_printf("%s/node/v1/message", negotiator);
    heartbeat->caller = node_caller_new();
    int failed = pthread_create(&heartbeat->thread, NULL, run, heartbeat);
    if (failed) {
        error_set(err, ERROR_INTERNAL, "start the heartbeat thread: %s", strerror(failed));
        return NULL;
    }
    heartbeat->started = true;
    return TAKE(heartbeat);
}

void heartbeat_wake(struct heartbeat *heartbeat)
{
    if (!heartbeat)
        return;
    pthread_mutex_lock(&heartbeat->mutex);
    heartbeat->wanted = true;
    pthread_cond_signal(&heartbeat->changed);
    pthread_mutex_unlock(&heartbeat->mutex);
}

void heartbeat_stop(struct heartbeat *heartbeat)
{
    if (!heartbeat || !heartbeat->started)
        return;
    pthread_mutex_lock(&heartbeat->mutex);
    heartbeat->stopping = true;
    pthread_cond_signal(&heartbeat->changed);
    pthread_mutex_unlock(&heartbeat->mutex);
    pthread_join(heartbeat->thread, NULL);
    heartbeat->started = false;
}

void heartbeat_free(struct heartbeat *heartbeat)
{
    if (!heartbeat)
        return;
    heartbeat_stop(heartbeat);
    pthread_cond_destroy(&heartbeat->changed);
    pthread_mutex_destroy(&heartbeat->mutex);
    node_caller_free(heartbeat->caller);
    free(heartbeat->call_url);
    free(heartbeat->node_url);
    json_decref(heartbeat->position);
    free(heartbeat);
}
