/* kernel_output.c - what one context's process writes: lines, frames, and its end. */
#include "sandboxd/sandbox/kernels/kernels_internal.h"

#include "sandboxd/sandbox/kernels/kernel_parser.h"
#include "shared/base/clock.h"
#include "shared/base/memory.h"

#include <string.h>

enum {
    CHUNK_BYTES = 64 * 1024,
    BUDGET_BYTES = 1 << 20 /* a turn, so that one context leaves the loop to others */
};
static const uint64_t LARGE_NS = UINT64_C(60) * 1000000000; /* a large line comes whole within this */
static const uint64_t ROOM_LOOK_NS = UINT64_C(50) * 1000000;

static void on_ready(struct kernel *kernel, const struct kernel_frame *frame)
{
    memcpy(kernel->view.version, frame->version, sizeof frame->version);
    memcpy(kernel->view.implementation, frame->implementation, sizeof frame->implementation);
    loop_timer_cancel(TAKE(kernel->start_timer));
    kernel->is_ready = kernel->was_ready = true;
    kernel_finish(kernel, &kernel->starting, NULL);
    kernel_next_job(kernel);
}

static void on_broken(struct kernel *kernel, const struct error *err)
{
    char why[160];
    snprintf(why, sizeof why, "its process wrote what is no frame of its driver (%.60s)", err->message);
    kernel_end(kernel, kernel->was_ready ? KERNEL_IS_LOST : KERNEL_GOES, why);
}

static void on_frame(struct kernel *kernel, struct kernel_frame *frame)
{
    if (frame->kind == KERNEL_FRAME_READY)
        on_ready(kernel, frame);
    else if (frame->kind == KERNEL_FRAME_FAILED)
        memcpy(kernel->why, frame->message, sizeof kernel->why);
    else if (frame->kind != KERNEL_FRAME_OTHER)
        kernel_take_frame(kernel, frame);
}

/* What a driver may well have written is only left out. */
static void on_no_frame(struct kernel *kernel, const struct error *err)
{
    AUTO_FREE char *note = memory_printf("[parley: left out: %s]\n", err->message);
    if (err->kind == ERROR_TOO_LARGE)
        kernel_note(kernel, note);
    else
        on_broken(kernel, err);
}

static void on_line(struct kernel *kernel, const char *line, size_t size)
{
    struct kernel_frame frame = {0};
    struct error err = {0};
    if (kernel_frame_parse(line, size, &frame, &err))
        on_frame(kernel, &frame);
    else
        on_no_frame(kernel, &err);
    kernel_frame_done(&frame);
}

/* Kept while a large line is read elsewhere. */
struct parsing {
    struct sandboxes *all;
    char sandbox_id[FRONT_LAUNCHER_ID_BYTES];
    uint64_t number;
    char process_id[FRONT_INIT_ID_BYTES]; /* it may have been started anew since */
    uint64_t began_ns;
};

static void on_parsed(void *cookie, struct kernel_frame *frame, const struct error *err)
{
    AUTO_FREE struct parsing *parsing = cookie;
    struct kernel *kernel = kernel_find_number(parsing->all, parsing->sandbox_id, parsing->number);
    if (!kernel || strcmp(kernel->view.process_id, parsing->process_id) != 0)
        return;
    kernel->parsing = false;
    if (!kernel->discards && frame)
        on_frame(kernel, frame);
    else if (!kernel->discards)
        on_no_frame(kernel, err);
    kernel_pull_later(kernel, clock_boot_ns() - parsing->began_ns); /* half of the time is others' */
}

static void parse_large(struct kernel *kernel, const char *line, size_t size)
{
    struct sandboxes *all = kernel->sandbox->all;
    struct parsing *parsing = memory_new(sizeof *parsing);
    *parsing = (struct parsing){.all = all, .number = kernel->number, .began_ns = clock_boot_ns()};
    memcpy(parsing->sandbox_id, kernel->sandbox->facts.id, sizeof parsing->sandbox_id);
    memcpy(parsing->process_id, kernel->view.process_id, sizeof parsing->process_id);
    kernel->parsing = true;
    kernel_parser_start(all->kernel_parser, line, size, kernel_wants_text(kernel), on_parsed, parsing);
}

