/** wanted.h - what a negotiation asks for: fields, defaults and bounds (protocol.md, 2). A dialect fills it, the rules
 *  read it. */
#pragma once

#include "negotiator/leasing/sandbox.h"
#include "shared/capability/scope.h"

enum wanted_mode { WANTED_ENSURE, WANTED_ATTACH_ONLY, WANTED_CREATE_ONLY };

#define WANTED_ACTOR_BYTES       160
#define WANTED_DAY_S             86400
#define WANTED_WAIT_MAX_S        300
#define WANTED_LONG_MAX_S        (30 * WANTED_DAY_S) /* no long token is valid for longer, whatever is set */
#define WANTED_TTL_MAX_S         3600                /* nor any other one */
#define WANTED_ENV_MAX           64                  /* variables */
#define WANTED_ENV_BYTES         4095 /* of all "NAME=value", each with an end: what a node keeps (sandboxd ENV_BYTES) */
#define WANTED_METADATA_MAX      32   /* pairs */
#define WANTED_ENTRYPOINT_MAX    64   /* texts */
#define WANTED_ENTRYPOINT_BYTES  8192 /* of all, each with an end */
#define WANTED_VOLUMES_MAX       8
#define WANTED_VOLUME_BYTES      31 /* a volume's name of a-z0-9-, with NUL */
#define WANTED_PORTS_MAX         16
#define WANTED_ORIGIN_MAX        8   /* pairs */
#define WANTED_ORIGIN_TEXT_BYTES 512 /* of one of their texts */
#define WANTED_PATH_BYTES        256 /* of a volume's paths, with NUL: what a node takes (FRONT_LAUNCHER_PATH_BYTES) */

/** Zero is "nothing was said": every default then holds. */
struct wanted {
    enum wanted_mode mode;
    char hint[SANDBOX_NAME_BYTES]; /* a name or an id; "" auto */
    bool hint_required;
    bool scopes_given; /* else what policy gives */
    struct scope_set scopes;
    int64_t ttl_s;        /* 60..3600 */
    bool is_long;         /* a token for who never refreshes: as long as limits.long_ttl_max_s, unless its lease ends */
    int64_t expires_at_s; /* s since 1970 UTC: the token ends then; 1 s ahead at least. Later than a token may: cut */
    int64_t idle_timeout_s; /* 1..LIFE_NUMBER_MAX_S, or LIFE_ENDLESS_S: never idle */
    int64_t max_lifetime_s; /* 1..LIFE_NUMBER_MAX_S, or LIFE_ENDLESS_S: no end */
    char template_name[SANDBOX_WORD_BYTES];
    char snapshot[SANDBOX_NAME_BYTES]; /* what it begins with, in place of a template: an id or a name; "" none */
    char isolation[SANDBOX_WORD_BYTES];
    struct resources resources;
    bool on_idle_given;
    enum on_idle on_idle;
    json_t *env, *metadata; /* owned, or NULL */
    json_t *entrypoint;     /* owned, or NULL: a list of texts */
    json_t *origin;         /* owned, or NULL: an object of texts, what another protocol called what is wanted */
    /* owned, or NULL: a list of {"kind": "named" | "host", "source", "sub_path", "path", "read_only", "size_mb"}, all
     * of them there; "" and 0: not given. With "must_exist": true, one that is not there is not made */
    json_t *volumes;
    json_t *network; /* owned, or NULL: as egress_wish_json (shared/node_protocol/egress_rule.h) gives it */
    json_t *ports;   /* owned, or NULL: a list of numbers, ascending, no two alike */
    char name[SANDBOX_NAME_BYTES];
    char actor[WANTED_ACTOR_BYTES]; /* "human", "human:<id>", "agent:<id>" */
    bool wait_given;
    int64_t wait_s; /* 0..300 */
    bool capability_url;
    bool told_once; /* only the answer tells which sandbox was made: when it can no more be given, that one goes */
};

/** Drops what it owns and zeroes it. */
void wanted_done(struct wanted *wanted);

/** Bounds and defaults of this deployment. */
struct wanted_limits {
    int64_t ttl_default_s, ttl_max_s;
    int64_t idle_timeout_s, max_lifetime_s; /* defaults */
    int64_t max_lifetime_max_s; /* of a lease, and of a sandbox from its creation or renewal; 0: not bounded */
    int64_t long_ttl_max_s;     /* of a long token; at most WANTED_LONG_MAX_S */
    int64_t unattended_max_s;   /* of a sandbox after the last word to its node; at most LIFE_UNATTENDED_S */
    struct resources resources; /* defaults */
};

/** The same with a week and a day where long_ttl_max_s and unattended_max_s are 0. */
struct wanted_limits wanted_limits_whole(const struct wanted_limits *limits) MUST_USE;

/** Every number, text and pair within its bounds; ERROR_INVALID names the field and what is allowed. */
bool wanted_check(const struct wanted *wanted, const struct wanted_limits *limits, struct error *err) MUST_USE;

/** The same for `metadata` alone (NULL: none); `is_patch`: nulls too. */
bool wanted_check_metadata(json_t *metadata, bool is_patch, struct error *err) MUST_USE;

/** The same for `volumes` alone (NULL: none). */
bool wanted_check_volumes(const json_t *volumes, struct error *err) MUST_USE;

/** Whether a volume can have that name. */
bool wanted_is_volume(const char *name) MUST_USE;

/** How long the asker waits for a sandbox that is being made, in s. */
int64_t wanted_wait_s(const struct wanted *wanted) MUST_USE;

/** The explicitly asked fields in which `sandbox` is otherwise, as "template, resources.cpu"; false when there are
 *  none. */
bool wanted_differs(const struct wanted *wanted, const struct sandbox *sandbox, char *names, size_t size) MUST_USE;
