/** streams.h - ends running requests whose token holds no more: those that new marks refuse, at once and on every loop;
 *  and, as a last resort, those that outlived the longest time any stream has, or that have a long-lived token on a
 * node that has not heard from its negotiator for too long. What a dialect ends by itself (follow at exp) is the
 * dialect's. */
#pragma once

#include "sandboxd/journal/marks.h"
#include "sandboxd/sandbox/sandboxes.h"
#include "shared/base/cleanup.h"
#include "shared/http/loop.h"

struct streams;

/** `sandboxes` are borrowed, for as long as loops run. */
struct streams *streams_new(struct sandboxes *sandboxes) MUST_USE;
/** After the loops have been freed. NULL is allowed. */
void streams_free(struct streams *streams);
DEFINE_AUTO(streams)

/** To be called on each loop's thread before it serves, and before it ends. */
void streams_loop_started(struct streams *streams, struct loop *loop);
void streams_loop_ending(struct streams *streams, struct loop *loop);

/** A sandbox has ended, and the registry knows: ends the sockets that are attached to one that did, with GONE. Returns
 * at once. Any thread. */
void streams_sandbox_ended(struct streams *streams);

/** For marks_options.cut, with the streams as context: returns at once; marks_cut_done is called when every loop is
 *  through twice: what a loop serves after this began has seen the marks already, and what was served before has
 * reached its sandbox, or is refused. Any thread. */
void streams_cut(void *context, struct marks_batch *batch);
