/** wanted.h - what a negotiation asks for: fields, defaults and bounds (protocol.md, 2). A dialect fills it, the rules
 *  read it. */
#pragma once

#include "negotiator/leasing/sandbox.h"
#include "shared/capability/scope.h"

enum wanted_mode { WANTED_ENSURE, WANTED_ATTACH_ONLY, WANTED_CREATE_ONLY };

#define WANTED_ACTOR_BYTES  160
#define WANTED_DAY_S        86400
#define WANTED_WAIT_MAX_S   300
#define WANTED_ENV_MAX      64   /* variables */
#define WANTED_ENV_BYTES    4095 /* of all "NAME=value", each with an end: what a node keeps (sandboxd ENV_BYTES) */
#define WANTED_METADATA_MAX 32   /* pairs */

/** Zero is "nothing was said": every default then holds. */
struct wanted {
    enum wanted_mode mode;
    char hint[SANDBOX_NAME_BYTES]; /* a name or an id; "" auto */
    bool hint_required;
    bool scopes_given; /* else what policy gives */
    struct scope_set scopes;
    int64_t ttl_s;                          /* 60..3600 */
    int64_t idle_timeout_s, max_lifetime_s; /* 1..86400 */
    char template_name[SANDBOX_WORD_BYTES];
    char isolation[SANDBOX_WORD_BYTES];
    struct resources resources;
    json_t *env, *metadata; /* owned, or NULL */
    char name[SANDBOX_NAME_BYTES];
    char actor[WANTED_ACTOR_BYTES]; /* "human", "human:<id>", "agent:<id>" */
    bool wait_given;
    int64_t wait_s; /* 0..300 */
    bool capability_url;
};

/** Drops what it owns and zeroes it. */
void wanted_done(struct wanted *wanted);

/** Bounds and defaults of this deployment. */
struct wanted_limits {
    int64_t ttl_default_s, ttl_max_s;
    int64_t idle_timeout_s, max_lifetime_s; /* defaults */
    int64_t max_lifetime_max_s;             /* of a lease, and of a sandbox from its creation; at most a day */
    struct resources resources;             /* defaults */
};

/** Every number, text and pair within its bounds; ERROR_INVALID names the field and what is allowed. */
bool wanted_check(const struct wanted *wanted, const struct wanted_limits *limits, struct error *err) MUST_USE;

/** How long the asker waits for a sandbox that is being made, in s. */
int64_t wanted_wait_s(const struct wanted *wanted) MUST_USE;

/** The explicitly asked fields in which `sandbox` is otherwise, as "template, resources.cpu"; false when there are
 *  none. */
bool wanted_differs(const struct wanted *wanted, const struct sandbox *sandbox, char *names, size_t size) MUST_USE;
