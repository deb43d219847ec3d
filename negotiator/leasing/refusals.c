/* refusals.c - records of what dialects refuse before any rule runs. */
#include "negotiator/leasing/leasing_internal.h"
#include "shared/base/memory.h"
#include "shared/base/text.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const int64_t MINUTE_MS = 60000;

/* --- of a known principal --- */

struct recording {
    struct leasing *leasing;
    struct caller caller;
    char *action, *thread_id, *sandbox_id; /* owned */
    struct error err;
};

static enum kv_outcome record_rule(struct kv *kv, void *argument, struct error *err)
{
    const struct recording *recording = argument;
    AUTO(kv_change) *change = kv_change_new();
    struct work work = work_begin(recording->leasing, kv, change, err);
    struct audit_record record = {.action = recording->action,
                                  .outcome = "refused",
                                  .status = error_http_status(recording->err.kind),
                                  .thread_id = recording->thread_id,
                                  .sandbox_id = recording->sandbox_id,
                                  .detail = recording->err.message};
    return store_audit(&work, &recording->caller, &record) ? store_apply(&work) : KV_FAILED;
}

static void record_done(void *argument, const struct error *err)
{
    struct recording *recording = argument;
    (void)err; /* a full store: the caller was refused all the same */
    free(recording->action);
    free(recording->thread_id);
    free(recording->sandbox_id);
    free(recording);
}

void leasing_refused(struct leasing *leasing, const struct leasing_refusal *refusal)
{
    struct recording *recording = memory_new(sizeof *recording);
    *recording = (struct recording){.leasing = leasing, .caller = *refusal->caller, .err = *refusal->err};
    recording->action = memory_string(refusal->action);
    recording->thread_id = memory_string(refusal->thread_id ? refusal->thread_id : "");
    recording->sandbox_id = memory_string(refusal->sandbox_id ? refusal->sandbox_id : "");
    ledger_submit(leasing->options.ledger, record_rule, record_done, recording);
}

/* --- of strangers: sums --- */

struct stranger {
    char remote[64]; /* "" all beyond the table */
    uint64_t count;
};

struct strangers {
    pthread_mutex_t mutex;                           /* guards all below */
    int64_t minute;                                  /* since 1970, of the sums */
    struct stranger rows[LEASING_STRANGERS_MAX + 1]; /* the last one: all others */
    size_t count;
};

struct summing {
    struct leasing *leasing;
    struct strangers sums; /* its mutex is not used */
};

struct strangers *strangers_new(void)
{
    struct strangers *strangers = memory_new(sizeof *strangers);
    pthread_mutex_init(&strangers->mutex, NULL);
    return strangers;
}

void strangers_free(struct strangers *strangers)
{
    pthread_mutex_destroy(&strangers->mutex);
    free(strangers);
}

static enum kv_outcome sums_rule(struct kv *kv, void *argument, struct error *err)
{
    const struct summing *summing = argument;
    AUTO(kv_change) *change = kv_change_new();
    struct work work = work_begin(summing->leasing, kv, change, err);
    for (size_t i = 0; i < summing->sums.count; i++) {
        const struct stranger *row = &summing->sums.rows[i];
        char detail[128];
        snprintf(detail, sizeof detail, "%llu requests within a minute without a valid API key%s",
                 (unsigned long long)row->count, row->remote[0] ? "" : ", from other addresses");
        struct audit_record record = {.action = "authenticate",
                                      .outcome = "refused",
                                      .status = error_http_status(ERROR_UNAUTHENTICATED),
                                      .remote = row->remote,
                                      .detail = detail};
        if (!store_audit(&work, NULL, &record))
            return KV_FAILED;
    }
    return store_apply(&work);
}

static void sums_done(void *argument, const struct error *err)
{
    (void)err;
    free(argument);
}

/* Locked. NULL when there is nothing to record. */
static struct summing *take_sums(struct leasing *leasing, bool now)
{
    struct strangers *strangers = leasing->strangers;
    if (strangers->count == 0 || (!now && strangers->minute == leasing->options.wall_ms() / MINUTE_MS))
        return NULL;
    struct summing *summing = memory_new(sizeof *summing);
    summing->leasing = leasing;
    memcpy(summing->sums.rows, strangers->rows, sizeof strangers->rows);
    summing->sums.count = strangers->count;
    strangers->count = 0;
    return summing;
}

static void submit_sums(struct summing *summing)
{
    if (summing)
        ledger_submit(summing->leasing->options.ledger, sums_rule, sums_done, summing);
}

void strangers_flush(struct leasing *leasing, bool now)
{
    pthread_mutex_lock(&leasing->strangers->mutex);
    struct summing *summing = take_sums(leasing, now);
    pthread_mutex_unlock(&leasing->strangers->mutex);
    submit_sums(summing);
}

static void on_minute(void *argument, int64_t now UNUSED)
{
    strangers_flush(argument, false);
}

static struct stranger *row_of(struct strangers *strangers, const char *remote)
{
    for (size_t i = 0; i < strangers->count; i++) {
        if (strcmp(strangers->rows[i].remote, remote) == 0 || i == LEASING_STRANGERS_MAX)
            return &strangers->rows[i];
    }
    struct stranger *row = &strangers->rows[strangers->count++];
    *row = (struct stranger){.count = 0};
    if (strangers->count <= LEASING_STRANGERS_MAX && !text_copy(row->remote, sizeof row->remote, remote))
        row->remote[0] = '\0';
    return row;
}

void leasing_stranger(struct leasing *leasing, const char *remote)
{
    struct strangers *strangers = leasing->strangers;
    pthread_mutex_lock(&strangers->mutex);
    struct summing *summing = take_sums(leasing, false);
    bool is_first = strangers->count == 0;
    if (is_first)
        strangers->minute = leasing->options.wall_ms() / MINUTE_MS;
    int64_t over = (strangers->minute + 1) * MINUTE_MS;
    row_of(strangers, remote)->count++;
    pthread_mutex_unlock(&strangers->mutex);
    submit_sums(summing);
    if (is_first)
        ledger_alarm_move(leasing->options.ledger, over, on_minute, leasing);
}
