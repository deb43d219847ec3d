/** fleet.h - the nodes: who they are and where (registry), which takes the next sandbox (placement), their messages in
 *  and ours out (the node link), how they join and get another key (admission). It knows no leases.
 *
 *  The registry is in memory, guarded by one mutex held for moments; what must outlive us is durable too:
 *    node/<name>   {incarnation, url, numbers, epoch, next_epoch, public_key, draining}
 *    join/<id>     a join token: {name, secret, expires, used_by}
 *  Messages in are opened on the loop they came to; calls out run on blocking worker threads. */
#pragma once

#include "negotiator/ledger/audit.h"
#include "negotiator/ledger/kv.h"

#include "shared/base/error.h"
#include "shared/capability/keys.h"
#include "shared/node_protocol/enrol.h"
#include "shared/node_protocol/link.h"

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#define FLEET_URL_BYTES      256
#define FLEET_NODES_MAX      1024
#define FLEET_ISOLATIONS     8
#define FLEET_TEMPLATES_MAX  256            /* that a node may tell */
#define FLEET_TEMPLATE_BYTES 64             /* of a template's name, with NUL */
#define FLEET_EPOCH          1              /* of a node's first key */
#define FLEET_SKEW_MS        10000          /* a message whose time is farther off is refused */
#define FLEET_CLOCK_MS       2000           /* a node whose clock is farther off gets no new sandbox */
#define FLEET_JOINS_MAX      256            /* join tokens that wait to be used */
#define FLEET_WAITING_MAX    4096           /* calls to one node that wait: it gets no new sandbox then */
#define FLEET_ALIVE_NS       6000000000ULL  /* heard of more lately: takes new sandboxes */
#define FLEET_LOST_NS        60000000000ULL /* not heard of for longer: its leases answer 503 */

struct fleet;

