/** incidents_internal.h - what the files of this folder share. Ledger thread. */
#pragma once

#include "negotiator/leasing/incidents/freeze.h"
#include "negotiator/leasing/incidents/incident.h"
#include "negotiator/leasing/leasing_internal.h"

#define INCIDENT_AT_ONCE 32 /* sandboxes that are paused or resumed at the same time */

/* A row as it was read. */
struct incident {
    char id[RANDOM_ID_BYTES];
    json_t *row; /* owned; NULL there is none */
    uint64_t revision;
};
void incident_done(struct incident *incident);
#define AUTO_INCIDENT __attribute__((cleanup(incident_done))) struct incident

void incident_json_done(json_t **json);
#define AUTO_INCIDENT_JSON __attribute__((cleanup(incident_json_done))) json_t

/* --- incident_row.c --- */

/** False (err set): the store failed, or the row is damaged. */
bool incident_get(struct work *work, const char *id, struct incident *incident) MUST_USE;
/** Adds it to the change, with the expectation of its revision. */
void incident_put(struct work *work, const struct incident *incident);
/** All rows, at most INCIDENT_LIST_MAX; the caller owns the array; NULL with err. */
json_t *incident_all(struct work *work) MUST_USE;
/** A suspect's row; *revision 0 and NULL: there is none. False: the store failed. */
bool incident_get_suspect(struct work *work, const char *id, const char *sandbox_id, json_t **row,
                          uint64_t *revision) MUST_USE;
/** Adds it to the change. */
void incident_put_suspect(struct work *work, const char *id, const char *sandbox_id, const json_t *row);
/** Up to `limit` suspects behind `after` ("" the first), an array; NULL with err. *more: there are others. */
json_t *incident_suspects(struct work *work, const char *id, const char *after, size_t limit, bool *more) MUST_USE;
/** The record of what was done to it by `caller`, or refused (refusal not NULL and set). */
bool incident_audit(struct work *work, const struct caller *caller, const char *action, const char *sandbox_id,
                    const struct error *refusal, const char *detail) MUST_USE;
/** mark_kind_name, and "key". */
const char *incident_kind_name(enum mark_kind kind) MUST_USE;
/** A member that is a text; "" when it is not. */
const char *incident_text(const json_t *row, const char *name) MUST_USE;
/** Whether that member is this text. */
bool incident_is(const json_t *row, const char *name, const char *value) MUST_USE;

/* --- opening.c, closing.c --- */

/** False: question->refusal says no, or (when it is empty) the store failed. The change has what was decided. */
bool incident_open(struct work *work, struct incident_question *question) MUST_USE;
bool incident_close(struct work *work, struct incident_question *question) MUST_USE;

/* --- gathering.c --- */

/** One step: notes what of the next 200 sandboxes, then families, matches. Moves row.cursor, and row.step when all were
 *  looked at. */
bool incident_gather(struct work *work, struct incident *incident) MUST_USE;

/* --- run.c --- */

/** Goes through the steps of the incident until it has nothing more to do. */
void incident_go(struct leasing *leasing, const char *id);
