/** incident_run.h - an incident on its way: what a rule finds to do, and what was made of it. Private to run.c and
 *  run_rules.c; ledger thread. */
#pragma once

#include "negotiator/leasing/changing.h"
#include "negotiator/leasing/incidents/incidents_internal.h"
#include "negotiator/leasing/revocation.h"

/* One sandbox on its way: revoked first, so that no token wakes it again, then paused; or resumed. */
struct incident_act {
    struct incident_run *run;
    char sandbox_id[RANDOM_ID_BYTES];
    bool wants_change; /* resume: it is only to be forgotten */
    bool was_paused;
    const char *result; /* static */
    char why[ERROR_MESSAGE_BYTES];
};

struct incident_run {
    struct incident_run *next; /* leasing->incident_runs */
    struct leasing *leasing;
    char id[RANDOM_ID_BYTES];
    struct caller caller; /* who opened, or closed it */
    char reason[REVOCATION_REASON_BYTES];
    /* What the last rule found to do. */
    enum { RUN_STEP, RUN_REVOKE, RUN_ACTS, RUN_OVER } todo;
    enum changing_verb verb;
    struct incident_selector selector;
    bool revokes;
    struct incident_act acts[INCIDENT_AT_ONCE];
    size_t act_count, under_way;
    bool wait;          /* before the next look: something was not ready */
    json_t *revocation; /* owned: of the selector */
};

/** For ledger_submit, of a struct incident_run: sets `todo` and what it needs, or moves the incident a step on. */
enum kv_outcome incident_find_rule(struct kv *kv, void *argument, struct error *err);
/** Likewise: writes down what came of its acts and its revocation. Sets `wait`. */
enum kv_outcome incident_note_rule(struct kv *kv, void *argument, struct error *err);