struct fleet_options {
    const struct key *master; /* copied */
    const char *deployment;   /* its id, told to nodes; copied. NULL: none can enrol */
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

/** What a new sandbox needs. */
struct fleet_wish {
    const char *isolation;     /* "auto": any */
    const char *template_name; /* NULL: any will do */
    const char *node;          /* on that one and no other; NULL: any */
};

/** The living node that has what is wished for, with room, that is used least, neither draining nor with a clock that
 *  is off. It counts as used by one more until its next heartbeat says how it is. ERROR_NODE_UNREACHABLE when none (or
 *  not that one) lives, ERROR_NO_CAPACITY when none has room, ERROR_INVALID when none that lives has that isolation or
 *  template: it names the templates there are. */
bool fleet_place(struct fleet *fleet, const struct fleet_wish *wish, char node[static LINK_NODE_BYTES], uint32_t *epoch,
                 struct error *err) MUST_USE;

/** The templates of all nodes that are not lost: a list of {"name", "digest", "source", "size_bytes", "created_at"
 * (ms), "nodes": [names]}, one a name and digest. The caller owns it. */
json_t *fleet_templates(struct fleet *fleet) MUST_USE;

/** The highest incarnation the node was heard of in; 0 when it is not known. */
uint64_t fleet_incarnation(struct fleet *fleet, const char *node) MUST_USE;

/** The epoch of the node's key that its tokens are minted under; the first for one that is not known. */
uint32_t fleet_epoch(struct fleet *fleet, const char *node) MUST_USE;

/** How many nodes live. */
size_t fleet_alive(struct fleet *fleet) MUST_USE;

/** A node as people see it. */
struct fleet_view {
    char name[LINK_NODE_BYTES];
    char url[FLEET_URL_BYTES];
    enum fleet_life life;
    bool draining, rekeying;
    int64_t slots, used;
    uint64_t incarnation;
    uint32_t epoch;
    int64_t seen_ms;      /* wall time of its last heartbeat since our start; 0 none */
    int64_t clock_off_ms; /* its clock less ours, then */
};
/** All of them by name; the caller frees. NULL when there are none. */
struct fleet_view *fleet_list(struct fleet *fleet, size_t *count) MUST_USE;

/* ---- what nodes send ---- */

/** A message that opened, of a node and incarnation that may speak. */
struct fleet_message {
    struct link_head head;
    json_t *json;             /* owned */
    int64_t previous_seen_ms; /* wall time of the heartbeat before, of the same incarnation; 0: there was none */
    bool stale; /* fleet_open refused it (json NULL, head set): it opened, of an incarnation lower than one seen. To be
                   recorded; at most once a minute and node */
    int64_t clock_off_ms; /* its time less ours */
    uint32_t epoch;       /* of the key it opened under */
    /* Private: of a heartbeat. */
    char url[FLEET_URL_BYTES];
    char isolations[FLEET_ISOLATIONS][LINK_NODE_BYTES];
    size_t isolation_count;
    int64_t slots, used;
    json_t *templates; /* owned; NULL: it said nothing of them */
};
/** Drops what it owns and zeroes it. */
void fleet_message_done(struct fleet_message *message);

/** Opens bytes from the wire, under the node's key in force, or the next one while it is re-keyed: that is in force
 * from then on. ERROR_UNAUTHENTICATED (one sentence) when they do not open or came before, or when the incarnation is
 * lower than one seen; ERROR_CONFLICT when a message that opened is too old, or its clock is off: such one has head and
 * json set, and may be answered. Loop thread. */
bool fleet_open(struct fleet *fleet, const void *bytes, size_t size, struct fleet_message *message,
                struct error *err) MUST_USE;

/** What of a node waits for the ledger thread. */
enum fleet_kind { FLEET_HEARTBEAT, FLEET_RECORDS, FLEET_KINDS };

/** One of a kind and node at a time is on its way through the ledger, so that a node that says much keeps nobody else
 *  waiting: ERROR_RATE_LIMITED for any other until fleet_left. Any thread. */
bool fleet_enter(struct fleet *fleet, const char *node, enum fleet_kind kind, struct error *err) MUST_USE;
void fleet_left(struct fleet *fleet, const char *node, enum fleet_kind kind);

/** Checks a heartbeat's own fields into the message. ERROR_INVALID. */
bool fleet_check_heartbeat(struct fleet *fleet, struct fleet_message *message, struct error *err) MUST_USE;

/** Makes incarnation, URL and epoch durable where they are new, and numbers ahead of those used: part of the
 * heartbeat's rule. KV_FAILED, ERROR_CONFLICT when it ran for a later one before. Ledger thread. */
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

/* ---- admission: what people do with nodes, and how a node gets its key (protocol.md, 8 "Enrolment") ---- */

enum fleet_verb {
    FLEET_JOIN,  /* a join token for `node` */
    FLEET_ENROL, /* `request` is to be answered */
    FLEET_DRAIN, /* no new sandboxes for `node` while `drain`. ERROR_NOT_FOUND */
    FLEET_REKEY  /* `node` is to get its next key; again while that waits: said to it again. ERROR_NOT_FOUND,
                    ERROR_CONFLICT when its public key is not known */
};

/** The question above, the answer below. */
struct fleet_asking {
    struct fleet *fleet;
    enum fleet_verb verb;
    char node[LINK_NODE_BYTES];
    bool drain;
    struct enrol_request request; /* enrol_read it */
    struct audit_record record;   /* who asks, from where; its texts live until the rule was answered */

    struct error refusal;          /* ERROR_NONE: done. ENROL: UNAUTHENTICATED when it is not proved, CONFLICT */
    char token[ENROL_TOKEN_BYTES]; /* JOIN: a secret */
    int64_t expires_ms;            /* JOIN: wall clock */
    json_t *answer;                /* ENROL: owned; what the node is told */

    uint32_t epoch, next_epoch; /* private, as the next two: of the node from now on */
    bool changed, replaced;
};
/** Drops what it owns and wipes the token. */
void fleet_asking_done(struct fleet_asking *asking);

/** The rule for it: the change and its record, or the refusal. Ledger thread. */
enum kv_outcome fleet_rule(struct kv *kv, struct fleet_asking *asking, struct error *err);
/** After its change is durable: the registry follows, and a re-keying is sent to its node. Ledger thread. */
void fleet_made(struct fleet_asking *asking);
