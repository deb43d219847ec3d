/** warm.h - the pool: sandboxes that are born and wait, before anybody's id, environment or limits are known, so that a
 *  prepare is a `become`. Each is given once and never comes back.
 *
 *  A template is stocked up to `each` and what was taken of it in the last minute, while it is the current version and
 *  is "base" or was asked for in the last ten minutes; over all by `most` and by memory. A birth of the pool begins
 * only when the launcher has nothing else to do; one that fails makes the pool wait, twice as long each time. */
#pragma once

#include "sandboxd/launcher/catalog.h"

#define WARM_EACH_KIB   1536 /* of memory that one takes, about */
#define WARM_KINDS      64   /* templates that are stocked at once */
#define WARM_BIRTHS_MAX 2    /* of the pool under way at once */

/** What the operator set. */
struct warm_rules {
    uint32_t each, most; /* 0: there is no pool */
    uint64_t memory_kib;
};

enum { WARM_SPANS = 6 }; /* of ten seconds: a minute of demand */

/** One template's stock. */
struct warm_kind {
    char name[FRONT_LAUNCHER_NAME_BYTES];
    uint64_t asked_boot_ns; /* last; base: always as if just now */
    uint32_t taken[WARM_SPANS];
    uint64_t span; /* number of the newest of `taken` */
};

/** Embedded. Private. */
struct warm {
    struct warm_kind kinds[WARM_KINDS];
    size_t kind_count;
    uint64_t not_before_boot_ns; /* after a failure, or a prepare: births of the pool wait */
    uint64_t trim_boot_ns;       /* when demand will have fallen; 0 never */
    unsigned failures;           /* in a row */
};

struct sandboxes;
struct sandbox;

/** A sandbox of the pool that is warm and of this version; NULL. It is the pool's until the caller takes it. Notes the
 *  demand. */
struct sandbox *warm_find(struct sandboxes *all, const struct catalog_version *template, uint64_t now_boot_ns) MUST_USE;

/** A prepare came: no birth of the pool begins for a moment, so that its first commands have the CPU. */
void warm_stand_back(struct sandboxes *all, uint64_t now_boot_ns);

/** One of the pool was born, or failed to be. */
void warm_note(struct sandboxes *all, bool was_born, uint64_t now_boot_ns);

/** Ends the pool's sandboxes of versions that are not current any more, and what is too much. */
void warm_trim(struct sandboxes *all, uint64_t now_boot_ns);

/** Ends one, to free its slot; false when there is none. */
bool warm_give_up_one(struct sandboxes *all) MUST_USE;

/** Ends all of them: the launcher stops, and nobody would ever take one. */
void warm_end_all(struct sandboxes *all);

/** The template that a birth of the pool is due of; NULL when none is. *when gets the time at which to ask again,
 * CLOCK_BOOTTIME ns, 0: at the next change. */
struct catalog_version *warm_wanted(struct sandboxes *all, uint64_t now_boot_ns, uint64_t *when) MUST_USE;

/** Begins one birth of the pool, if one is due: to be called when there is nothing else to do. */
void warm_refill(struct sandboxes *all, uint64_t now_boot_ns);
