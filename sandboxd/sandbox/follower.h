/** follower.h - one reader of one command's output. It has two ends: the reader's, on the loop of its connection, and
 * the owner's, on the loop of the sandbox. Between them go only "grew to N", "read up to N" and the end: the reader
 * preads the memfd itself. Numbers travel in atomics; a post to the other loop only says "look", and one at a time is
 * under way. Counted: each end holds one, each post holds one. */
#pragma once

#include "sandboxd/sandbox/process_view.h"
#include "shared/base/cleanup.h"
#include "shared/base/error.h"
#include "shared/http/loop.h"

#include <stddef.h>
#include <stdint.h>

enum follower_mode {
    FOLLOWER_DRIVER,  /* the command waits when this reader is PROCESS_BEHIND_BYTES behind */
    FOLLOWER_WATCHER, /* never slows the command; gets a stated gap when it is too slow */
    FOLLOWER_AT_END   /* told of the start; reads only when the command has ended, and only what is kept then */
};

struct follower;

/* ---- the reader's end ---- */

/** `ready(cookie)` is called on the calling loop, never before this returns, when follower_next may have more; it may
 *  come once too often. From `offsets` on. */
struct follower *follower_new(enum follower_mode mode, const uint64_t offsets[OUTPUT_STREAMS],
                              void (*ready)(void *cookie), void *cookie) MUST_USE;

/** The reader leaves: no call comes any more. NULL is allowed. */
void follower_close(struct follower *follower);

enum follower_what {
    FOLLOWER_NOTHING, /* for now */
    FOLLOWER_STARTED, /* once, first: item->view */
    FOLLOWER_DATA,  /* item->size bytes of item->stream at item->offset in the caller's buffer; say follower_consumed */
    FOLLOWER_GAP,   /* item->offset..item->gap_to of item->stream are gone */
    FOLLOWER_ENDED, /* once, after all data before the end: item->view; the last */
    FOLLOWER_FAILED /* once, the last: item->error */
};

struct follower_item {
    enum follower_stage {
        FOLLOWER_LIVE,
        FOLLOWER_LAST
    } stage; /* LAST: the command has ended, what is read is the rest */
    enum output_stream stream;
    uint64_t offset, gap_to;
    size_t size;
    const struct process_view *view; /* valid while the follower is */
    const struct error *error;
};

/** What comes next. DATA is told again until consumed. */
enum follower_what follower_next(struct follower *follower, struct follower_item *item, void *buffer,
                                 size_t size) MUST_USE;

/** As follower_next, but DATA is not read: item->size bytes (at most `most`) are there to be taken from
 *  follower_memory, at item->offset. What a FOLLOWER_DRIVER has not consumed stays there; under others it may become
 *  zeros meanwhile. */
enum follower_what follower_peek(struct follower *follower, struct follower_item *item, size_t most) MUST_USE;

/** The file that holds a started command's stream at the stream's offsets; -1 when nothing is kept. Borrowed, good as
 *  long as the follower. */
int follower_memory(const struct follower *follower, enum output_stream stream) MUST_USE;

/** After STARTED: whether the command was begun for this reader, and not there before it asked. */
bool follower_has_begun(const struct follower *follower) MUST_USE;

/** Nothing of this stream is wanted: it is told no more, and the command does not wait for it. */
void follower_ignore(struct follower *follower, enum output_stream stream);

/** `size` bytes of the DATA just told are on their way: what comes next is behind them. */
void follower_consumed(struct follower *follower, enum output_stream stream, size_t size);

/** All that was consumed so far is out of this process (in the kernel, on its way to the client): only now may it be
 *  forgotten, for a kill -9 loses no more of it. Without this a driver stays where it is.
 *  NULL is allowed. */
void follower_delivered(struct follower *follower);

/** Turns to the other stream for the next DATA: this one's rest must wait for more bytes. True when there is another
 *  stream with data now. */
bool follower_skip(struct follower *follower, enum output_stream stream) MUST_USE;

/* ---- the owner's end ---- */

/** Another holder; the owner takes one when it attaches. */
struct follower *follower_hold(struct follower *follower) MUST_USE;
void follower_release(struct follower *follower);

/** From now on moved(owner) is called on the calling loop when the reader left, or has read on and the owner waits. */
void follower_attach(struct follower *follower, void (*moved)(void *owner), void *owner);
void follower_detach(struct follower *follower);

bool follower_has_left(const struct follower *follower) MUST_USE;
enum follower_mode follower_mode(const struct follower *follower) MUST_USE;
/** Before it is told as started: the command is begun for this reader. */
void follower_begins(struct follower *follower);
/** How far the reader has delivered. */
uint64_t follower_read_to(const struct follower *follower, enum output_stream stream) MUST_USE;
/** Whether the owner wants to hear of every step of the reader: set before looking at follower_read_to. */
void follower_owner_waits(struct follower *follower, bool waits);

/** Each at most once; of a command that has ended already, the end first. `outputs` (held by the follower from now on)
 * may be NULL: nothing is kept. */
void follower_tell_started(struct follower *follower, struct output *const outputs[OUTPUT_STREAMS],
                           const struct process_view *view);
void follower_tell_ended(struct follower *follower, const struct process_view *view);
void follower_tell_failed(struct follower *follower, const struct error *err);
/** There are more bytes. */
void follower_tell_grown(struct follower *follower);
