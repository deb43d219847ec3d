/** slots.h - which host uid range each sandbox has. A slot is locked machine-wide by a file /run/parley/slots/<n>, so
 *  that two deployments never meet, and lies outside all that /etc/subuid and /etc/subgid give to others. In a user's
 * own namespace (sandboxd/rootless) the slots are what they give to that user, and the locks are the user's. */
#pragma once

#include "shared/base/cleanup.h"
#include "shared/base/error.h"

#include <stdbool.h>
#include <stdint.h>

#define SLOTS_COUNT     4000
#define SLOTS_UID_FIRST 1879048192U /* 0x70000000 */
#define SLOTS_UID_COUNT 65536U

/** Embedded; one a launcher. Private fields. */
struct slots {
    char *folder, *state;
    bool blocked[SLOTS_COUNT]; /* another's by /etc/sub?id */
    bool held[SLOTS_COUNT];    /* ours, this process knows */
    uint32_t next;             /* where the search begins: a range is not reused at once */
};

/** `folder` holds the lock files (made when missing), `state` is the real path of the state folder. `etc` holds subuid
 * and subgid. Removes the locks of deployments that are gone: no such state folder, no process in the range. */
bool slots_start(struct slots *slots, const char *folder, const char *state, const char *etc,
                 struct error *err) MUST_USE;
void slots_done(struct slots *slots);

/** Locks a free slot for the sandbox `id`. ERROR_NO_CAPACITY when there is none. */
bool slots_take(struct slots *slots, const char *id, uint32_t *slot, struct error *err) MUST_USE;

/** Locks this very slot, or finds it locked by this state folder already. ERROR_CONFLICT when another has it. */
bool slots_claim(struct slots *slots, uint32_t slot, const char *id, struct error *err) MUST_USE;

/** Frees a slot. Only when its cgroups and its folder are gone. Another's lock is left alone. */
void slots_release(struct slots *slots, uint32_t slot);

/** Frees every slot of this state folder that is not held now; returns how many. */
size_t slots_release_stale(struct slots *slots);

/** The uid of 0 inside, as this process's user namespace has it. */
uint32_t slots_uid(uint32_t slot) MUST_USE;

/** How many there may be here, at most SLOTS_COUNT. */
uint32_t slots_count(void) MUST_USE;
