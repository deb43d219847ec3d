/* event.c - audit records as events. */
#include "negotiator/leasing/events/event.h"

#include "shared/base/text.h"

#include <string.h>

struct naming {
    const char *action, *type; /* type NULL: no event */
};

/* Whose name differs. An attached thread is told from a new sandbox by the status; "finished" is one that a restarted
 * negotiator has made. */
static const struct naming DONE[] = {
    {"negotiate", "token.issued"},
    {"refresh", "token.refreshed"},
    {"revoke", "token.revoked"},
    {"release", "lease.ended"},
    {"lease.end", "lease.ended"},
    {"sandbox.delete", "sandbox.deleted"},
    {"sandbox.end", "sandbox.ended"},
    {"sandbox.finished", "sandbox.created"},
    {"sandbox.pause", "sandbox.paused"},
    {"sandbox.resume", "sandbox.resumed"},
    {"sandbox.renew", "sandbox.renewed"},
    {"sandbox.update", "sandbox.updated"},
    {"snapshot.create", "snapshot.created"},
    {"snapshot.delete", "snapshot.deleted"},
    {"volume.delete", "volume.deleted"},
    {"exec", "exec.started"},
    {"terminal", "exec.started"},
    {"exec.end", "exec.ended"},
    {"code.start", "code.started"},
    {"code.end", "code.ended"},
    {"write", "file.changed"},
    {"delete", "file.changed"},
    {"move", "file.changed"},
    {"copy", "file.changed"},
    {"mkdir", "file.changed"},
    {"chmod", "file.changed"},
    {"edit", "file.changed"},
    {"archive.put", "file.changed"},
    {"share", "share.created"},
    {"share.end", "share.ended"},
    {"webhook.create", "webhook.created"},
    {"webhook.update", "webhook.updated"},
    {"webhook.delete", "webhook.deleted"},
    {"webhook.rotate", "webhook.rotated"},
    {"webhook.disable", "webhook.disabled"},
};

/* Actions that begin so are types as they are. */
static const char *const PLAIN[] = {"sandbox.",  "lease.", "token.", "share.",    "key.",    "policy.",
                                    "incident.", "node.",  "audit.", "snapshot.", "volume.", "webhook."};

static const char *text_of(const json_t *record, const char *name)
{
    const char *text = json_string_value(json_object_get(record, name));
    return text ? text : "";
}

static const char *done_type(const char *action, json_int_t status)
{
    if (strcmp(action, "negotiate") == 0 && status == 201)
        return "sandbox.created";
    for (size_t i = 0; i < sizeof DONE / sizeof *DONE; i++) {
        if (strcmp(action, DONE[i].action) == 0)
            return DONE[i].type;
    }
    for (size_t i = 0; i < sizeof PLAIN / sizeof *PLAIN; i++) {
        if (text_starts_with(action, PLAIN[i]))
            return action;
    }
    return NULL;
}

/* What a node shipped is its word: no other letters get into a stream's lines. */
static bool is_type(const char *text, size_t length)
{
    return length > 0 && length < EVENT_TYPE_BYTES && strspn(text, "abcdefghijklmnopqrstuvwxyz._") >= length;
}

bool event_type(const json_t *record, char to[static EVENT_TYPE_BYTES])
{
    const char *action = text_of(record, "action"), *outcome = text_of(record, "outcome");
    json_int_t status = json_integer_value(json_object_get(record, "status"));
    const char *type = done_type(action, status);
    if (strcmp(outcome, "refused") == 0)
        type = strcmp(action, "refresh") == 0 && status == 409 ? "token.reused"
               : strcmp(action, "authenticate") == 0           ? "authentication.refused"
                                                               : "request.refused";
    return type && is_type(type, strlen(type)) && text_copy(to, EVENT_TYPE_BYTES, type);
}

json_t *event_from_record(const json_t *record)
{
    static const char *const TOLD[] = {"time",  "action", "outcome",   "plane",      "node",  "principal",
                                       "role",  "actor",  "thread_id", "sandbox_id", "lease", "jti",
                                       "links", "scope",  "remote",    "request_id", "detail"};
    char type[EVENT_TYPE_BYTES];
    if (!event_type(record, type))
        return NULL;
    json_t *event = json_pack("{s:O?, s:s}", "id", json_object_get(record, "seq"), "type", type);
    for (size_t i = 0; i < sizeof TOLD / sizeof *TOLD; i++) {
        json_t *value = json_object_get(record, TOLD[i]);
        if (json_string_length(value) > 0)
            json_object_set(event, TOLD[i], value);
    }
    if (json_integer_value(json_object_get(record, "status")) > 0)
        json_object_set(event, "status", json_object_get(record, "status"));
    return event;
}

