/** sandboxes.h - the launcher's sandboxes: born, adopted, ended; each has a slot, an area, a folder, a record and a
 * life.
 *
 *  Nothing here waits: what takes time has a descriptor that the loop watches, and calls back when it is readable
 *  (sandboxes_event) or when it is time (sandboxes_wake). A birth goes QUEUED -> (FILLING ->) BORN -> BECOMING -> LIVE;
 * one of the pool stays WARM between BORN and BECOMING (warm.h). Whoever asked is told through the listener. */
#pragma once

#include "sandboxd/isolation/isolation.h"
#include "sandboxd/launcher/attachments.h"
#include "sandboxd/launcher/catalog.h"
#include "sandboxd/launcher/errand.h"
#include "sandboxd/launcher/identity.h"
#include "sandboxd/launcher/records.h"
#include "sandboxd/launcher/slots.h"
#include "sandboxd/launcher/snapshots.h"
#include "sandboxd/launcher/warm.h"
#include "sandboxd/network/network.h"
#include "sandboxd/storage/storage.h"

#define SANDBOXES_ENDED_KEPT   512 /* ends that are told again to a new front; older ones are forgotten */
#define SANDBOXES_WAKES_A_TURN 64  /* looked after in a turn because it is time: far fewer than ends are kept */
#define SANDBOXES_BIRTHS_MAX   8   /* under way at once; others wait their turn */
#define SANDBOXES_TAKINGS_MAX  16  /* snapshots under way at once */
#define SANDBOXES_LOOKINGS_MAX 8   /* at evidence, at once */
#define SANDBOXES_BIRTH_S      30  /* a birth that takes longer has failed */
#define SANDBOXES_QUEUED_S     120 /* ... or that had no turn */
#define SANDBOXES_FILLING_S    600 /* ... or whose snapshot was not copied */

enum sandbox_state {
    SANDBOX_QUEUED = 1, /* has no slot yet */
    SANDBOX_FILLING,    /* its area is being made of a snapshot */
    SANDBOX_BORN,       /* its child makes what it will live in */
    SANDBOX_WARM,       /* could become; of the pool */
    SANDBOX_BECOMING,
    SANDBOX_LIVE,
    SANDBOX_ENDING /* killed; gone when its cgroups can be removed */
};

/** What is wanted of one that does not live yet; the policy has said yes. */
struct sandbox_wish {
    struct fl_prepare prepare;
    struct fl_limits limits; /* in force */
    bool root_allowed;
    const struct isolation_backend *backend; /* NULL: the first that is offered */
    struct catalog_version *template; /* borrowed: sandboxes_create keeps it */
};

struct birth; /* a wish under way */

/** A snapshot under way. */
struct taking {
    uint64_t request;
    struct snapshot_record record;
    struct storage_job *job; /* first this, */
    struct errand *errand;   /* then this */
    const char *folder;
};

/** One sandbox, living or on its way in or out. */
struct sandbox {
    struct record record;             /* record.id is "" for the pool's, and for remains of which nothing is known */
    const struct isolation_backend *backend;
    struct isolation_sandbox handle;  /* stats are open only until they were handed to the front, but for `oom` */
    struct storage_area area;         /* none: what it holds cannot be known nor changed */
    uint64_t area_bytes;              /* its quota */
    struct catalog_version *template; /* kept; NULL: not known any more */
    enum sandbox_state state;
    bool is_pool;            /* nobody has it: does not count as a sandbox of this node */
    struct birth *birth;     /* until it lives */
    struct storage_job *job; /* FILLING */
    struct taking *taking;   /* LIVE */
    struct looking *looking; /* LIVE */
    struct network *network; /* of one that has, or had, a way out; NULL */
    uint64_t egress_process; /* the parley-egress that has its sockets; 0 none */
    struct sandbox *next;    /* QUEUED */
    uint64_t due_boot_ns;    /* not LIVE: when it fails, or is tried again; 0 never */
    unsigned tries;
    char reason[FRONT_LAUNCHER_NAME_BYTES]; /* as asked for, or "" */
    uint64_t destroy_request;               /* of this front, for its answer; 0 none */
};

