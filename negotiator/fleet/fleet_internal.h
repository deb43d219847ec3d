/** fleet_internal.h - the registry's rows and the queue of calls. Private to this folder. */
#pragma once

#include "negotiator/fleet/fleet.h"

#include <pthread.h>

struct fleet_node {
    char name[LINK_NODE_BYTES];
    char url[FLEET_URL_BYTES];
    char isolations[FLEET_ISOLATIONS][LINK_NODE_BYTES];
    size_t isolation_count;
    struct key to_node, from_node;            /* link keys by direction */
    struct link_window window;                /* of what it sends; knows the highest incarnation */
    uint64_t numbers;                         /* the last number sent to it */
    unsigned waiting;                         /* calls to it in the queue */
    uint64_t heard_number;                    /* of the last heartbeat taken, in seen_incarnation */
    uint64_t ruled_incarnation, ruled_number; /* of the last heartbeat that its rule was run for */
    int64_t slots, used, placed;              /* placed: here since its last heartbeat */
    uint64_t seen_ns;                         /* boot clock */
    bool heard;                               /* a heartbeat came since our start */
    int64_t seen_ms;                          /* wall clock; 0: no heartbeat of this incarnation yet */
    uint64_t seen_incarnation;                /* of that heartbeat */
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
    struct key master;
    uint64_t first_number;
    int64_t start_ms;              /* wall clock */
    uint64_t start_ns;             /* boot clock */
    pthread_mutex_t registry_lock; /* guards nodes and node_count */
    struct fleet_node **nodes;
    size_t node_count;
    pthread_mutex_t queue_lock; /* guards all below */
    pthread_cond_t queued;
    struct fleet_job *first, **last;
    bool stopping;
    pthread_t *threads;
    unsigned thread_count;
    struct fleet_worker *workers;     /* by thread; private to calls.c */
    char (*calling)[LINK_NODE_BYTES]; /* by worker: the node it calls, "" none */
};

/** The node of that name; makes it when it is missing and there is room, else NULL. Registry locked. */
struct fleet_node *fleet_node_of(struct fleet *fleet, const char *name, bool make);

/** What a sealed message to the node needs. False when the node is not known. */
struct fleet_address {
    struct link_head head;
    struct key to_node, from_node;
    char url[FLEET_URL_BYTES];
};
bool fleet_address(struct fleet *fleet, const char *node, struct fleet_address *address) MUST_USE;
void fleet_address_done(struct fleet_address *address);
#define AUTO_ADDRESS __attribute__((cleanup(fleet_address_done))) struct fleet_address

/** Counts a call to the node into the queue (+1) or out of it (-1); what it was before. 0 for an unknown one. */
unsigned fleet_count_waiting(struct fleet *fleet, const char *node, int by);

/** The workers' life. */
bool calls_start(struct fleet *fleet, struct error *err) MUST_USE;
void calls_stop(struct fleet *fleet);
