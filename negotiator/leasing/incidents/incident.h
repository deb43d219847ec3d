/** incident.h - an incident: what is done at once about somebody's tokens and sandboxes, and kept together. Opening one
 *  freezes (freeze.h), notes what its selectors match as it is then, revokes, and pauses; closing it lifts the freeze.
 *
 *    incident/<id>               {"id", "state", "step", "reason", "freeze", "frozen", "revoke", "pause", "selectors",
 *                                "suspects", "opened_at", "opened_by", ...}; 90 days longer than it is open
 *    suspect/<id>/<sandbox id>   {"sandbox", "leases", "why", "pause", "resume"?}: a sandbox that it is about, as it
 *                                was before anything was revoked; goes with its incident
 *
 *  What it does goes in steps, each durable (`gather`, `revoke`, `pause`, `done`; then `resume`, `closed`): a start
 * after a kill goes on where it stopped. To revoke or to pause something once more does no harm. */
#pragma once

#include "negotiator/leasing/leasing.h"
#include "negotiator/leasing/store.h"
#include "shared/capability/mark.h"

#define INCIDENT_REASON_BYTES   200 /* with "incident inc_...: " it is a revocation's reason */
#define INCIDENT_SELECTORS_MAX  32
#define INCIDENT_OPEN_MAX       16
#define INCIDENT_LIST_MAX       500 /* that are kept */
#define INCIDENT_SUSPECTS_MAX   200 /* of one page */
#define INCIDENT_POSITION_BYTES 512 /* where a node's answer goes on */

enum incident_freeze { INCIDENT_FREEZE_NONE, INCIDENT_FREEZE_MATCHING, INCIDENT_FREEZE_ALL };

/** As of a revocation; `principal` goes with a thread (whose) and a scope ("" everybody's). */
struct incident_selector {
    enum mark_kind kind; /* MARK_KINDS: an API key, by its id. It is deleted, which revokes what was granted under it */
    char value[MARK_VALUE_BYTES]; /* "" of MARK_ALL */
    char principal[PRINCIPAL_BYTES];
};

enum incident_verb {
    INCIDENT_OPEN, /* answered when it is durable and nothing is issued any more; its steps go on */
    INCIDENT_FIND,
    INCIDENT_LIST,     /* all, those opened last first */
    INCIDENT_SUSPECTS, /* a page, by id of the sandbox */
    INCIDENT_CLOSE,
    INCIDENT_EVIDENCE /* of one suspect, from its node: a page of its processes, or of what it changed on its disk */
};

/** The question above, the answer below. */
struct incident_question {
    enum incident_verb verb;
    struct caller caller;
    char id[RANDOM_ID_BYTES];                                   /* all but OPEN and LIST */
    char text[INCIDENT_REASON_BYTES];                           /* OPEN: the reason; CLOSE: a note, or "" */
    struct incident_selector selectors[INCIDENT_SELECTORS_MAX]; /* OPEN */
    size_t selector_count;
    enum incident_freeze freeze;      /* OPEN: for everybody, or for those whose tokens and sandboxes it is about */
    bool revoke, pause;               /* OPEN */
    bool resume;                      /* CLOSE: what it paused */
    char sandbox_id[RANDOM_ID_BYTES]; /* EVIDENCE; SUSPECTS: those behind it, or "" */
    char part[16];                    /* EVIDENCE: "processes", "files" */
    char position[INCIDENT_POSITION_BYTES];                             /* EVIDENCE: `next` of the page before, or "" */
    void (*answered)(void *cookie, struct incident_question *question); /* ledger thread; the callee's from then on */
    void *cookie;

    struct error refusal;
    json_t *answer; /* owned: the row, rows, or what the node said */
    bool more;      /* SUSPECTS: there are others */

    struct leasing *leasing;       /* private, as the next */
    char node[SANDBOX_NODE_BYTES]; /* EVIDENCE */
    json_t *frozen;                /* owned: for freeze_take; NULL it is as it was */
};

/** An empty question. */
struct incident_question *incident_question_new(void);
/** With all it owns; NULL is allowed. */
void incident_question_free(struct incident_question *question);
DEFINE_AUTO(incident_question)

/** Queues it; takes it. Any thread. Admins only. NOT_FOUND (also a sandbox, thread or lease to select), INVALID, QUOTA
 *  (as many are open as may be), STARTING (CLOSE: its steps are not over), CONFLICT (it is closed), GONE and what the
 *  node refuses come as question->refusal. */
void leasing_incident(struct leasing *leasing, struct incident_question *question);

/* ---- for leasing alone; ledger thread ---- */

/** From leasing_start: what is frozen, and the ids of those whose steps are not over. A rule's part; may be run again.
 */
bool incidents_load(struct work *work) MUST_USE;
/** And goes on with them. */
void incidents_start(struct leasing *leasing);
/** The ledger has stopped: forgets what is under way. */
void incidents_done(struct leasing *leasing);
