/* follower.c - the two ends of a reader. */
#include "sandboxd/sandbox/follower.h"

#include "shared/base/memory.h"

#include <stdatomic.h>
#include <string.h>

static const uint64_t AT_END_BYTES = UINT64_C(1) << 20; /* of each stream: what a FOLLOWER_AT_END reads at most */

struct follower {
    atomic_uint references;
    enum follower_mode mode;
    struct loop *reader_loop;

    /* reader's loop alone */
    void (*ready)(void *cookie); /* NULL after follower_close */
    void *cookie;
    bool started_told, last_told, placed;
    bool ignored[OUTPUT_STREAMS];
    enum output_stream turn;
    uint64_t cursor[OUTPUT_STREAMS]; /* what is told next */

    /* written by one end, read by the other */
    _Atomic uint64_t read_to[OUTPUT_STREAMS]; /* by the reader: what it has delivered */
    atomic_bool left;                         /* by the reader */
    atomic_bool owner_waits;
    atomic_bool reader_posted, owner_posted; /* a post is under way */
    atomic_bool started, ended, failed;      /* by the owner, each after what it stands for: */
    struct output *outputs[OUTPUT_STREAMS];  /* started */
    struct process_view start_view;          /* started */
    bool begins;                             /* started */
    struct process_view end_view;            /* ended */
    struct error error;                      /* failed */
    _Atomic(struct loop *) owner_loop;       /* NULL until attached */

    /* owner's loop alone */
    void (*moved)(void *owner);
    void *owner;
};

struct follower *follower_new(enum follower_mode mode, const uint64_t offsets[OUTPUT_STREAMS],
                              void (*ready)(void *cookie), void *cookie)
{
    struct follower *follower = memory_new(sizeof *follower);
    follower->references = 1;
    follower->mode = mode;
    follower->reader_loop = loop_current();
    follower->ready = ready;
    follower->cookie = cookie;
    for (int i = 0; i < OUTPUT_STREAMS; i++)
        follower->read_to[i] = follower->cursor[i] = offsets[i];
    return follower;
}

struct follower *follower_hold(struct follower *follower)
{
    atomic_fetch_add(&follower->references, 1);
    return follower;
}

void follower_release(struct follower *follower)
{
    if (!follower || atomic_fetch_sub(&follower->references, 1) != 1)
        return;
    for (int i = 0; i < OUTPUT_STREAMS; i++)
        output_release(follower->outputs[i]);
    free(follower);
}

/* ---- posts ---- */

static void run_on_reader(void *cookie)
{
    struct follower *follower = cookie;
    follower->reader_posted = false; /* before looking: what comes after this is posted anew */
    if (follower->ready)
        follower->ready(follower->cookie);
    follower_release(follower);
}

static void look_reader(struct follower *follower)
{
    if (!atomic_exchange(&follower->reader_posted, true))
        loop_post(follower->reader_loop, run_on_reader, follower_hold(follower));
}

static void run_on_owner(void *cookie)
{
    struct follower *follower = cookie;
    follower->owner_posted = false;
    if (follower->moved)
        follower->moved(follower->owner);
    follower_release(follower);
}

static void look_owner(struct follower *follower)
{
    struct loop *owner_loop = follower->owner_loop;
    if (owner_loop && !atomic_exchange(&follower->owner_posted, true))
        loop_post(owner_loop, run_on_owner, follower_hold(follower));
}

/* ---- the reader's end ---- */

void follower_close(struct follower *follower)
{
    if (!follower)
        return;
    follower->ready = NULL;
    follower->left = true;
    look_owner(follower);
    follower_release(follower);
}

/* A reader at the end starts where the last AT_END_BYTES begin. */
static void place_at_end(struct follower *follower)
{
    for (int i = 0; i < OUTPUT_STREAMS; i++) {
        struct output *output = follower->outputs[i];
        uint64_t length = output ? output->length : 0, kept_from = output ? output->kept_from : 0;
        uint64_t from = length > AT_END_BYTES ? length - AT_END_BYTES : 0;
        follower->read_to[i] = follower->cursor[i] = from > kept_from ? from : kept_from;
    }
    follower->placed = true;
}

static enum follower_what read_stream(struct follower *follower, enum output_stream stream, struct follower_item *item,
                                      void *buffer, size_t size)
{
    struct output *output = follower->outputs[stream];
    if (!output || follower->ignored[stream])
        return FOLLOWER_NOTHING;
    item->stream = stream;
    item->offset = follower->cursor[stream];
    item->size = buffer ? output_read(output, item->offset, buffer, size, &item->gap_to)
                        : output_there(output, item->offset, size, &item->gap_to);
    if (item->gap_to > item->offset) {
        follower->cursor[stream] = item->gap_to;
        return FOLLOWER_GAP;
    }
    return item->size ? FOLLOWER_DATA : FOLLOWER_NOTHING;
}

