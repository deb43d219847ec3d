/** event.h - an event: an audit record as those see it who follow what happens (protocol.md, 2 "GET /events"). Nothing
 *  new is written for it: its id is the record's number, its type comes from the record's action and outcome. What is
 *  only read is no event. */
#pragma once

#include "negotiator/leasing/principal.h"
#include "negotiator/ledger/audit.h"
#include "shared/base/clock.h"
#include "shared/capability/capability.h"

#define EVENT_TYPE_BYTES   64
#define EVENT_TYPES_MAX    16
#define EVENT_TYPES_BYTES  512 /* of a filter's text */
#define EVENT_READ_MAX     100 /* events of one reading */
#define EVENT_GAP          "events.gap"
#define EVENT_GAP_REMOVED  "removed"  /* why there is a gap: retention */
#define EVENT_GAP_RESTORED "restored" /* the ledger is an older copy than the one the reader knows */

/** The type of a record's event into `to`; false: it is none. */
bool event_type(const json_t *record, char to[static EVENT_TYPE_BYTES]) MUST_USE;

/** {"id", "type", "time", and the record's fields that are not empty}; NULL: none. The caller owns it. */
json_t *event_from_record(const json_t *record) MUST_USE;

/** Which events. Embedded; zero is every one. The texts hold no quote, backslash or control character. */
struct event_filter {
    char principal[PRINCIPAL_BYTES]; /* "": everybody's */
    char types[EVENT_TYPES_BYTES]; /* words with commas between them, each a type or one with `*` for its end; "" all */
    char thread_id[CAPABILITY_THREAD_BYTES];
    char sandbox_id[RANDOM_ID_BYTES];
    char since[CLOCK_TEXT_BYTES]; /* "": any time */
};

/** Whether it is such a list of 1..EVENT_TYPES_MAX words; ERROR_INVALID says what is allowed. */
bool event_check_types(const char *types, struct error *err) MUST_USE;

/** Whether the list has that type; "" has all. */
bool event_has_type(const char *types, const char *type) MUST_USE;

/** A reading in steps. Embedded; filter, and after or from_now, are set at first, the rest is zero. */
struct event_reading {
    struct event_filter filter;
    uint64_t after; /* those after this id; moves */
    bool from_now;  /* after the newest one there is; then false, and `after` is that */

    json_t *events; /* owned: what was found, oldest first; a gap among them is an event EVENT_GAP */
    bool at_head;   /* there was nothing after `after` */
    bool done;
    /* Private. */
    struct audit_search search;
    struct audit_filter wanted;
};
/** Frees what it owns. */
void event_reading_done(struct event_reading *reading);

/** One bounded step: looks at up to AUDIT_STEP records more. reading->done: at the head, EVENT_READ_MAX were found, or
 *  AUDIT_SCAN_MAX looked at; `after` is where the next reading goes on. Ledger thread. */
bool event_read_step(struct kv *kv, struct event_reading *reading, struct error *err) MUST_USE;

/** Makes it ready for the next reading from `after` on: what was found goes. */
void event_reading_again(struct event_reading *reading);
