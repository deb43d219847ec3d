/** remote_events.h - what happens in a deployment, as its negotiator streams it (GET /events): resumed by itself when a
 *  connection breaks, each event once. Blocks; any thread. */
#pragma once

#include "clients/c/place.h"

#include "shared/base/error.h"

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#define REMOTE_EVENT_MAX_BYTES (256 * 1024)

struct remote_events {
    const char *path; /* "/events?types=exec.*" */
    bool follow;      /* a stream that ends is begun again where it stood, until visit has enough */
    /** An event; "ready" is none. False: enough. */
    bool (*visit)(void *cookie, const json_t *event);
    /** Between tries, which goes on for ever: true to try again. May be NULL. */
    bool (*lost)(void *cookie, const struct error *err);
    void *cookie;
};

/** Until visit has enough, or without `follow` the stream's end: true. Else the server's error kinds;
 *  NODE_UNREACHABLE only before the first stream began. */
bool remote_events(const struct place *place, const struct remote_events *wanted, struct error *err) MUST_USE;
