/** identity.h - who this node is: STATE/sandboxd/node.json, written at enrolment (shared/node_protocol/DESIGN.md), and
 *  the incarnation, a counter that only grows. The node key stays in the launcher. */
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
};

/** Reads the file. ERROR_NOT_FOUND says how to enrol; ERROR_INVALID names the field; ERROR_FORBIDDEN when others than
 *  root may read or write it. */
bool identity_read(struct identity *identity, const char *path, struct error *err) MUST_USE;
void identity_done(struct identity *identity);
#define AUTO_IDENTITY __attribute__((cleanup(identity_done))) struct identity

/** Raises the counter in the file by one, durably, and tells it; 1 when there was none. ERROR_INVALID for a file that
 *  holds something else: starting anew would let old messages be replayed. */
bool identity_raise_incarnation(const char *path, uint64_t *incarnation, struct error *err) MUST_USE;
