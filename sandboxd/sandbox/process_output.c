/* process_output.c - moving a command's output, and bounding what is kept of it. */
#include "sandboxd/sandbox/sandbox_internal.h"

#include "shared/base/clock.h"

#include <fcntl.h>
#include <unistd.h>

enum { BUDGET_BYTES = 1 << 20 }; /* a turn and stream, so that a flood leaves the loop to others */
enum { WIDE_BYTES = 1 << 20, LEAST_BYTES = 4096 };
enum { WIDE_MAX = 8 }; /* a sandbox: an eighth of what its init's pipes may hold (fs.pipe-user-pages-soft) */
static const uint64_t WIDE_FROM_BYTES = UINT64_C(4) << 20;
static const uint64_t PUNCH_BYTES = UINT64_C(256) << 10; /* punched at least, so that it costs little a byte */

static void on_readable(void *cookie)
{
    process_output_pump(cookie);
}

static void watch(struct process_stream *stream, bool reading)
{
    if (stream->reading == reading || !stream->pipe)
        return;
    stream->reading = reading;
    loop_watch_readable(stream->pipe, reading ? on_readable : NULL, stream);
    if (stream->process->terminal)
        loop_watch_readable(terminal_watch_left(stream->process->terminal), reading ? on_readable : NULL, stream);
}

/* ---- the size of pipes: init's user has so many pages for all it keeps, and beyond them the pipes of the sandbox's
 * next commands would be of two pages (fs.pipe-user-pages-soft, pipe(7)) ---- */

static void set_wide(struct process_stream *stream, bool is_wide)
{
    if (stream->is_wide != is_wide)
        stream->process->sandbox->wide_pipes += is_wide ? 1 : -1;
    stream->is_wide = is_wide;
}

/* A stream that floods gets a wider pipe, so that command and loop take turns less often; a few in a sandbox. Refused:
 * then it stays as it is. */
static void widen(struct process_stream *stream)
{
    if (stream->is_wide || stream->wide_refused || stream->process->terminal ||
        stream->output->length < WIDE_FROM_BYTES || stream->process->sandbox->wide_pipes >= WIDE_MAX)
        return;
    if (fcntl(loop_watch_fd(stream->pipe), F_SETPIPE_SZ, WIDE_BYTES) >= 0)
        set_wide(stream, true);
    else
        stream->wide_refused = true;
}

/* Nobody can write to it any more, but init keeps it until the command is forgotten. */
static void shrink(struct process_stream *stream)
{
    if (!stream->process->terminal)
        (void)fcntl(loop_watch_fd(stream->pipe), F_SETPIPE_SZ, LEAST_BYTES);
}

/* ---- opening and closing ---- */

void process_output_open(struct process_stream *stream, struct output *output, int pipe, bool held)
{
    stream->output = output;
    stream->held_from = output->length;
    stream->held = held;
    stream->process->sandbox->kept_bytes += output_kept(output);
    sandbox_count_descriptors(stream->process->sandbox, 1);
    if (pipe >= 0) {
        stream->pipe = loop_watch_new(stream->process->sandbox->loop, pipe);
        sandbox_count_descriptors(stream->process->sandbox, 1);
        set_wide(stream, fcntl(pipe, F_GETPIPE_SZ) >= WIDE_BYTES); /* by an earlier front */
    } else if (stream->process->terminal) {
        stream->pipe = terminal_watch(stream->process->terminal);
    }
    watch(stream, true);
}

void process_output_end(struct process_stream *stream)
{
    if (!stream->pipe)
        return;
    set_wide(stream, false);
    struct loop_watch *pipe = TAKE(stream->pipe);
    stream->reading = false;
    if (stream->process->terminal) {
        process_close_terminal(stream->process);
        return;
    }
    loop_watch_free(pipe);
    sandbox_count_descriptors(stream->process->sandbox, -1);
}

void process_output_close(struct process_stream *stream)
{
    process_output_end(stream);
    if (!stream->output)
        return;
    stream->process->sandbox->kept_bytes -= output_kept(stream->output);
    sandbox_count_descriptors(stream->process->sandbox, -1);
    output_release(TAKE(stream->output));
}

/* ---- what is kept, and how far a command may run ahead ---- */

static void punch(struct process_stream *stream, uint64_t to)
{
    stream->process->sandbox->kept_bytes -= output_punch(stream->output, to);
}

/* The slowest driver's position; UINT64_MAX without one that wants the stream. */
static uint64_t slowest_driver(const struct process_stream *stream, bool *is_there)
{
    uint64_t position = UINT64_MAX;
    *is_there = false;
    for (const struct process_follower *holder = stream->process->followers; holder; holder = holder->next) {
        if (follower_mode(holder->follower) != FOLLOWER_DRIVER || follower_has_left(holder->follower))
            continue;
        *is_there = true;
        uint64_t read_to = follower_read_to(holder->follower, stream->which);
        position = read_to < position ? read_to : position;
    }
    return position;
}

