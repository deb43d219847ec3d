/** presence.h - what the nodes told this process: by sandbox its last sign of life, deadline, epoch and usage. Memory
 *  only: after a start a node's word counts once it has sent a full list. Ledger thread only. Private to this folder.
 *
 *  A heartbeat is a difference: it names what changed. So a sandbox that no heartbeat names is as it was told last, and
 *  one that the last full list and all since did not name is not there. */
#pragma once

#include "negotiator/leasing/sandbox.h"

#define PRESENCE_SANDBOXES_MAX 65536 /* of one node; what it names beyond is not heard */

struct presence_entry {
    char id[RANDOM_ID_BYTES];
    int64_t active_ms, deadline_ms;
    struct usage usage;
    uint32_t epoch;
    bool says_paused, is_paused;       /* that it sleeps or not was told; which */
    bool unknown;                      /* that the ledger does not know it was recorded */
    uint32_t version;                  /* raised when the ledger is to be asked about it again */
    struct presence_entry *next, **at; /* among those it is to be asked about, now or later; at NULL: it was */
};

struct presence_node {
    char name[SANDBOX_NODE_BYTES];
    uint64_t incarnation;
    bool has_list;               /* a full list of this incarnation was heard, and nothing missed since */
    bool is_walked;              /* its sandboxes are being looked at: all, or those told anew */
    bool walk_again, pick_again; /* all, those told anew, are to be once that is over */
    int64_t heard_ms;            /* when its last heartbeat was made, by its clock or ours, which is earlier */
    int64_t previous_ms;         /* and the one before of the same incarnation, in this order; 0 none */
    void *entries;               /* tsearch(3) */
    size_t count;
    struct presence_entry *unlooked;  /* the ledger is to be asked about these */
    struct presence_entry *postponed; /* and about these, as it failed, from then on */
    int64_t postponed_until_ms;
    int64_t unknown_hour; /* since 1970: then so many were recorded that the ledger does not know */
    unsigned unknown_told;
};

/** Embedded; zero is empty. */
struct presence {
    void *nodes; /* tsearch(3) */
};
void presence_done(struct presence *presence);

/** NULL when nothing was heard of it. */
struct presence_node *presence_find(const struct presence *presence, const char *node) MUST_USE;
/** The one that is there, or a new one. */
struct presence_node *presence_node(struct presence *presence, const char *node);

/** NULL when the node (NULL: none) did not name it. */
struct presence_entry *presence_entry(const struct presence_node *node, const char *id) MUST_USE;

/** A heartbeat came that was made at `made`: forgets what an earlier incarnation told. */
void presence_hear(struct presence_node *node, uint64_t incarnation, int64_t made);

/** Takes its `sandboxes` and `ended`; `full`: what it does not name is not there. Of those that are new, or have
 * another deadline or epoch than before, the ledger is to be asked. */
void presence_take(struct presence_node *node, const json_t *message, bool full);

/** Takes one out of those the ledger is to be asked about; NULL when there is none. */
struct presence_entry *presence_pick(struct presence_node *node) MUST_USE;
/** The ledger could not be asked about that one: it is to be with the first heartbeat from `until` on, or somewhat
 *  earlier when others wait for theirs. */
void presence_postpone(struct presence_node *node, const char *id, int64_t until);
/** The ledger was asked about the entry (NULL is allowed) as it was in that version. */
void presence_looked(struct presence_entry *entry, uint32_t version);

/** Whether what the node told last is for certain of after `since`: each heartbeat is made after the one before was
 *  answered. `now` is our clock: what was heard by one that was set back is before and after nothing. */
bool presence_is_after(const struct presence_node *node, int64_t since, int64_t now) MUST_USE;

/** Whether the node has no such sandbox, for certain: made in incarnation `incarnation` of it (0: not known), and as
 * the ledger has it since `since`. */
bool presence_lacks(const struct presence_node *node, const char *id, int64_t since, uint64_t incarnation) MUST_USE;

/** Sets sandbox->usage to what its node told. */
void presence_show(const struct presence *presence, struct sandbox *sandbox);

/** The later one of the lease's end as it is kept and what the sandbox's last sign of life makes of it; never beyond
 *  its longest life. `entry` may be NULL. */
int64_t presence_expiry(const struct presence_entry *entry, const struct lease *lease, int64_t now) MUST_USE;
