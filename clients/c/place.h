/** place.h - where a client finds its deployment: URL, API key, and the files that hold them (protocol.md, 10). */
#pragma once

#include "shared/base/cleanup.h"
#include "shared/base/error.h"

#include <stdbool.h>

/** Who to talk to, and as whom. */
struct place {
    char *url;                       /* negotiator, without a trailing slash */
    char *api_key;                   /* a secret: place_done wipes it */
    char *tls_fingerprint, *ca_file; /* whom to trust (shared/trust/trust.h); NULL: as the system */
    char *capability; /* a secret too: a capability URL (capability_url.h), for whose sandbox alone it is; NULL none */
};

void place_done(struct place *place);
#define AUTO_PLACE __attribute__((cleanup(place_done))) struct place

/** $PARLEY_URL and $PARLEY_API_KEY, else config.json, else the default URL: https when this machine's deployment has
 *  STATE/tls. From then on all transfers trust whom $PARLEY_TLS_FINGERPRINT or $PARLEY_CA_FILE name, else config.json
 *  for its own URL, else STATE/tls for the default one. `url` (may be NULL) wins over all. When what
 *  wins is a capability URL, that is `capability`, `url` is found without it, and the key may be missing.
 *  Without a key, and for the default URL alone, the admin key of this machine's deployment if it can be read.
 *  ERROR_NOT_FOUND without any says how to get one; ERROR_INVALID for a config file that is not one. */
bool place_load(struct place *place, const char *url, struct error *err) MUST_USE;

/** As place_load, but the key may be missing (NULL then). */
bool place_load_keyless(struct place *place, const char *url, struct error *err) MUST_USE;

/** Reads config.json alone: ERROR_NOT_FOUND when there is none. */
bool place_load_file(struct place *place, struct error *err) MUST_USE;

/** Writes config.json (0600, its folder 0700); under sudo it belongs to the user who asked. */
bool place_store_file(const struct place *place, struct error *err) MUST_USE;

/** "$XDG_CONFIG_HOME/parley/config.json"; under sudo (without XDG_CONFIG_HOME) the asking user's. The caller frees. */
char *place_config_path(void) MUST_USE;

/** "$XDG_CACHE_HOME/parley/grants.json", as above. The caller frees. */
char *place_cache_path(void) MUST_USE;

/** The folder's thread: "dir-<its name>-<16 hex>", the same for every run in `folder` on this machine. The caller
 * frees. */
char *place_folder_thread(const char *folder) MUST_USE;

/** mkdir -p 0700 for the folder a file lies in. */
bool place_make_folder_of(const char *path, struct error *err) MUST_USE;

/** Under sudo: until place_return, this process acts with the asking user's rights (effective ids), if `path` lies in a
 *  folder of theirs, so that files are theirs and their links lead only where they may go. Returns what place_return
 *  wants. One thread. */
bool place_act_as_user(const char *path) MUST_USE;
void place_return(bool acted);
