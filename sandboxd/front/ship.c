/* ship.c - the oldest records, one call at a time. What the negotiator refuses as a message is looked for one by one,
 * and the record that it refuses goes as a short note in its place: numbers have no gaps, and one bad record must not
 * keep all later ones from the ledger. The record itself is in this program's log then. */
#include "sandboxd/front/ship.h"

#include "shared/base/clock.h"
#include "shared/base/log.h"
#include "shared/base/memory.h"
#include "shared/base/text.h"
#include "shared/node_protocol/node_call.h"

#include <pthread.h>
#include <string.h>
#include <time.h>

enum {
    CALL_TIMEOUT_MS = 10000,
    BATCH_MAX = 500,
    PAUSE_MS = 200, /* between calls with little to say: what comes meanwhile goes with the next */
    BACK_OFF_MS = 250,
    BACK_OFF_MAX_MS = 5000
};

struct ship {
    struct ship_options options;
    char *call_url;
    struct node_caller *caller; /* the thread's, as the three below */
    unsigned failures;          /* in a row */
    size_t batch_max;           /* 1 while a refused record is looked for */
    uint64_t refused_until;     /* n; up to here records go one by one */
    pthread_t thread;
    bool started;
    pthread_mutex_t mutex; /* guards the two below */
    pthread_cond_t changed;
    bool wanted, stopping;
};

/* ---- one call ---- */

static json_t *call(struct ship *ship, json_t *batch, struct error *err)
{
    AUTO_FREE uint8_t *bytes = NULL, *answer = NULL;
    size_t size = 0, answer_size = 0;
    uint64_t number = 0;
    json_t *message = json_pack("{s:s,s:I,s:O,s:O}", "call", "audit", "time", (json_int_t)clock_wall_ms(), "spool",
                                json_object_get(batch, "spool"), "records", json_object_get(batch, "records"));
    bool sent = node_seal_close(ship->options.seal, message, 0, &bytes, &size, &number, err) &&
                node_call(ship->caller, ship->call_url, bytes, size, CALL_TIMEOUT_MS, &answer, &answer_size, err);
    json_decref(message);
    return sent ? node_seal_open_reply(ship->options.seal, answer, answer_size, number, clock_wall_ms(), err) : NULL;
}

/* *refused: it was understood, and will never be taken. */
static bool send_batch(struct ship *ship, json_t *batch, bool *refused, struct error *err)
{
    *refused = false;
    json_t *reply = call(ship, batch, err);
    if (!reply)
        return false;
    const json_t *error = json_object_get(reply, "error");
    const json_t *upto = json_object_get(reply, "upto");
    const char *id = json_string_value(json_object_get(batch, "spool"));
    bool ok = !error && json_is_integer(upto) && json_integer_value(upto) >= 0 &&
              text_equal(id, json_string_value(json_object_get(reply, "spool")));
    if (ok) {
        spool_shipped(ship->options.spool, id, (uint64_t)json_integer_value(upto));
    } else if (error) {
        const char *code = json_string_value(json_object_get(error, "code"));
        const char *said = json_string_value(json_object_get(error, "message"));
        enum error_kind kind = error_kind_of_code(code ? code : "");
        *refused = kind == ERROR_INVALID || kind == ERROR_TOO_LARGE;
        error_set(err, kind, "refused: %.160s", said ? said : "");
    } else {
        error_set(err, ERROR_INTERNAL, "not a reply to `audit`");
    }
    json_decref(reply);
    return ok;
}

/* ---- a record that is refused ---- */

static uint64_t last_n(const json_t *batch)
{
    const json_t *records = json_object_get(batch, "records");
    return (uint64_t)json_integer_value(json_object_get(json_array_get(records, json_array_size(records) - 1), "n"));
}

/* Keeps what the ledger needs to count it, and what cannot be the reason. */
static json_t *note_in_place_of(const json_t *record, const struct error *why)
{
    char detail[256];
    snprintf(detail, sizeof detail, "the negotiator refused this record of the node: %.160s", why->message);
    json_t *note = json_deep_copy(record);
    const char *name;
    const json_t *value;
    json_object_foreach ((json_t *)(uintptr_t)record, name, value) {
        if (json_is_string(value))
            json_object_set_new(note, name, json_string(""));
    }
    json_object_set_new(note, "action", json_string("spool.refused"));
    json_object_set_new(note, "outcome", json_string("failed"));
    json_object_set_new(note, "status", json_integer(0));
    json_object_set_new(note, "detail", json_string(detail));
    return note;
}

static void log_refused(const json_t *record, const struct error *why)
{
    AUTO_FREE char *text = json_dumps(record, JSON_COMPACT);
    log_warn("audit", "a record is not taken by the negotiator (%s) and stays here alone: %s", why->message,
             text ? text : "");
}

/* A batch of one: the note goes in its place. */
static bool send_note(struct ship *ship, const json_t *batch, struct error *err)
{
    const json_t *record = json_array_get(json_object_get(batch, "records"), 0);
    struct error why = *err;
    json_t *instead =
        json_pack("{s:O,s:[o]}", "spool", json_object_get(batch, "spool"), "records", note_in_place_of(record, err));
    bool refused = false;
    *err = (struct error){0};
    bool ok = send_batch(ship, instead, &refused, err);
    json_decref(instead);
    if (ok)
        log_refused(record, &why);
    return ok;
}