/* What a driver may be behind. */
static uint64_t leash(const struct process_stream *stream)
{
    bool squeezed = stream->process->sandbox->kept_bytes >= process_kept_max(stream->process->sandbox);
    return squeezed ? PROCESS_SQUEEZED_BYTES : PROCESS_BEHIND_BYTES;
}

/* While the hold lasts, clients of the front before this one may come back, so for its commands the place where it left
 * off counts as a driver that does not read. One that is back need not wait for the others: when it has the stream run
 * so far ahead, their place is given up. */
static bool is_held(const struct process_stream *stream)
{
    bool is_there;
    if (!stream->held || stream->process->sandbox->hold_until == 0)
        return false;
    (void)slowest_driver(stream, &is_there);
    return !is_there || stream->output->length < stream->held_from + leash(stream);
}

static uint64_t slowest(const struct process_stream *stream)
{
    bool is_there;
    uint64_t position = slowest_driver(stream, &is_there);
    return is_held(stream) && stream->held_from < position ? stream->held_from : position;
}

static void tell_drivers(const struct process *process, bool waits)
{
    for (const struct process_follower *holder = process->followers; holder; holder = holder->next)
        if (follower_mode(holder->follower) == FOLLOWER_DRIVER)
            follower_owner_waits(holder->follower, waits);
}

/* How long the stream may become now. */
static uint64_t limit_of(const struct process_stream *stream)
{
    uint64_t position = slowest(stream);
    return position == UINT64_MAX ? UINT64_MAX : position + leash(stream);
}

/* Keeps the last `keep` bytes and what a driver has not read. */
static void trim(struct process_stream *stream, uint64_t keep, uint64_t at_least)
{
    if (!stream->output || is_held(stream))
        return;
    uint64_t length = stream->output->length, position = slowest(stream);
    uint64_t to = length > keep ? length - keep : 0;
    to = position < to ? position : to;
    uint64_t kept_from = stream->output->kept_from;
    if (to > kept_from && to - kept_from >= at_least)
        punch(stream, to);
}

/* Too much is kept in the whole sandbox: the oldest ended commands pay first, then all. */
static void squeeze(struct sandbox *sandbox)
{
    uint64_t max = process_kept_max(sandbox);
    for (struct process *process = sandbox->processes; process && sandbox->kept_bytes > max; process = process->next)
        for (int i = 0; i < OUTPUT_STREAMS && process->state == PROCESS_ENDED; i++)
            trim(&process->streams[i], 0, 1);
    for (struct process *process = sandbox->processes; process && sandbox->kept_bytes > max; process = process->next)
        for (int i = 0; i < OUTPUT_STREAMS; i++)
            trim(&process->streams[i], PROCESS_SQUEEZED_BYTES, 1);
}

static void tell_grown(const struct process *process)
{
    for (const struct process_follower *holder = process->followers; holder; holder = holder->next)
        follower_tell_grown(holder->follower);
}

/* At the limit: wait for the drivers, unless one has read on while we were about to. */
static void wait_for_drivers(struct process_stream *stream)
{
    tell_drivers(stream->process, true);
    watch(stream, stream->output->length < limit_of(stream));
}

/* ---- moving ---- */

void process_output_pump(struct process_stream *stream)
{
    struct process *process = stream->process;
    if (!stream->pipe)
        return;
    uint64_t before = stream->output->length;
    enum output_pumped pumped =
        process->terminal ? terminal_pump(process->terminal, stream->output, limit_of(stream), BUDGET_BYTES)
                          : output_pump(stream->output, loop_watch_fd(stream->pipe), limit_of(stream), BUDGET_BYTES);
    uint64_t grown = stream->output->length - before;
    widen(stream);
    process->sandbox->kept_bytes += grown;
    stream->held = is_held(stream); /* once given up, for good */
    /* Whoever holds the pipe inside may have read back what the command left in it: that never comes. */
    if (process->state == PROCESS_ENDED && pumped == OUTPUT_EMPTY && stream->end_at != UINT64_MAX &&
        stream->end_at > stream->output->length)
        stream->end_at = stream->output->length;
    if (pumped == OUTPUT_END) {
        shrink(stream);
        process_output_end(stream);
    } else if (stream->output->length >= limit_of(stream)) {
        wait_for_drivers(stream);
    } else {
        watch(stream, true);
    }
    if (pumped == OUTPUT_END && stream->output->is_foul) /* ends no command that runs */
        init_link_accuse(process->sandbox->link, "an output's memory holds what did not come by its pipe");
    if (grown) {
        trim(stream, PROCESS_KEPT_BYTES, PUNCH_BYTES);
        if (process->sandbox->kept_bytes > process_kept_max(process->sandbox))
            squeeze(process->sandbox);
        tell_grown(process);
        sandbox_touch(process->sandbox);
    }
    process_check_end(process);
}

void process_output_resume(struct process *process)
{
    bool waited = false;
    for (int i = 0; i < OUTPUT_STREAMS; i++) {
        struct process_stream *stream = &process->streams[i];
        if (!stream->pipe || stream->reading)
            continue;
        wait_for_drivers(stream); /* all there are now: one may have come meanwhile */
        waited = waited || !stream->reading;
    }
    if (!waited)
        tell_drivers(process, false);
}
