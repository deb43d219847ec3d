/** incident.h - what the files of `parley incident` share. */
#pragma once

#include "clients/cli/cli.h"

/** negotiator_call that waits, 2 minutes at most, while there are too many requests: evidence is many, and an incident
 * is no time to be told to come again. */
bool incident_call(const struct place *place, const char *method, const char *path, json_t *body, json_t **reply,
                   struct error *err) MUST_USE;

/** The incident of that id as the negotiator tells it; NULL with err. The caller owns it. */
json_t *incident_fetch(const struct place *place, const char *id, struct error *err) MUST_USE;

/** All its suspects, an array that the caller owns; NULL with err. */
json_t *incident_suspects(const struct place *place, const char *id, struct error *err) MUST_USE;

/** Prints it with its suspects and revocations. CLI_PENDING when something could not be reached. */
int incident_show(const struct place *place, const char *id, bool json);

/** `parley incident evidence`: writes the bundle to `path` (NULL: incident-<id>.tar.gz). */
int incident_evidence(const struct place *place, const char *id, const char *path, bool json);