static bool handle_refusal(struct ship *ship, const json_t *batch, struct error *err)
{
    if (json_array_size(json_object_get(batch, "records")) == 1)
        return send_note(ship, batch, err);
    ship->refused_until = last_n(batch);
    ship->batch_max = 1;
    *err = (struct error){0};
    return true;
}

/* ---- the thread ---- */

/* Repeats are counted, not repeated. */
static void tell(struct ship *ship, bool ok, const struct error *err)
{
    if (ok && ship->failures)
        log_info("audit", "records are shipped again after %u failures", ship->failures);
    if (!ok && ship->failures == 0)
        log_warn("audit", "records are not shipped: %s", err->message);
    ship->failures = ok ? 0 : ship->failures + 1;
}

enum sent { SENT_NOTHING, SENT_LITTLE, SENT_MUCH, SENT_FAILED };

static enum sent send_next(struct ship *ship)
{
    json_t *batch = spool_next(ship->options.spool, ship->batch_max);
    if (!batch)
        return SENT_NOTHING;
    size_t count = json_array_size(json_object_get(batch, "records"));
    bool one_by_one = ship->batch_max == 1;
    struct error err = {0};
    bool refused = false;
    bool ok = send_batch(ship, batch, &refused, &err) || (refused && handle_refusal(ship, batch, &err));
    if (ok && one_by_one && last_n(batch) >= ship->refused_until)
        ship->batch_max = BATCH_MAX;
    json_decref(batch);
    tell(ship, ok, &err);
    return !ok ? SENT_FAILED : one_by_one || refused || count > BATCH_MAX / 4 ? SENT_MUCH : SENT_LITTLE;
}

static unsigned wait_ms_after(const struct ship *ship, enum sent sent)
{
    if (sent != SENT_FAILED)
        return sent == SENT_LITTLE ? PAUSE_MS : 0;
    unsigned ms = BACK_OFF_MS;
    for (unsigned i = 1; i < ship->failures && ms < BACK_OFF_MAX_MS; i++)
        ms *= 2;
    return ms < BACK_OFF_MAX_MS ? ms : BACK_OFF_MAX_MS;
}

/* False when the thread is to end. */
static bool wait_for_next(struct ship *ship, enum sent sent)
{
    unsigned ms = wait_ms_after(ship, sent);
    struct timespec until;
    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_nsec += (long)(ms % 1000) * 1000000;
    until.tv_sec += ms / 1000 + until.tv_nsec / 1000000000;
    until.tv_nsec %= 1000000000;
    pthread_mutex_lock(&ship->mutex);
    int waited = 0;
    while (!ship->stopping && ms && waited == 0) /* whoever wakes us: the pause is not shortened */
        waited = pthread_cond_timedwait(&ship->changed, &ship->mutex, &until);
    while (!ship->stopping && !ship->wanted && sent == SENT_NOTHING)
        pthread_cond_wait(&ship->changed, &ship->mutex);
    ship->wanted = false;
    bool go_on = !ship->stopping;
    pthread_mutex_unlock(&ship->mutex);
    return go_on;
}

static void *run(void *cookie)
{
    struct ship *ship = cookie;
    while (wait_for_next(ship, send_next(ship))) {
    }
    return NULL;
}

static void prepare_condition(struct ship *ship)
{
    pthread_condattr_t attributes;
    pthread_condattr_init(&attributes);
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    pthread_cond_init(&ship->changed, &attributes);
    pthread_condattr_destroy(&attributes);
    pthread_mutex_init(&ship->mutex, NULL);
}

struct ship *ship_start(const struct ship_options *options, struct error *err)
{
    AUTO(ship) *ship = memory_new(sizeof *ship);
    ship->options = *options;
    ship->batch_max = BATCH_MAX;
    prepare_condition(ship);
    const char *negotiator = node_seal_identity(options->seal)->negotiator_url;
    if (!negotiator[0])
        return TAKE(ship);
    ship->call_url = memory_printf("%s/node/v1/message", negotiator);
    ship->caller = node_caller_new();
    int failed = pthread_create(&ship->thread, NULL, run, ship);
    if (failed) {
        error_set(err, ERROR_INTERNAL, "start the thread that ships the audit: %s", strerror(failed));
        return NULL;
    }
    ship->started = true;
    return TAKE(ship);
}

void ship_wake(struct ship *ship)
{
    if (!ship)
        return;
    pthread_mutex_lock(&ship->mutex);
    ship->wanted = true;
    pthread_cond_signal(&ship->changed);
    pthread_mutex_unlock(&ship->mutex);
}

void ship_stopping(struct ship *ship)
{
    if (!ship)
        return;
    pthread_mutex_lock(&ship->mutex);
    ship->stopping = true;
    pthread_cond_signal(&ship->changed);
    pthread_mutex_unlock(&ship->mutex);
}

void ship_stop(struct ship *ship)
{
    if (!ship)
        return;
    ship_stopping(ship);
    if (ship->started)
        pthread_join(ship->thread, NULL);
    ship->started = false;
}

void ship_free(struct ship *ship)
{
    if (!ship)
        return;
    ship_stop(ship);
    pthread_cond_destroy(&ship->changed);
    pthread_mutex_destroy(&ship->mutex);
    node_caller_free(ship->caller);
    free(ship->call_url);
    free(ship);
}
