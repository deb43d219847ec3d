/** deployment.h - what makes a deployment: its folder, its master key, its id; and the first admin key.
 *
 *    STATE                              0711
 *    STATE/admin.key                    0600, the first admin key, for `parley up`
 *    STATE/negotiator                   0700
 *    STATE/negotiator/master.key        0600, 32 bytes
 *    STATE/negotiator/deployment        0600, "dep_..."
 *    STATE/negotiator/ledger            LMDB, ledger/kv.h */
#pragma once

#include "negotiator/ledger/kv.h"
#include "shared/base/random.h"
#include "shared/capability/keys.h"

#include <stdbool.h>

struct deployment {
    struct key master;
    char id[RANDOM_ID_BYTES]; /* iss of every token */
};

/** Opens the deployment in `state`; makes what is missing, once, also when two programs start at the same time. A
 *  master key without an id, or with one of another form, is an error: nothing is ever made anew beside old keys. */
bool deployment_open(struct deployment *deployment, const char *state, struct error *err) MUST_USE;

void deployment_done(struct deployment *deployment);
#define AUTO_DEPLOYMENT __attribute__((cleanup(deployment_done))) struct deployment

/** STATE/negotiator/ledger; the caller frees. */
char *deployment_ledger_folder(const char *state) MUST_USE;

/** The first rules, before the ledger thread has the store: the ledger must be this deployment's; without any API key
 *  an admin key is made, stored in STATE/admin.key and printed once on stdout, and nowhere else. */
bool deployment_first_rules(const struct deployment *deployment, const char *state, struct kv *kv,
                            struct error *err) MUST_USE;
