/** source.h - where an issuer's keys come from: a file or a URL, read by a thread of its own, which may wait as long as
 *  it must; the keys of before stay until there are newer ones. Private to this folder. */
#pragma once

#include "negotiator/identity/jwks.h"

#include <pthread.h>

struct source;

/** `issuer` is borrowed. Its keys are read again no sooner than `again_ns` after the last time. A file is read at once,
 * while there are rights: ERROR_INVALID. */
struct source *source_new(const struct issuer *issuer, uint64_t again_ns, struct error *err) MUST_USE;
/** Starts its thread, which fetches a URL at once and reads both anew within an hour. `fetched(context)` is called on
 * it after each time, whether it came to something or not. */
bool source_start(struct source *source, void (*fetched)(void *context), void *context, struct error *err) MUST_USE;
/** Ends the thread, within about a second. */
void source_stop(struct source *source);
/** NULL is allowed. Stopped before. */
void source_free(struct source *source);

/** Newer keys are wanted: true when they are on their way, and `fetched` will be called. Within `again_ns` none are,
 * but `always`. */
bool source_want(struct source *source, bool always) MUST_USE;

/** The keys there are, NULL: none yet. Held until given back, soon: who brings newer ones waits for that. */
const struct jwks *source_hold(struct source *source) MUST_USE;
/** After each source_hold, also one that gave NULL. */
void source_give_back(struct source *source);