/* False: no more now. */
static bool read_lines(struct kernel *kernel)
{
    const char *line;
    size_t size;
    while (!kernel->discards) {
        if (kernel->parsing || kernel_waits_for_reader(kernel))
            return false;
        if (!kernel_lines_next(&kernel->lines, &line, &size))
            return true;
        bool is_cut = kernel->in_line;
        kernel->in_line = false;
        if (!is_cut && size > KERNEL_LARGE_BYTES)
            parse_large(kernel, line, size);
        else if (!is_cut)
            on_line(kernel, line, size);
    }
    return true;
}

static void on_large_timer(void *cookie);

static void set_large_timer(struct kernel *kernel)
{
    kernel->large_timer = loop_timer_start(kernel->sandbox->loop, clock_boot_ns() + LARGE_NS, on_large_timer, kernel);
}

static void on_large_timer(void *cookie)
{
    struct kernel *kernel = cookie;
    kernel->large_timer = NULL;
    if (kernel_lines_held(&kernel->lines) <= KERNEL_LARGE_BYTES)
        return;
    if (kernel_is_frozen(kernel) || kernel->parsing || kernel_waits_for_reader(kernel)) {
        set_large_timer(kernel); /* it is not the line that is late */
        return;
    }
    kernel_end(kernel, KERNEL_IS_LOST, "its process began a frame and did not end it");
}

/* A few large lines of a sandbox at once. */
static bool may_be_large(struct kernel *kernel)
{
    bool is_large = kernel_lines_held(&kernel->lines) > KERNEL_LARGE_BYTES;
    if (!is_large || kernel->is_large) {
        if (!is_large) {
            kernel_set_large(kernel, false);
            kernel_lines_shrink(&kernel->lines);
        }
        return true;
    }
    if (kernel->sandbox->kernels_large >= KERNELS_LARGE_MAX) {
        kernel_pull_later(kernel, ROOM_LOOK_NS);
        return false;
    }
    kernel_set_large(kernel, true);
    set_large_timer(kernel);
    return true;
}

static void keep_error(struct kernel *kernel, const char *data, size_t size)
{
    size_t room = sizeof kernel->error - 1, from = size > room ? size - room : 0, to = 0;
    for (size_t i = from; i < size; i++)
        kernel->error[to++] = (unsigned char)data[i] < 0x20 || (unsigned char)data[i] > 0x7e ? ' ' : data[i];
    while (to > 0 && kernel->error[to - 1] == ' ')
        to--;
    kernel->error[to] = 0;
}

static void on_data(struct kernel *kernel, const struct follower_item *item, const char *data)
{
    struct error err = {0};
    if (item->stream == OUTPUT_STDERR)
        keep_error(kernel, data, item->size);
    else if (!kernel->discards && !kernel_lines_add(&kernel->lines, data, item->size, &err))
        on_broken(kernel, &err);
    follower_consumed(kernel->follower, item->stream, item->size);
    follower_delivered(kernel->follower);
}

/* One step; false when there is no more now, or no kernel any more. */
static bool read_output(struct kernel *kernel, char *buffer, size_t *budget)
{
    struct follower_item item;
    switch (follower_next(kernel->follower, &item, buffer, CHUNK_BYTES)) {
    case FOLLOWER_DATA:
        on_data(kernel, &item, buffer);
        *budget -= item.size < *budget ? item.size : *budget;
        return true;
    case FOLLOWER_STARTED:
        if (kernel->discards) /* it was to end before it began */
            kernel_tell_init(kernel, FI_KILL, 0);
        return true;
    case FOLLOWER_GAP: /* none, of a driver; then a line's beginning is gone */
        if (item.stream == OUTPUT_STDOUT) {
            kernel_lines_done(&kernel->lines);
            kernel->in_line = true;
        }
        return true;
    case FOLLOWER_ENDED:
        kernel_find_reason(kernel, &item.view->end);
        kernel_over(kernel);
        return false;
    case FOLLOWER_FAILED: {
        struct error why = *item.error;
        kernel_not_started(kernel, &why);
        return false;
    }
    case FOLLOWER_NOTHING:
        return false;
    }
    return false;
}

void kernel_pull(void *cookie)
{
    struct kernel *kernel = cookie;
    char buffer[CHUNK_BYTES];
    size_t budget = BUDGET_BYTES;
    loop_timer_cancel(TAKE(kernel->again));
    while (kernel->follower) {
        if (kernel->discards) {
            kernel_lines_done(&kernel->lines);
            kernel_set_large(kernel, false);
        }
        if (!read_lines(kernel) || !may_be_large(kernel))
            return;
        if (budget == 0) {
            kernel_pull_later(kernel, 0);
            return;
        }
        if (!read_output(kernel, buffer, &budget))
            return;
    }
}
