/** snapshot.h - a snapshot as the ledger keeps it. What it holds lies on one node; the row outlives the sandbox it was
 *  taken of.
 *
 *    snapshot/<id>                   struct snapshot
 *    snapname/<principal>/<name>     the id of the snapshot of that name
 *    snapowned/<principal>/<id>      "": for lists, and how many there are
 *
 *  Invariants: one that is being deleted has neither name nor place among its owner's; every one that is not ready has
 *  one due row that counts, at `due_at`: so none stays half-made, and none half-deleted. Private to leasing. */
#pragma once

#include "negotiator/leasing/store.h"

enum snapshot_state {
    SNAPSHOT_CREATING, /* durable; its node was asked, or will be */
    SNAPSHOT_READY,
    SNAPSHOT_DELETING, /* until its node says that it is gone: nobody sees it any more */
    SNAPSHOT_STATES
};

struct snapshot {
    char id[RANDOM_ID_BYTES];
    char name[SANDBOX_NAME_BYTES];
    char principal[PRINCIPAL_BYTES]; /* whose it is: whose the sandbox was */
    char node[SANDBOX_NODE_BYTES];
    char sandbox_id[RANDOM_ID_BYTES];
    char template_name[SANDBOX_WORD_BYTES]; /* of that sandbox: what it is a change of */
    char storage[SANDBOX_WORD_BYTES];       /* "" not yet known, as the size */
    enum snapshot_state state;
    int64_t size_bytes;
    int64_t created_at, state_since, due_at; /* wall clock, ms; due_at 0: nothing is due */
    uint64_t revision;                       /* of the row it was read from; 0: there is none */
};

/** "creating", "ready", "deleting". */
const char *snapshot_state_name(enum snapshot_state state) MUST_USE;

/** The row; revision 0 when there is none. False (err set): the store failed, or the row is damaged. */
bool snapshot_get(struct work *work, const char *id, struct snapshot *snapshot) MUST_USE;
/** Adds it to the change, with the expectation of its revision, and when it is due, if it is. */
void snapshot_put(struct work *work, const struct snapshot *snapshot);
/** Adds to the change that the row goes. */
void snapshot_remove(struct work *work, const struct snapshot *snapshot);

/** The id of the owner's snapshot of that name; "" none. Nobody may take the name in between. */
bool snapshot_get_name(struct work *work, const char *principal, const char *name,
                       char id[static RANDOM_ID_BYTES]) MUST_USE;
/** Adds its name and its place among its owner's to the change; or takes both out of it. */
void snapshot_enlist(struct work *work, const struct snapshot *snapshot);
void snapshot_delist(struct work *work, const struct snapshot *snapshot);

/** How many the owner has, those that are being made too; counted up to `most`. */
bool snapshot_count(struct work *work, const char *principal, size_t most, size_t *count) MUST_USE;

/** The owner's snapshot that is ready, by id or name; an admin gets any by id. *refusal: ERROR_NOT_FOUND,
 *  ERROR_STARTING. */
bool snapshot_find(struct work *work, const struct caller *caller, const char *text, struct snapshot *snapshot,
                   struct error *refusal) MUST_USE;
