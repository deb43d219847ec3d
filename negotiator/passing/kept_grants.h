/** kept_grants.h - tokens that a loop asked the rules for a moment ago, so that each request that is passed on to a
 * sandbox does not ask again. Found by a keyed hash of who asked for what: no API key stands here. One loop's. */
#pragma once

#include "negotiator/leasing/principal.h"
#include "negotiator/leasing/sandbox.h"
#include "shared/capability/capability.h"

#include <stdbool.h>
#include <stdint.h>

#define KEPT_GRANTS_KEY_BYTES 32
#define KEPT_GRANTS_NS        (60 * UINT64_C(1000000000)) /* the longest that one is kept */

struct kept_grants;

/** An empty store with a hash key of its own. */
struct kept_grants *kept_grants_new(void) MUST_USE;
/** Wipes and frees. NULL is allowed. */
void kept_grants_free(struct kept_grants *grants);

/** What somebody who showed `credential` gets for this sandbox and purpose ("44772"). */
void kept_grants_key(const struct kept_grants *grants, const char *credential, const char *sandbox_id,
                     const char *purpose, uint8_t key[static KEPT_GRANTS_KEY_BYTES]);

struct kept_grant {
    char node[SANDBOX_NODE_BYTES];
    char owner[PRINCIPAL_BYTES]; /* of the sandbox */
    char token[CAPABILITY_TEXT_BYTES];
};

/** What is kept and holds at `now_ns` (boot time). */
bool kept_grants_find(const struct kept_grants *grants, const uint8_t key[static KEPT_GRANTS_KEY_BYTES],
                      uint64_t now_ns, struct kept_grant *grant) MUST_USE;
/** Keeps a copy until `until_ns`; another one may give way to it. */
void kept_grants_keep(struct kept_grants *grants, const uint8_t key[static KEPT_GRANTS_KEY_BYTES],
                      const struct kept_grant *grant, uint64_t until_ns);
/** It was refused. */
void kept_grants_drop(struct kept_grants *grants, const uint8_t key[static KEPT_GRANTS_KEY_BYTES]);
