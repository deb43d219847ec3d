/** identity.h - who this node is: STATE/sandboxd/node.json, written at enrolment (enrol.h) and at a re-keying, and the
 *  incarnation, a counter that only grows. The node key and the secret key stay in the launcher. */
#pragma once

#include "sandboxd/front_launcher/front_launcher.h"
#include "shared/base/error.h"
#include "shared/capability/keys.h"

#include <stdint.h>

struct identity {
    char node[FRONT_LAUNCHER_NAME_BYTES];
    char deployment[FRONT_LAUNCHER_NAME_BYTES];
    char negotiator_url[256];
    struct key node_key;
    uint32_t epoch;         /* of node_key, from 1 */
    bool has_pair;          /* the next two are there: this node can be re-keyed */
    struct enrol_pair pair; /* what a next key is boxed to */
    uint8_t negotiator_hash[ENROL_HASH_BYTES];
};

/** Reads the file. ERROR_NOT_FOUND says how to enrol; ERROR_INVALID names the field; ERROR_FORBIDDEN when others than
 *  root may read or write it. */
bool identity_read(struct identity *identity, const char *path, struct error *err) MUST_USE;
/** Writes the file (0600), durably, in place of the one that is there. */
bool identity_write(const struct identity *identity, const char *path, struct error *err) MUST_USE;
void identity_done(struct identity *identity);
#define AUTO_IDENTITY __attribute__((cleanup(identity_done))) struct identity

/** Opens the next key of this node, writes `path`, and only then changes *identity. The box must be the negotiator's
 * that we enrolled with, for this node, from our epoch to the one told: ERROR_UNAUTHENTICATED. ERROR_CONFLICT when the
 * epoch is not above ours, or we have no pair. */
bool identity_rekey(struct identity *identity, const struct fl_rekey *rekey, const char *path,
                    struct error *err) MUST_USE;

/** Raises the counter in the file by one, durably, and tells it; `first` when there is no file: the wall clock's
 * seconds are above what any former folder of this node's name has counted. ERROR_INVALID for a file that holds
 * something else: starting anew would let old messages be replayed. */
bool identity_raise_incarnation(const char *path, uint64_t first, uint64_t *incarnation, struct error *err) MUST_USE;