struct sandbox_end {
    char id[FRONT_LAUNCHER_ID_BYTES];
    char reason[FRONT_LAUNCHER_NAME_BYTES];
    uint32_t epoch;
    uint64_t destroy_request;
};

/** What a descriptor of a slot is about. */
enum sandbox_event { SANDBOX_INIT_ENDED = 1, SANDBOX_BIRTH, SANDBOX_JOB, SANDBOX_LOOKED };

/** Who looks at descriptors: called with each new one, and again after each event of SANDBOX_BIRTH. To be told once: a
 *  descriptor stays readable, and closing ours does not end the watch while the front or a child has a copy. */
struct sandboxes_watch {
    bool (*add)(void *context, enum sandbox_event event, uint32_t slot, int fd, struct error *err);
    bool (*again)(void *context, enum sandbox_event event, uint32_t slot, int fd, struct error *err);
    void *context;
};

/** Who asked: told once for each. All NULL: nobody. */
struct sandboxes_listener {
    void (*born)(void *context, struct sandbox *sandbox);
    void (*not_born)(void *context, const char *id, const struct error *why);
    /** `why` NULL: it is durable. */
    void (*kept)(void *context, const struct sandbox *sandbox, const struct taking *taking, const struct error *why);
    /** What sandboxes_look found: `file` is the listener's; -1: `why`. */
    void (*looked)(void *context, uint64_t request, int file, const struct error *why);
    void *context;
};

/** Who serves the ways out (egress.h): told of each new one and change, and of each end. All NULL: nobody. */
struct sandboxes_egress {
    void (*changed)(void *context, struct sandbox *sandbox);
    void (*gone)(void *context, struct sandbox *sandbox);
    void *context;
};

/** What it works with; texts, descriptors and the rest are borrowed. */
struct sandboxes_house {
    struct isolation_offer offer; /* the pool's are of its first */
    const char *run_folder, *record_folder;
    gid_t front_group; /* may reach init's sockets */
    int init_program;
    uint32_t max;
    const struct identity *identity; /* for the letters of guests; NULL: there are none */
    struct storage *storage;
    struct networks *networks; /* NULL: there are none, and births have no network namespace (tests) */
    struct catalog *catalog;
    struct snapshots *snapshots;
    struct attachments_rules volumes;
    struct warm_rules warm;
    struct sandboxes_watch watch;
};

/** Embedded; zero before sandboxes_start. Private but for reading. */
struct sandboxes {
    struct sandboxes_house house;
    struct sandboxes_listener listener;
    struct sandboxes_egress egress;
    struct slots *slots;
    struct sandbox *by_slot[SLOTS_COUNT];
    struct sandbox *queue; /* first come first */
    uint32_t count;        /* all of them, */
    uint32_t pool_count;   /* of which these are the pool's */
    uint32_t births;       /* FILLING, BORN or BECOMING, not the pool's */
    uint32_t pool_births;  /* BORN, the pool's */
    uint32_t takings, lookings;
    uint32_t wake_next; /* the slot where sandboxes_wake goes on */
    bool no_slot;       /* the queue's first found none: it waits until one is free */
    struct warm warm;
    struct sandbox_end ended[SANDBOXES_ENDED_KEPT]; /* a ring; number n is at n % SANDBOXES_ENDED_KEPT */
    uint64_t ended_count;                           /* ever */
};

/** Adopts what lives, ends what is half-made, warm, damaged or orphaned. */
bool sandboxes_start(struct sandboxes *all, const struct sandboxes_house *house, struct slots *slots,
                     struct error *err) MUST_USE;

/** Lets go of all that lives, ending none; what is being born ends with its launcher. */
void sandboxes_done(struct sandboxes *all);

/** By id: queued, being born, living or ending; NULL. */
struct sandbox *sandboxes_find(struct sandboxes *all, const char *id) MUST_USE;

/** How the sandbox `id` ended, of those still kept; NULL. */
const struct sandbox_end *sandboxes_find_end(const struct sandboxes *all, const char *id) MUST_USE;

