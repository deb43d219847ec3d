/* webhook_row.c - a webhook's row, its secrets, and what an attempt changes of it. */
#include "negotiator/leasing/events/webhook_row.h"

#include "shared/base/memory.h"
#include "shared/base/text.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

void webhook_done(struct webhook *webhook)
{
    json_decref(TAKE(webhook->last));
}

struct webhook webhook_copy(const struct webhook *webhook)
{
    struct webhook copy = *webhook;
    copy.last = json_deep_copy(webhook->last);
    return copy;
}

void webhook_key(const struct leasing *leasing, const char *id, uint32_t number, struct key *key)
{
    char text[16];
    snprintf(text, sizeof text, "%" PRIu32, number);
    key_derive(key, &leasing->master, "parley/webhook/1", id, text);
}

void webhook_secret(const struct leasing *leasing, const char *id, uint32_t number,
                    char to[static WEBHOOK_SECRET_BYTES])
{
    AUTO_KEY key;
    webhook_key(leasing, id, number, &key);
    memcpy(to, "whsec_", 6);
    text_base64_encode(to + 6, key.bytes, sizeof key.bytes);
}

/* --- the row --- */

static bool parse(struct webhook *webhook, json_t *row)
{
    const char *principal, *url, *types, *reason;
    int all, is_admins, enabled;
    json_int_t secret, old_until, created_at, cursor, failing_since, attempts, next_at;
    json_t *last;
    if (json_unpack(row, "{s:s, s:s, s:s, s:b, s:b, s:b, s:s, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:O}", "principal",
                    &principal, "url", &url, "types", &types, "all", &all, "is_admins", &is_admins, "enabled", &enabled,
                    "reason", &reason, "secret", &secret, "old_until", &old_until, "created_at", &created_at, "cursor",
                    &cursor, "failing_since", &failing_since, "attempts", &attempts, "next_at", &next_at, "last",
                    &last) != 0)
        return false;
    webhook->last = last;
    webhook->all = all;
    webhook->is_admins = is_admins;
    webhook->enabled = enabled;
    webhook->secret = (uint32_t)secret;
    webhook->old_until = old_until;
    webhook->created_at = created_at;
    webhook->cursor = (uint64_t)cursor;
    webhook->failing_since = failing_since;
    webhook->attempts = (uint32_t)attempts;
    webhook->next_at = next_at;
    return secret > 0 && cursor >= 0 && json_is_array(last) &&
           text_copy(webhook->principal, sizeof webhook->principal, principal) &&
           text_copy(webhook->url, sizeof webhook->url, url) &&
           text_copy(webhook->types, sizeof webhook->types, types) &&
           text_copy(webhook->reason, sizeof webhook->reason, reason);
}

bool webhook_parse(struct webhook *webhook, const char *id, const struct kv_value *value, struct error *err)
{
    struct webhook found = {.revision = value->revision};
    json_t *row = json_loadb(value->data, value->size, JSON_REJECT_DUPLICATES, NULL);
    bool whole = row && random_is_id(id, "whk") && text_copy(found.id, sizeof found.id, id) && parse(&found, row);
    json_decref(row);
    if (!whole) {
        webhook_done(&found);
        return error_set(err, ERROR_INTERNAL, "the row of a webhook in the store is damaged");
    }
    webhook_done(webhook);
    *webhook = found;
    return true;
}

bool webhook_get(struct kv *kv, const char *id, struct webhook *webhook, struct error *err)
{
    AUTO_KV_VALUE value = {0};
    if (!kv_get(kv, store_key("webhook", id, NULL).text, &value, err))
        return false;
    if (value.data)
        return webhook_parse(webhook, id, &value, err);
    webhook_done(webhook);
    *webhook = (struct webhook){.revision = 0};
    return true;
}

void webhook_put(struct work *work, const struct webhook *webhook)
{
    struct store_row key = store_key("webhook", webhook->id, NULL);
    json_t *row = json_pack(
        "{s:s, s:s, s:s, s:b, s:b, s:b, s:s, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:O}", "principal", webhook->principal,
        "url", webhook->url, "types", webhook->types, "all", webhook->all, "is_admins", webhook->is_admins, "enabled",
        webhook->enabled, "reason", webhook->reason, "secret", (json_int_t)webhook->secret, "old_until",
        (json_int_t)webhook->old_until, "created_at", (json_int_t)webhook->created_at, "cursor",
        (json_int_t)webhook->cursor, "failing_since", (json_int_t)webhook->failing_since, "attempts",
        (json_int_t)webhook->attempts, "next_at", (json_int_t)webhook->next_at, "last", webhook->last);
    AUTO_FREE char *text = row ? json_dumps(row, JSON_COMPACT) : NULL;
    json_decref(row);
    kv_change_expect(work->change, key.text, webhook->revision);
    kv_change_put(work->change, key.text, text ? text : "", text ? strlen(text) : 0);
}

