/** sandbox.h - a sandbox and a lease as the ledger keeps them: plain structs and their JSON rows. */
#pragma once

#include "negotiator/leasing/principal.h"
#include "shared/base/error.h"
#include "shared/base/random.h"
#include "shared/capability/capability.h"

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#define SANDBOX_NAME_BYTES   64 /* [a-z0-9-]: it is the sandbox's host name */
#define SANDBOX_WORD_BYTES   64 /* template, isolation, storage */
#define SANDBOX_REASON_BYTES 200
#define SANDBOX_THREADS_MAX  32 /* leases one sandbox may have */
#define SANDBOX_NODE_BYTES   64
#define SANDBOX_URL_BYTES    256

/** A life without end, and a lease that is never idle: numbers so large that one counts on with them, and that none who
 *  gives a number reaches. Shown as null. */
#define LIFE_ENDLESS_S    INT64_C(100000000000)    /* of durations: more than LIFE_NUMBER_MAX_S */
#define LIFE_ENDLESS_MS   INT64_C(253402300799000) /* of times: the end of the year 9999 */
#define LIFE_NUMBER_MAX_S INT64_C(3153600000)      /* 100 years: the longest that a number may say */
#define LIFE_UNATTENDED_S 86400                    /* at most: a node's sandboxes live on for so long by themselves */

/** Whether that time (ms since 1970 UTC) is one that never comes. */
bool life_is_endless(int64_t at) MUST_USE;
/** `now` (ms) and so many seconds: LIFE_ENDLESS_MS where these are endless. */
int64_t life_end(int64_t now, int64_t seconds) MUST_USE;

enum sandbox_state {
    SANDBOX_PROVISIONING, /* durable, not yet made */
    SANDBOX_ACTIVE,
    SANDBOX_IDLE,
    SANDBOX_PAUSED,
    SANDBOX_TERMINATING, /* the node was told, or will be */
    SANDBOX_TERMINATED,
    SANDBOX_FAILED, /* was never made */
    SANDBOX_STATES
};

/** Amounts; 0 says "not given" in a request, and "the node's default" of the last three in a row. */
struct resources {
    int64_t cpu_milli; /* thousandths of a core */
    int64_t memory_mb, disk_mb;
    int64_t pids;
    int64_t open_files; /* of each command */
    int64_t processes;  /* commands at once */
    int64_t output_mb;  /* of output that is kept for all commands */
};

/** What is done when all its leases are idle: they end with it, or it sleeps on until their longest lives are over. */
enum on_idle { ON_IDLE_STOP, ON_IDLE_PAUSE };

/** What a sandbox uses, as its node told last. */
struct usage {
    int64_t told_ms; /* wall clock, of the node; 0: it told nothing */
    uint64_t cpu_ms, memory_bytes, disk_bytes, pids;
};

/** Times are ms since 1970 UTC. */
struct sandbox {
    char id[RANDOM_ID_BYTES];
    char name[SANDBOX_NAME_BYTES];
    char principal[PRINCIPAL_BYTES]; /* whose it is */
    char node[SANDBOX_NODE_BYTES];
    char template_name[SANDBOX_WORD_BYTES];
    char isolation[SANDBOX_WORD_BYTES];        /* as asked ("auto"), once active as the node said */
    char reason[SANDBOX_REASON_BYTES];         /* why it ended, or is ending */
    char idempotency[65];                      /* key of the row that made it, "" none */
    char isolation_detail[SANDBOX_WORD_BYTES]; /* what is special about it there, as the node said: "rootless"; or "" */
    char storage[SANDBOX_WORD_BYTES];          /* what its files lie on, as the node said; "" not yet */
    char snapshot[RANDOM_ID_BYTES];            /* what it began with; "" its template alone */
    char snapshot_name[SANDBOX_NAME_BYTES];    /* that one's name then */
    enum sandbox_state state;
    enum on_idle on_idle;
    bool was_warm; /* it came out of its node's pool */
    bool has_root; /* its commands may run as root, if its node allows that too */
    bool told_once; /* as in `wanted` */
    struct resources resources;
    int64_t volume_mb;    /* of its new volumes that ask for no size; 0: as its node gives */
    uint32_t epoch;       /* of its token key */
    uint32_t node_epoch;  /* of its node's key */
    uint64_t incarnation; /* of its node when it was made; 0: a row of before this was kept */
    int64_t created_at, active_since, state_since, ended_at;
    int64_t deadline;       /* the latest max_expires_at of its leases; LIFE_ENDLESS_MS: it has no end */
    int64_t node_deadline;  /* hard: when its node ends it unaided, as that was or is about to be told; never later than
                               `deadline`, nor than unattended_max from when it was told */
    json_t *threads;        /* owned: the thread ids that lease it */
    json_t *env, *metadata; /* owned, or NULL */
    json_t *volumes;        /* owned, or NULL: a list as in `wanted` */
    json_t *network;        /* owned, or NULL (none): as in `wanted`, and the next */
    json_t *ports;          /* owned, or NULL: told where browsers find them */
    json_t *entrypoint;     /* owned, or NULL: a list of texts */
    json_t *origin;         /* owned, or NULL: as in `wanted`; it is shown, and nothing follows from it */
    struct usage usage;     /* not of the row: for who looks at it */
    uint64_t revision;      /* of the row it was read from; 0: there is none */
};