static enum follower_what read_any(struct follower *follower, struct follower_item *item, void *buffer, size_t size)
{
    enum output_stream first = follower->turn, second = first == OUTPUT_STDOUT ? OUTPUT_STDERR : OUTPUT_STDOUT;
    enum follower_what what = read_stream(follower, first, item, buffer, size);
    if (what != FOLLOWER_NOTHING)
        return what;
    follower->turn = second;
    return read_stream(follower, second, item, buffer, size);
}

static enum follower_what tell_last(struct follower *follower, enum follower_what what)
{
    if (follower->last_told)
        return FOLLOWER_NOTHING;
    follower->last_told = true;
    return what;
}

enum follower_what follower_next(struct follower *follower, struct follower_item *item, void *buffer, size_t size)
{
    *item = (struct follower_item){0};
    /* Read before the streams are: all bytes that belong before the end were there when it was told. */
    bool ended = follower->ended, failed = follower->failed, started = follower->started;
    item->stage = ended || failed ? FOLLOWER_LAST : FOLLOWER_LIVE;
    item->error = &follower->error;
    item->view = &follower->start_view;
    if (follower->last_told)
        return FOLLOWER_NOTHING;
    if (!started)
        return failed ? tell_last(follower, FOLLOWER_FAILED) : FOLLOWER_NOTHING;
    if (!follower->started_told) {
        follower->started_told = true;
        return FOLLOWER_STARTED;
    }
    if (follower->mode == FOLLOWER_AT_END && !ended && !failed)
        return FOLLOWER_NOTHING;
    if (follower->mode == FOLLOWER_AT_END && !follower->placed)
        place_at_end(follower);
    enum follower_what what = read_any(follower, item, buffer, size);
    if (what != FOLLOWER_NOTHING)
        return what;
    item->view = &follower->end_view;
    if (ended)
        return tell_last(follower, FOLLOWER_ENDED);
    return failed ? tell_last(follower, FOLLOWER_FAILED) : FOLLOWER_NOTHING;
}

enum follower_what follower_peek(struct follower *follower, struct follower_item *item, size_t most)
{
    return follower_next(follower, item, NULL, most);
}

int follower_memory(const struct follower *follower, enum output_stream stream)
{
    const struct output *output = follower->started ? follower->outputs[stream] : NULL;
    return output ? output->memory : -1;
}

bool follower_has_begun(const struct follower *follower)
{
    return follower->started && follower->begins;
}

void follower_ignore(struct follower *follower, enum output_stream stream)
{
    follower->ignored[stream] = true;
    follower->read_to[stream] = follower->cursor[stream] = UINT64_MAX;
    if (follower->owner_waits)
        look_owner(follower);
}

void follower_consumed(struct follower *follower, enum output_stream stream, size_t size)
{
    follower->cursor[stream] += size;
    follower->turn = stream == OUTPUT_STDOUT ? OUTPUT_STDERR : OUTPUT_STDOUT;
}

void follower_delivered(struct follower *follower)
{
    if (!follower)
        return;
    for (int i = 0; i < OUTPUT_STREAMS; i++)
        follower->read_to[i] = follower->cursor[i];
    if (follower->owner_waits)
        look_owner(follower);
}

bool follower_skip(struct follower *follower, enum output_stream stream)
{
    enum output_stream other = stream == OUTPUT_STDOUT ? OUTPUT_STDERR : OUTPUT_STDOUT;
    struct output *output = follower->outputs[other];
    follower->turn = other;
    return output && !follower->ignored[other] && output->length > follower->cursor[other];
}

/* ---- the owner's end ---- */

void follower_attach(struct follower *follower, void (*moved)(void *owner), void *owner)
{
    follower->moved = moved;
    follower->owner = owner;
    follower->owner_loop = loop_current();
}

void follower_detach(struct follower *follower)
{
    follower->moved = NULL;
}

bool follower_has_left(const struct follower *follower)
{
    return follower->left;
}

enum follower_mode follower_mode(const struct follower *follower)
{
    return follower->mode;
}

void follower_begins(struct follower *follower)
{
    follower->begins = true;
}

uint64_t follower_read_to(const struct follower *follower, enum output_stream stream)
{
    return follower->read_to[stream];
}

void follower_owner_waits(struct follower *follower, bool waits)
{
    follower->owner_waits = waits;
}

void follower_tell_started(struct follower *follower, struct output *const outputs[OUTPUT_STREAMS],
                           const struct process_view *view)
{
    for (int i = 0; i < OUTPUT_STREAMS; i++)
        if (outputs && outputs[i])
            follower->outputs[i] = output_hold(outputs[i]);
    follower->start_view = *view;
    follower->started = true;
    look_reader(follower);
}

void follower_tell_ended(struct follower *follower, const struct process_view *view)
{
    follower->end_view = *view;
    follower->ended = true;
    look_reader(follower);
}

void follower_tell_failed(struct follower *follower, const struct error *err)
{
    if (follower->ended || follower->failed)
        return;
    follower->error = *err;
    follower->failed = true;
    look_reader(follower);
}

void follower_tell_grown(struct follower *follower)
{
    if (follower->mode != FOLLOWER_AT_END)
        look_reader(follower);
}
