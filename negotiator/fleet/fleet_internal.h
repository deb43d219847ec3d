/** fleet_internal.h - the registry's rows and the queue of calls. Private to this folder. */
#pragma once

#include "negotiator/fleet/fleet.h"

#include <pthread.h>
#include <stdatomic.h>
#include <sys/socket.h>

/** node/<name> as it is kept. */
struct fleet_row {
    char url[FLEET_URL_BYTES];
    uint64_t incarnation, numbers; /* numbers: durably spoken for */
    uint32_t epoch, next_epoch;    /* of its key; next_epoch 0: it is not being re-keyed */
    bool draining, has_public_key;
    uint8_t public_key[32];
    uint64_t revision; /* 0: there is none */
};
#define FLEET_ROW_KEY_BYTES (LINK_NODE_BYTES + 8)
/** "node/<name>". */
void fleet_row_key(char key[static FLEET_ROW_KEY_BYTES], const char *node);
/** Reads the row; one that is missing has epoch FLEET_EPOCH and revision 0. ERROR_INTERNAL when it is damaged. */
bool fleet_row_get(struct fleet_row *row, struct kv *kv, const char *node, struct error *err) MUST_USE;
bool fleet_row_parse(struct fleet_row *row, const struct kv_value *value) MUST_USE;
/** Adds it to the change, with the expectation of its revision. */
void fleet_row_put(struct kv_change *change, const struct fleet_row *row, const char *node);

/** Both directions. */
struct fleet_keys {
    struct key to_node, from_node;
};

/** Where a URL leads, as it was seen last; `size` 0: not yet. */
struct fleet_peer {
    char url[FLEET_URL_BYTES];
    struct sockaddr_storage address;
    socklen_t size;
    uint64_t seen_ns; /* boot clock */
};

struct fleet_node {
    char name[LINK_NODE_BYTES];
    char url[FLEET_URL_BYTES];
    char isolations[FLEET_ISOLATIONS][LINK_NODE_BYTES];
    size_t isolation_count;
    json_t *templates;          /* owned: as it told them in this incarnation; NULL: nothing */
    struct fleet_keys keys;     /* of `epoch` */
    uint32_t epoch, next_epoch; /* as in its row; epoch may be ahead of it until its next heartbeat */
    bool draining, has_public_key;
    uint8_t public_key[32];                   /* its launcher's */
    int64_t clock_off_ms;                     /* of its last heartbeat */
    uint64_t rekey_sent_ns;                   /* boot clock; 0: not since our start */
    uint64_t stale_told_ns;                   /* a lower incarnation was told of then; 0: never */
    struct link_window window;                /* of what it sends; knows the highest incarnation */
    uint64_t numbers;                         /* the last number sent to it */
    unsigned waiting;                         /* calls to it in the queue */
    bool is_inside[FLEET_KINDS];              /* what it sent is on its way through the ledger */
    uint64_t heard_number;                    /* of the last heartbeat taken, in seen_incarnation */
    uint64_t ruled_incarnation, ruled_number; /* of the last heartbeat that its rule was run for */
    int64_t slots, used, placed;              /* placed: here since its last heartbeat */
    uint64_t seen_ns;                         /* boot clock */
    bool heard;                               /* a heartbeat came since our start */
    int64_t seen_ms;                          /* wall clock; 0: no heartbeat of this incarnation yet */
    uint64_t seen_incarnation;                /* of that heartbeat */
    struct fleet_peer peer;                   /* where its URL led */
};

/* The fewest numbers that are durably spoken for ahead; raised by NUMBERS_STEP. */
#define NUMBERS_AHEAD (UINT64_C(1) << 31)
#define NUMBERS_STEP  (UINT64_C(1) << 32)

struct fleet_job {
    struct fleet_job *next;
    char node[LINK_NODE_BYTES];
    json_t *message; /* owned */
    fleet_done *done;
    void *cookie;
};

struct fleet {
    struct fleet_options options;
    struct key master, audit_key;
    char deployment[64]; /* "" none */
    uint64_t first_number;
    int64_t start_ms;              /* wall clock */
    uint64_t start_ns;             /* boot clock */
    pthread_mutex_t registry_lock; /* guards nodes and node_count */
    struct fleet_node **nodes;
    size_t node_count;
    uint64_t enrol_refused_ns;  /* boot clock, when that was last recorded; 0 never. The ledger thread's */
    pthread_mutex_t queue_lock; /* guards all below */
    pthread_cond_t queued;
    struct fleet_job *first, **last;
    atomic_bool ending; /* the same as the next, for calls that take long; not guarded */
    bool stopping;
    pthread_t *threads;
    unsigned thread_count;
    struct fleet_worker *workers;     /* by thread; private to calls.c */
    char (*calling)[LINK_NODE_BYTES]; /* by worker: the node it calls, "" none */
};

/** The node of that name; makes it when it is missing and there is room, else NULL. Registry locked. */
struct fleet_node *fleet_node_of(struct fleet *fleet, const char *name, bool make);

/** Derives the link keys of a node's epoch. */
void fleet_keys_of(struct fleet_keys *keys, const struct fleet *fleet, const char *node, uint32_t epoch);
void fleet_keys_done(struct fleet_keys *keys);
#define AUTO_FLEET_KEYS __attribute__((cleanup(fleet_keys_done))) struct fleet_keys
/** From now on that epoch is in force; a lower one, or the same, changes nothing. Registry locked. */
void fleet_node_raise(struct fleet *fleet, struct fleet_node *node, uint32_t epoch);
/** At boot time `now`. Registry locked. */
enum fleet_life fleet_node_life(const struct fleet_node *node, uint64_t now) MUST_USE;

/* templates.c */

/** What a heartbeat says of templates in place of *templates (owned); NULL leaves that as it is. ERROR_INVALID. */
bool fleet_read_templates(json_t **templates, const json_t *told, struct error *err) MUST_USE;
/** Registry locked. */
bool fleet_node_has_template(const struct fleet_node *node, const char *name) MUST_USE;
/** "base, py, ...": of all nodes that are not lost. */
void fleet_template_names(struct fleet *fleet, char *names, size_t size);

/** Sends the node its next key, when it waits for one and has not been told lately, or `now`. */
void fleet_send_rekey(struct fleet *fleet, const char *node, bool now);

/** What a sealed message to the node needs. False when the node is not known. */
struct fleet_address {
    struct link_head head;
    struct fleet_keys keys;
    char url[FLEET_URL_BYTES];
};
/** Any thread; fleet_address_done after true. */
bool fleet_address(struct fleet *fleet, const char *node, struct fleet_address *address) MUST_USE;
void fleet_address_done(struct fleet_address *address);
#define AUTO_ADDRESS __attribute__((cleanup(fleet_address_done))) struct fleet_address

/** Counts a call to the node into the queue (+1) or out of it (-1); what it was before. 0 for an unknown one. */
unsigned fleet_count_waiting(struct fleet *fleet, const char *node, int by);

/* dial.c */

/** The node was reached at that URL: notes where it leads. Waits for a name's look-up; a worker. */
void fleet_dial_learn(struct fleet *fleet, const char *name, const char *url);

/** The workers' life. */
bool calls_start(struct fleet *fleet, struct error *err) MUST_USE;
void calls_stop(struct fleet *fleet);
