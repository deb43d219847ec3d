/** fleet.h - the nodes: who they are and where (registry), which takes the next sandbox (placement), their messages in
 *  and ours out (the node link). It knows no leases.
 *
 *  The registry is in memory, guarded by one mutex held for moments; a node's incarnation and URL are durable too, in
 *  `node/<name>`. Messages in are opened on the loop they came to; calls out run on blocking worker threads. */
#pragma once

#include "negotiator/ledger/kv.h"

#include "shared/base/error.h"
#include "shared/capability/keys.h"
#include "shared/node_protocol/link.h"

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#define FLEET_URL_BYTES   256
#define FLEET_NODES_MAX   1024
#define FLEET_ISOLATIONS  8
#define FLEET_EPOCH       1              /* of every node key, until re-keying comes */
#define FLEET_SKEW_MS     10000          /* a message whose time is farther off is refused */
#define FLEET_WAITING_MAX 256            /* calls to one node that wait: it gets no new sandbox then */
#define FLEET_ALIVE_NS    6000000000ULL  /* heard of more lately: takes new sandboxes */
#define FLEET_LOST_NS     60000000000ULL /* not heard of for longer: its leases answer 503 */

struct fleet;

struct fleet_options {
    const struct key *master; /* copied */
    unsigned workers;         /* threads that call nodes, 1..64 */
    unsigned call_timeout_ms;
    int64_t (*wall_ms)(void);
    uint64_t (*boot_ns)(void);
};

/** Starts the workers. */
struct fleet *fleet_start(const struct fleet_options *options, struct error *err) MUST_USE;
/** Lets the calls that run end; those that wait fail with ERROR_NODE_UNREACHABLE. Blocks. No call may be made after. */
void fleet_stop(struct fleet *fleet);
/** Stops it first when that was not done; NULL is allowed. */
void fleet_free(struct fleet *fleet);
DEFINE_AUTO(fleet)

/* ---- registry and placement; any thread ---- */

/** Reads the nodes of the store; start-up. They are as if heard of just now, but take nothing before they are. */
bool fleet_load(struct fleet *fleet, struct kv *kv, struct error *err) MUST_USE;

enum fleet_life { FLEET_UNKNOWN, FLEET_ALIVE, FLEET_SUSPECT, FLEET_LOST };

/** The node's life and URL (without a slash at the end; "" when it is not known). */
enum fleet_life fleet_find(struct fleet *fleet, const char *node, char url[static FLEET_URL_BYTES]) MUST_USE;

/** The living node with room for `isolation` ("auto": any) that is used least. It counts as used by one more until its
 *  next heartbeat says how it is. ERROR_NODE_UNREACHABLE when none lives, ERROR_NO_CAPACITY when none has room,
 *  ERROR_INVALID when none that lives has that isolation. */
bool fleet_place(struct fleet *fleet, const char *isolation, char node[static LINK_NODE_BYTES], uint32_t *epoch,
                 struct error *err) MUST_USE;

/** The highest incarnation the node was heard of in; 0 when it is not known. */
uint64_t fleet_incarnation(struct fleet *fleet, const char *node) MUST_USE;

/** How many nodes live. */
size_t fleet_alive(struct fleet *fleet) MUST_USE;

/* ---- what nodes send ---- */

/** A message that opened, of a node and incarnation that may speak. */
struct fleet_message {
    struct link_head head;
    json_t *json;             /* owned */
    int64_t previous_seen_ms; /* wall time of the heartbeat before, of the same incarnation; 0: there was none */
    /* Private: of a heartbeat. */
    char url[FLEET_URL_BYTES];
    char isolations[FLEET_ISOLATIONS][LINK_NODE_BYTES];
    size_t isolation_count;
    int64_t slots, used;
};
/** Drops what it owns and zeroes it. */
void fleet_message_done(struct fleet_message *message);

/** Opens bytes from the wire. ERROR_UNAUTHENTICATED (one sentence) when they do not open or came before, or when the
 *  incarnation is lower than one seen; ERROR_INVALID when a message that opened is not what it should be: such one has
 *  head and json set, and may be answered. Loop thread. */
bool fleet_open(struct fleet *fleet, const void *bytes, size_t size, struct fleet_message *message,
                struct error *err) MUST_USE;

/** Checks a heartbeat's own fields into the message. ERROR_INVALID. */
bool fleet_check_heartbeat(struct fleet *fleet, struct fleet_message *message, struct error *err) MUST_USE;

/** Makes incarnation and URL durable where they are new, and numbers ahead of those used: part of the heartbeat's rule.
 *  KV_FAILED, ERROR_CONFLICT when it ran for a later one before. Ledger thread. */
enum kv_outcome fleet_heartbeat_rule(struct fleet *fleet, struct kv *kv, const struct fleet_message *message,
                                     struct error *err);

/** Takes the heartbeat into the registry. ERROR_CONFLICT when a later one was taken before: what it says is old. */
bool fleet_heartbeat_seen(struct fleet *fleet, struct fleet_message *message, struct error *err) MUST_USE;

/** Seals an answer to a message; the caller frees *bytes. */
bool fleet_seal_reply(struct fleet *fleet, const struct fleet_message *message, const json_t *reply, uint8_t **bytes,
                      size_t *size, struct error *err) MUST_USE;

/* ---- what we send ---- */

/** Called once, on a worker thread; reply is borrowed, NULL when err says why. */
typedef void fleet_done(void *cookie, const json_t *reply, const struct error *err);

/** Queues a call; takes `message`. Any thread. At most half the workers (one at least) call one node at a time. `done`
 *  may be NULL: a call that nobody waits for is dropped when FLEET_WAITING_MAX wait for its node. */
void fleet_call(struct fleet *fleet, const char *node, json_t *message, fleet_done *done, void *cookie);
