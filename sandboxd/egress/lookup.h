/** lookup.h - one question about a name, from the rules to the pins: a name of an allow list is looked up, what may
 *  not be reached is left out, the rest pinned by the launcher, and only then told. One loop. */
#pragma once

#include "sandboxd/egress/dns_message.h"
#include "sandboxd/egress/house.h"

struct lookup;

/** What came of it. */
struct lookup_result {
    struct dns_addresses addresses; /* rcode, and what the sandbox may reach; DNS_REFUSED: no rule has the name */
    const void *answer;             /* of another type than A: the upstream's message to pass on; else NULL */
    size_t answer_size;
};

/** Asks for a type's records. done(cookie, result) is called once, unless cancelled, perhaps inside of this call (NULL
 *  is returned then). The name is one of host_name_read. A sandbox that ends cancels it: lookups_cancel. */
struct lookup *lookup_start(struct sandbox *sandbox, const char *name, uint16_t type,
                            void (*done)(void *cookie, const struct lookup_result *result), void *cookie) MUST_USE;
/** NULL is allowed; not after done. */
void lookup_cancel(struct lookup *lookup);

/** Pins anew, after new rules, what they still allow, and forgets the rest; all when nothing is to be kept, as other
 *  names are denied, for which some may stand. */
void lookup_pin_again(struct sandbox *sandbox, bool are_kept);