static bool note_id(void *cookie, const char *key, const struct kv_value *value UNUSED)
{
    json_array_append_new(cookie, json_string(strrchr(key, '/') + 1));
    return true;
}

json_t *webhook_list_ids(struct kv *kv, struct error *err)
{
    json_t *ids = json_array();
    if (kv_range(kv, "webhook/", "webhook0", WEBHOOKS_ALL_MAX, note_id, ids, err))
        return ids;
    json_decref(ids);
    return NULL;
}

/* --- attempts --- */

int64_t webhook_backoff_ms(uint32_t attempts)
{
    uint32_t whole = attempts > 12 ? WEBHOOK_BACKOFF_MAX_MS : 1000U << (attempts > 0 ? attempts - 1 : 0);
    if (whole > WEBHOOK_BACKOFF_MAX_MS)
        whole = WEBHOOK_BACKOFF_MAX_MS;
    return whole / 2 + random_below(whole / 2 + 1);
}

static void remember(struct webhook *webhook, const struct webhook_note *note)
{
    char at[CLOCK_TEXT_BYTES];
    clock_format(at, note->at_ms);
    json_t *attempt = json_pack("{s:I, s:s, s:s, s:b, s:I}", "event", (json_int_t)note->seq, "type", note->type, "at",
                                at, "delivered", note->delivered, "took_ms", (json_int_t)note->took_ms);
    if (note->status > 0)
        json_object_set_new(attempt, "status", json_integer(note->status));
    if (note->error[0])
        json_object_set_new(attempt, "error", json_string(note->error));
    json_array_append_new(webhook->last, attempt);
    while (json_array_size(webhook->last) > WEBHOOK_ATTEMPTS_KEPT)
        json_array_remove(webhook->last, 0);
}

static bool disable(struct work *work, struct webhook *webhook, const char *why)
{
    webhook->enabled = false;
    if (!text_copy(webhook->reason, sizeof webhook->reason, why))
        webhook->reason[0] = '\0';
    char detail[RANDOM_ID_BYTES + WEBHOOK_REASON_BYTES + 2];
    snprintf(detail, sizeof detail, "%s: %s", webhook->id, webhook->reason);
    struct audit_record record = {
        .action = "webhook.disable", .outcome = "ok", .principal = webhook->principal, .detail = detail};
    return store_audit(work, NULL, &record);
}

/* It did not get there: when it is tried again, or that it is not. */
static bool fail(struct work *work, struct webhook *webhook, const struct webhook_note *note)
{
    if (webhook->failing_since == 0)
        webhook->failing_since = note->at_ms;
    webhook->attempts++;
    int64_t wait = webhook_backoff_ms(webhook->attempts), asked = note->wait_s * 1000;
    webhook->next_at =
        work->now + (asked > wait ? asked < WEBHOOK_BACKOFF_MAX_MS ? asked : WEBHOOK_BACKOFF_MAX_MS : wait);
    bool is_over = work->now - webhook->failing_since >= note->give_up_s * 1000;
    return !(is_over || note->disable) ||
           disable(work, webhook, note->disable ? note->error : "its receiver has failed for too long");
}

static bool change(struct work *work, struct webhook *webhook, const struct webhook_note *note)
{
    bool is_news = note->cursor > webhook->cursor;
    if (note->seq > 0)
        remember(webhook, note);
    if (note->cursor > webhook->cursor)
        webhook->cursor = note->cursor;
    if (note->seq > 0 && note->delivered) {
        webhook->failing_since = webhook->next_at = 0;
        webhook->attempts = 0;
    } else if (note->seq > 0 && !fail(work, webhook, note)) {
        return false;
    } else if (note->seq == 0 && note->disable && !disable(work, webhook, note->error)) {
        return false;
    }
    if (is_news || note->seq > 0 || note->disable)
        webhook_put(work, webhook);
    return true;
}

enum kv_outcome webhook_note_rule(struct kv *kv, struct webhook_note *note, struct error *err)
{
    AUTO(kv_change) *changed = kv_change_new();
    struct work work = work_begin(note->leasing, kv, changed, err);
    if (!webhook_get(kv, note->id, &note->webhook, err))
        return KV_FAILED;
    if (note->webhook.revision == 0)
        return KV_APPLIED;
    return change(&work, &note->webhook, note) ? store_apply(&work) : KV_FAILED;
}