/* --- lists of types --- */

/* One of the list's words, and where the next begins. */
static const char *next_word(const char *at, size_t *length)
{
    *length = strcspn(at, ",");
    return at + *length + (at[*length] == ',');
}

bool event_check_types(const char *types, struct error *err)
{
    size_t count = 0, length = 0;
    bool good = types[0] != '\0' && strlen(types) < EVENT_TYPES_BYTES && types[strlen(types) - 1] != ',';
    for (const char *at = types, *next; good && *at; at = next) {
        next = next_word(at, &length);
        bool is_open = length > 1 && at[length - 1] == '*';
        good = is_type(at, length - is_open) && ++count <= EVENT_TYPES_MAX;
    }
    return good || error_set(err, ERROR_INVALID,
                             "types must be 1 to %d of them with commas between, like sandbox.created,exec.*; each of "
                             "a-z._ and perhaps a * at its end",
                             EVENT_TYPES_MAX);
}

bool event_has_type(const char *types, const char *type)
{
    size_t length = 0;
    bool has = types[0] == '\0';
    for (const char *at = types, *next; !has && *at; at = next) {
        next = next_word(at, &length);
        bool is_open = length > 0 && at[length - 1] == '*';
        has = is_open ? strncmp(type, at, length - 1) == 0 : strlen(type) == length && memcmp(type, at, length) == 0;
    }
    return has;
}

/* --- reading --- */

void event_reading_again(struct event_reading *reading)
{
    audit_search_done(&reading->search);
    reading->search = (struct audit_search){.limit = 0};
    json_decref(TAKE(reading->events));
    reading->done = reading->at_head = false;
}

void event_reading_done(struct event_reading *reading)
{
    event_reading_again(reading);
}

static void add_gap(struct event_reading *reading, uint64_t until, const char *why)
{
    char now[CLOCK_TEXT_BYTES];
    clock_format(now, clock_wall_ms());
    json_array_append_new(reading->events,
                          json_pack("{s:I, s:s, s:s, s:I, s:s}", "id", (json_int_t)until, "type", EVENT_GAP, "time",
                                    now, "after", (json_int_t)reading->after, "reason", why));
    reading->after = until;
}

static const char *wanted_or_any(const char *text)
{
    return text[0] ? text : NULL;
}

/* Where it begins: what is not there any more is said, never left out in silence. */
static bool begin(struct kv *kv, struct event_reading *reading, struct error *err)
{
    const struct event_filter *filter = &reading->filter;
    struct audit_position head;
    uint64_t first = 0;
    if (!audit_head(kv, &head.seq, head.hash, err))
        return false;
    reading->events = json_array();
    if (reading->from_now)
        reading->after = head.seq;
    reading->from_now = false;
    if (!audit_first(kv, reading->after, &first, err))
        return false;
    if (reading->after > head.seq)
        add_gap(reading, head.seq, EVENT_GAP_RESTORED);
    else if (first == 0 && reading->after < head.seq)
        add_gap(reading, head.seq, EVENT_GAP_REMOVED);
    else if (first > reading->after + 1)
        add_gap(reading, first - 1, EVENT_GAP_REMOVED);
    reading->search = (struct audit_search){.filter = {.principal = wanted_or_any(filter->principal),
                                                       .thread_id = wanted_or_any(filter->thread_id),
                                                       .sandbox_id = wanted_or_any(filter->sandbox_id),
                                                       .since = wanted_or_any(filter->since)},
                                            .after = reading->after,
                                            .limit = EVENT_READ_MAX};
    return true;
}

static void take(struct event_reading *reading)
{
    size_t index;
    const json_t *record;
    json_array_foreach (reading->search.records, index, record) {
        json_t *event = event_from_record(record);
        if (event && event_has_type(reading->filter.types, text_of(event, "type")))
            json_array_append(reading->events, event);
        json_decref(event);
    }
    reading->after = reading->search.after;
    reading->at_head = reading->search.next == 0;
    reading->done = true;
}

bool event_read_step(struct kv *kv, struct event_reading *reading, struct error *err)
{
    if (reading->events == NULL && !begin(kv, reading, err))
        return false;
    if (!audit_search_step(kv, &reading->search, err))
        return false;
    if (reading->search.done)
        take(reading);
    return true;
}
