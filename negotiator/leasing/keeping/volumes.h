/** volumes.h - named volumes: what of a principal's outlives its sandboxes without a snapshot. A volume lies on the
 * node of the sandbox that it was made for; who wants it is placed there. What a node keeps it knows by the owner's
 * hash.
 *
 *    volume/<principal>/<name>         {"node", "size_mb", "created_at", "made_by"}
 *    volused/<principal>/<name>/<id>   "": a sandbox that has it, until that has ended
 *
 *  Invariant: made_by is the sandbox that the volume is made for, until somebody knows that it is there. */
#pragma once

#include "negotiator/leasing/leasing.h"
#include "negotiator/leasing/store.h"

#define VOLUMES_LIST_MAX 1000 /* that one answer tells */
#define VOLUMES_USED_MAX 100  /* sandboxes of one volume that it tells */

struct volume {
    char name[WANTED_VOLUME_BYTES];
    char node[SANDBOX_NODE_BYTES];
    char made_by[RANDOM_ID_BYTES]; /* "" it is there */
    int64_t size_mb;               /* its quota; 0: what the node gives */
    int64_t created_at;            /* wall clock, ms */
    json_t *used_by;               /* owned; LIST: ids of sandboxes */
    uint64_t revision;             /* 0: there is none */
};

enum volumes_verb {
    VOLUMES_LIST,
    VOLUMES_DROP /* at once, with all in it; CONFLICT while a sandbox has it, NODE_UNREACHABLE */
};

/** The question above, the answer below. */
struct volumes_question {
    enum volumes_verb verb;
    struct caller caller;
    char name[WANTED_VOLUME_BYTES];                             /* DROP */
    void (*answered)(void *cookie, struct volumes_question *q); /* on the ledger thread; the callee's from then on */
    void *cookie;

    struct error refusal; /* ERROR_NONE: done */
    struct volume *list;  /* owned */
    size_t count;

    struct leasing *leasing; /* private, as all below */
    struct volume volume;
    struct volumes_question *later; /* in the list of those that are under way */
    struct error failure;           /* of the node */
};

/** An empty question. */
struct volumes_question *volumes_question_new(void);
/** With all it owns; NULL is allowed. */
void volumes_question_free(struct volumes_question *question);
DEFINE_AUTO(volumes_question)

/** Queues it; takes it. Any thread. */
void leasing_ask_volumes(struct leasing *leasing, struct volumes_question *question);

/* ---- for the rules of a sandbox alone; ledger thread ---- */

/** Where a new sandbox has to be for its volumes: sandbox->node ("": anywhere) is set. *refusal: CONFLICT when they lie
 * on different nodes, or one is being deleted; QUOTA. */
bool volumes_place(struct work *work, struct sandbox *sandbox, struct error *refusal) MUST_USE;
/** It is placed: its volumes that are not there yet are made with it, and all are in use. */
bool volumes_take(struct work *work, const struct sandbox *sandbox) MUST_USE;
/** Its node has made it: so they are there. */
bool volumes_made(struct work *work, const struct sandbox *sandbox) MUST_USE;
/** Its node has not, and nobody else has them: their rows go. The node is not told: it takes away what it made in vain
 *  itself, and what it had before is somebody's data that an older copy of the ledger does not know of. */
bool volumes_unmake(struct work *work, const struct sandbox *sandbox) MUST_USE;
/** It has ended: it has them no more. */
void volumes_release(struct work *work, const struct sandbox *sandbox);
