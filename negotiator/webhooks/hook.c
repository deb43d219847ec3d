/* hook.c - one webhook: its row, what is to be sent, one event at a time. On the courier's thread. */
#include "negotiator/webhooks/courier_internal.h"

#include "shared/base/log.h"
#include "shared/base/text.h"

#include <stdio.h>
#include <string.h>

static const int64_t AGAIN_MS = 5000;       /* after the store failed */
static const int64_t READ_EVERY_MS = 50;    /* many records in a moment are one reading */
static const uint64_t UNWRITTEN_MAX = 5000; /* records that a start may look at again for nothing */

/* --- on the ledger thread --- */

static void was_done(void *argument, const struct error *err)
{
    struct hook *hook = argument;
    hook->err = *err;
    courier_post(hook->courier, (struct letter){.hook = hook});
}

static enum kv_outcome note_rule(struct kv *kv, void *argument, struct error *err)
{
    struct hook *hook = argument;
    return webhook_note_rule(kv, &hook->note, err);
}

static enum kv_outcome read_rule(struct kv *kv, void *argument, struct error *err)
{
    struct hook *hook = argument;
    return event_read_step(kv, &hook->reading, err) ? KV_APPLIED : KV_FAILED;
}

static bool is_over(const void *argument)
{
    const struct hook *hook = argument;
    return hook->reading.done || atomic_load(&hook->courier->stopping);
}

/* --- its steps --- */

static void note(struct hook *hook)
{
    hook->busy = HOOK_NOTES;
    hook->note.leasing = hook->courier->options.leasing;
    hook->note.give_up_s = hook->courier->options.give_up_s;
    memcpy(hook->note.id, hook->id, sizeof hook->id);
    ledger_submit(hook->courier->options.ledger, note_rule, was_done, hook);
}

static void begin_note(struct hook *hook)
{
    webhook_done(&hook->note.webhook);
    hook->note = (struct webhook_note){.seq = 0};
}

static void load(struct hook *hook)
{
    begin_note(hook);
    hook->is_stale = false;
    note(hook);
}

static void read_events(struct hook *hook, int64_t now)
{
    struct event_filter *filter = &hook->reading.filter;
    event_reading_again(&hook->reading);
    hook->at = 0;
    *filter = (struct event_filter){.principal = ""};
    bool fits = text_copy(filter->types, sizeof filter->types, hook->row.types) &&
                (hook->row.all || text_copy(filter->principal, sizeof filter->principal, hook->row.principal));
    if (!fits)
        return; /* cannot be: they are of one size */
    hook->busy = HOOK_READS;
    hook->is_behind = false;
    hook->read_ms = now;
    ledger_submit_long(hook->courier->options.ledger, read_rule, is_over, was_done, hook);
}

static void disable(struct hook *hook, const char *why)
{
    begin_note(hook);
    hook->note.disable = true;
    snprintf(hook->note.error, sizeof hook->note.error, "%s", why);
    note(hook);
}

static bool may(const struct hook *hook, bool as_admin)
{
    const struct courier_options *options = &hook->courier->options;
    return options->may == NULL || options->may(options->context, hook->row.principal, as_admin);
}

static void send_event(struct hook *hook, const json_t *event)
{
    struct courier *courier = hook->courier;
    struct error err = {0};
    struct webhook row = hook->row;
    row.is_admins = row.is_admins && may(hook, true); /* who is no admin any more reaches what a user may */
    if (!may(hook, row.all)) {
        disable(hook, "its owner may not get these events any more");
    } else if (!delivery_start(&hook->delivery, courier->options.leasing, &row, event, courier->options.hosts,
                               &err) ||
               curl_multi_add_handle(courier->multi, hook->delivery.curl) != CURLM_OK) {
        delivery_done(&hook->delivery);
        hook->due_ms = clock_wall_ms() + AGAIN_MS;
    } else {
        hook->busy = HOOK_SENDS;
    }
}

/* Nothing to send up to there: written now and then, so that a start need not look at all of it again. */
static bool note_progress(struct hook *hook)
{
    if (hook->reading.after < hook->row.cursor + UNWRITTEN_MAX)
        return false;
    begin_note(hook);
    hook->note.cursor = hook->reading.after;
    note(hook);
    return true;
}

bool hook_go(struct hook *hook)
{
    int64_t now = clock_wall_ms();
    if (hook->busy != HOOK_FREE || now < hook->due_ms)
        return false;
    if (hook->is_stale) {
        load(hook);
        return false;
    }
    if (hook->row.revision == 0)
        return true;
    const json_t *event = json_array_get(hook->reading.events, hook->at);
    if (!hook->row.enabled)
        return false;
    if (event) {
        if (now < hook->row.next_at)
            hook->due_ms = hook->row.next_at;
        else
            send_event(hook, event);
    } else if (hook->is_behind) {
        if (now < hook->read_ms + READ_EVERY_MS)
            hook->due_ms = hook->read_ms + READ_EVERY_MS;
        else
            read_events(hook, now);
    } else if (note_progress(hook)) {
        hook->is_behind = true; /* it is looked at again when that is written */
    }
    return false;
}

/* --- what came of them --- */

/* From the cursor on again: the row says what is wanted now. */
static void start_over(struct hook *hook)
{
    event_reading_again(&hook->reading);
    hook->reading.after = hook->row.cursor;
    hook->at = 0;
    hook->is_behind = true;
}

static void noted(struct hook *hook)
{
    bool was_sent = hook->note.seq > 0 && hook->note.delivered;
    bool is_load = hook->note.seq == 0 && hook->note.cursor == 0;
    webhook_done(&hook->row);
    hook->row = hook->note.webhook;
    hook->note.webhook = (struct webhook){.revision = 0};
    hook->due_ms = 0;
    if (is_load || (hook->note.seq > 0 && !hook->row.enabled))
        start_over(hook);
    else if (was_sent)
        hook->at++;
}

void hook_answered(struct hook *hook)
{
    enum hook_busy was = hook->busy;
    hook->busy = HOOK_FREE;
    if (hook->err.kind != ERROR_NONE) {
        log_error("webhooks", "%s waits: %s", hook->id, hook->err.message);
        hook->is_stale = true; /* then from the row's cursor on */
        hook->due_ms = clock_wall_ms() + AGAIN_MS;
    } else if (was == HOOK_NOTES) {
        noted(hook);
    } else if (!hook->reading.at_head) {
        hook->is_behind = true;
    }
}

void hook_sent(struct hook *hook, CURLcode code)
{
    const json_t *event = json_array_get(hook->reading.events, hook->at);
    begin_note(hook);
    delivery_finish(&hook->delivery, code, &hook->note);
    hook->note.seq = (uint64_t)json_integer_value(json_object_get(event, "id"));
    const char *type = json_string_value(json_object_get(event, "type"));
    if (!text_copy(hook->note.type, sizeof hook->note.type, type))
        hook->note.type[0] = '\0';
    bool is_last = hook->at + 1 == json_array_size(hook->reading.events);
    if (hook->note.delivered)
        hook->note.cursor = is_last ? hook->reading.after : hook->note.seq;
    note(hook);
}

void hook_free(struct hook *hook)
{
    delivery_done(&hook->delivery);
    event_reading_done(&hook->reading);
    webhook_done(&hook->row);
    webhook_done(&hook->note.webhook);
    free(hook);
}