/** Begins to make a sandbox, of the pool if it can be. What comes of it the listener is told, perhaps before this
 *  returns. False, and nothing is told: ERROR_NO_CAPACITY, or what is wrong with a volume. */
bool sandboxes_create(struct sandboxes *all, const struct sandbox_wish *wish, struct error *err) MUST_USE;

bool sandboxes_move_deadline(struct sandboxes *all, struct sandbox *sandbox, int64_t deadline_wall_ms,
                             struct error *err) MUST_USE;

/** The key epoch in force, for good; a lower one changes nothing. */
bool sandboxes_raise_epoch(struct sandboxes *all, struct sandbox *sandbox, uint32_t epoch, struct error *err) MUST_USE;

/** Holds a living one to other limits, judged before: all of them or, on failure, none. ERROR_INVALID when the kernel
 *  will not have them: less memory or disk than is in use. */
bool sandboxes_limit(struct sandboxes *all, struct sandbox *sandbox, const struct fl_limits *limits,
                     struct error *err) MUST_USE;

/** Where a living one, or one that becomes, may go from now on; judged before. On failure it may go where it could
 *  before, or nowhere: network_rules of its network says which. */
bool sandboxes_wall(struct sandboxes *all, struct sandbox *sandbox, const struct fl_network *network,
                           struct error *err) MUST_USE;

/** Bytes in use on its disk. */
bool sandboxes_usage(struct sandboxes *all, const struct sandbox *sandbox, uint64_t *disk_bytes,
                     struct error *err) MUST_USE;

/** Begins to keep what a living one has on disk, as `name`; the listener is told. ERROR_CONFLICT when it is there or
 * one is under way, ERROR_NO_CAPACITY. */
bool sandboxes_keep(struct sandboxes *all, struct sandbox *sandbox, const char *name, uint64_t request,
                    struct error *err) MUST_USE;
/** Begins to look for evidence in a living one; the listener is told. ERROR_FORBIDDEN where it cannot be seen from
 *  outside, ERROR_RATE_LIMITED. */
bool sandboxes_look(struct sandboxes *all, struct sandbox *sandbox, const struct fl_evidence *asked, uint64_t request,
                    struct error *err) MUST_USE;
/** Gives up the snapshot of that name, if it is being made: neither half of it stays, and the listener is told
 *  ERROR_CONFLICT. */
void sandboxes_stop_keeping(struct sandboxes *all, const char *name);
/** Who asked is gone: gives up all births and all snapshots under way, as if they had not been asked for (what was
 *  frozen for a snapshot may be thawed now, and a birth will be asked for again). Nobody is told. */
void sandboxes_give_up(struct sandboxes *all);

/** Whether one that lives or is being born began with this snapshot and is still being filled from it. */
bool sandboxes_are_filling(const struct sandboxes *all, const char *snapshot) MUST_USE;
/** Whether one that lives or is being born has this named volume. */
bool sandboxes_have_volume(const struct sandboxes *all, const char *disk_name) MUST_USE;

/** Kills it; a reason given before stays. May free it when it can be removed at once. */
void sandboxes_end(struct sandboxes *all, struct sandbox *sandbox, const char *reason);

/** A watched descriptor of this slot is readable. */
void sandboxes_event(struct sandboxes *all, enum sandbox_event event, uint32_t slot);

/** Begins what can be begun now: after each turn of the loop. */
void sandboxes_turn(struct sandboxes *all);

/** Opens the stats of a living sandbox again (for a new front); ERROR_NOT_FOUND when it just ended. */
bool sandboxes_open_stats(struct sandbox *sandbox, struct error *err) MUST_USE;
/** Closes them but for what the end needs. */
void sandboxes_close_stats(struct sandbox *sandbox);

/** When sandboxes_wake is due, CLOCK_BOOTTIME ns; 0 never. */
uint64_t sandboxes_next_wake(const struct sandboxes *all) MUST_USE;
/** Ends what is 15 s past its hard deadline (init has one of its own) or took too long to be born, and tries removals
 *  again. */
void sandboxes_wake(struct sandboxes *all, uint64_t now_boot_ns);