/** Drops what it owns and zeroes it. */
void sandbox_done(struct sandbox *sandbox);
/** All of `from` but what it owns. */
struct sandbox sandbox_brief(const struct sandbox *from) MUST_USE;
#define AUTO_SANDBOX __attribute__((cleanup(sandbox_done))) struct sandbox

/** "provisioning". */
const char *sandbox_state_name(enum sandbox_state state) MUST_USE;
/** The state of such a name. */
bool sandbox_state_parse(const char *text, enum sandbox_state *state) MUST_USE;

/** "stop", "pause". */
const char *on_idle_name(enum on_idle on_idle) MUST_USE;
/** The one of such a name. */
bool on_idle_parse(const char *text, enum on_idle *on_idle) MUST_USE;

/** The row's object of amounts; the caller owns it. */
json_t *resources_format(const struct resources *resources) MUST_USE;

/** It sleeps from now on, or no more: then its leases' idle times begin anew. */
void sandbox_set_paused(struct sandbox *sandbox, bool is_paused, int64_t now);

/** Whether a lease can be had on it: there, not ending, not ended. */
bool sandbox_is_live(const struct sandbox *sandbox) MUST_USE;
/** Terminated or failed. */
bool sandbox_has_ended(const struct sandbox *sandbox) MUST_USE;

/** 1..63 of a-z 0-9 -, not beginning or ending with '-'. */
bool sandbox_is_name(const char *text) MUST_USE;

/** Adds a thread id to its leases, once. */
void sandbox_add_thread(struct sandbox *sandbox, const char *thread_id);
/** Takes it out again. */
void sandbox_remove_thread(struct sandbox *sandbox, const char *thread_id);

/** The row's text; the caller frees. */
char *sandbox_format(const struct sandbox *sandbox) MUST_USE;
/** Reads a row; ERROR_INTERNAL when it is damaged. *sandbox is replaced on success. */
bool sandbox_parse(struct sandbox *sandbox, const char *data, size_t size, struct error *err) MUST_USE;

/** A thread's hold on a sandbox; there is at most one a thread. */
struct lease {
    char id[RANDOM_ID_BYTES];
    char thread_id[CAPABILITY_THREAD_BYTES];
    char sandbox_id[RANDOM_ID_BYTES];
    int64_t created_at, expires_at, max_expires_at; /* ms since 1970 UTC; LIFE_ENDLESS_MS: no end */
    int64_t idle_timeout_s;                         /* LIFE_ENDLESS_S: never idle */
    bool has_long;     /* a long token was issued under it: it may be valid for longer than others */
    uint64_t revision; /* as above */
};

/** 1..128 of A-Z a-z 0-9 . _ : -, not "." or "..". */
bool lease_is_thread_id(const char *text) MUST_USE;

/** As sandbox_format and sandbox_parse. */
char *lease_format(const struct lease *lease) MUST_USE;
/** Reads a row; ERROR_INTERNAL when it is damaged. */
bool lease_parse(struct lease *lease, const char *data, size_t size, struct error *err) MUST_USE;
