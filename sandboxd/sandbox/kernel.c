/* kernel.c - one context's process: started, read, ended, found again. */
#include "sandboxd/sandbox/kernels_internal.h"

#include "sandboxd/sandbox/kernel_parser.h"
#include "shared/base/clock.h"
#include "shared/base/log.h"
#include "shared/base/memory.h"
#include "shared/base/text.h"

#include <string.h>

enum {
    CHUNK_BYTES = 64 * 1024,
    BUDGET_BYTES = 1 << 20 /* a turn, so that one context leaves the loop to others */
};
static const uint64_t NS_A_MS = 1000000;
static const uint64_t LARGE_NS = UINT64_C(60) * 1000000000; /* a large line comes whole within this */
static const uint64_t ROOM_LOOK_NS = UINT64_C(50) * 1000000;

/* ---- beginning and end of a record ---- */

struct kernel *kernel_new(struct sandbox *sandbox, const char *id, const char *language)
{
    struct kernel *kernel = memory_new(sizeof *kernel);
    kernel->sandbox = sandbox;
    kernel->number = ++sandbox->kernel_number;
    memcpy(kernel->view.id, id, strlen(id) + 1);
    if (!text_copy(kernel->view.language, sizeof kernel->view.language, language))
        kernel->view.language[0] = 0;
    kernel->view.state = KERNEL_LOST; /* until it has a process */
    struct kernel **at = &sandbox->kernels;
    while (*at)
        at = &(*at)->next;
    *at = kernel;
    return kernel;
}

static void set_large(struct kernel *kernel, bool is_large)
{
    if (kernel->is_large != is_large)
        kernel->sandbox->kernels_large += is_large ? 1U : -1U;
    kernel->is_large = is_large;
    if (!is_large)
        loop_timer_cancel(TAKE(kernel->large_timer));
}

/* Nothing of its process is followed any more. */
static void leave_process(struct kernel *kernel)
{
    follower_close(TAKE(kernel->follower));
    kernel_lines_done(&kernel->lines);
    set_large(kernel, false);
    loop_timer_cancel(TAKE(kernel->again));
    loop_timer_cancel(TAKE(kernel->start_timer));
    kernel->is_ready = false;
}

void kernel_free(struct kernel *kernel, const struct error *err)
{
    struct kernel **at = &kernel->sandbox->kernels;
    while (*at != kernel)
        at = &(*at)->next;
    *at = kernel->next;
    leave_process(kernel);
    kernel_fail_jobs(kernel, err);
    kernel_finish(kernel, &kernel->starting, err);
    kernel_finish(kernel, &kernel->going, err->kind == ERROR_NONE ? NULL : err);
    command_free(kernel->ground);
    free(kernel);
}

void kernel_tell_init(struct kernel *kernel, enum front_init_type type, int number)
{
    struct front_init_message message = {.type = type};
    struct error err = {0};
    if (type == FI_SIGNAL) {
        memcpy(message.as.signal.id, kernel->view.process_id, sizeof message.as.signal.id);
        message.as.signal.number = number;
    } else {
        memcpy(message.as.name.id, kernel->view.process_id, sizeof message.as.name.id);
    }
    if (!sandbox_send(kernel->sandbox, &message, -1, &err))
        log_warn("sandbox", "init was not told of context %s: %s sandbox=%s", kernel->view.id, err.message,
                 kernel->sandbox->facts.id);
}

bool kernel_is_frozen(const struct kernel *kernel)
{
    return kernel->sandbox->freezer && freezer_is_set(kernel->sandbox->freezer);
}

static void on_again(void *cookie)
{
    struct kernel *kernel = cookie;
    kernel->again = NULL;
    kernel_pull(kernel);
}

static void pull_again(struct kernel *kernel, uint64_t after_ns)
{
    if (!kernel->again)
        kernel->again = loop_timer_start(kernel->sandbox->loop, clock_boot_ns() + after_ns, on_again, kernel);
}

void kernel_pull_soon(struct kernel *kernel)
{
    if (kernel->follower)
        pull_again(kernel, 0);
}

/* ---- start ---- */

static bool add_words(struct command *command, const char *const *words, struct error *err)
{
    for (size_t i = 0; words[i]; i++)
        if (!command_add_argument(command, words[i], err))
            return false;
    return true;
}

static bool set_program(struct command *command, const char *language, const struct driver_start *start,
                        struct error *err)
{
    int program = driver_program(language, err);
    if (program < 0 || !command_set_program(command, program, err))
        return false;
    if (start->zygote == DRIVER_ZYGOTE_NONE)
        return true;
    AUTO(command) *zygote = command_new();
    return add_words(zygote, start->zygote_arguments, err) &&
           command_set_zygote(command, (unsigned)start->zygote, TAKE(zygote), err);
}

static bool set_ground(struct command *command, const struct command *ground, struct error *err)
{
    command->cwd = memory_string(ground ? ground->cwd : NULL);
    command->origin = memory_string(ground ? ground->origin : NULL);
    for (size_t i = 0; ground && i < ground->variable_count; i++) {
        const char *equals = strchr(ground->variables[i], '=');
        AUTO_FREE char *name = memory_copy(ground->variables[i], (size_t)(equals - ground->variables[i]));
        name[equals - ground->variables[i]] = 0;
        if (!command_add_variable(command, name, equals + 1, err))
            return false;
    }
    return true;
}

/* The language stands last, so that the next front finds it in the command's title. */
static struct command *make_command(const struct kernel *kernel, struct error *err)
{
    AUTO(command) *command = command_new();
    struct driver_start start = {0};
    if (!driver_context(kernel->view.language, &start, err) || !add_words(command, start.arguments, err) ||
        !command_add_argument(command, kernel->view.language, err) || !set_ground(command, kernel->ground, err) ||
        !set_program(command, kernel->view.language, &start, err))
        return NULL;
    memcpy(command->id, kernel->view.process_id, sizeof command->id);
    command->with_stdin = command->stdin_stays_open = true;
    return TAKE(command);
}

static void on_start_timer(void *cookie);

static void set_start_timer(struct kernel *kernel, uint64_t timeout_ms)
{
    uint64_t until = clock_boot_ns() + timeout_ms * NS_A_MS;
    kernel->start_timer = loop_timer_start(kernel->sandbox->loop, until, on_start_timer, kernel);
}

static void on_start_timer(void *cookie)
{
    struct kernel *kernel = cookie;
    kernel->start_timer = NULL;
    if (kernel_is_frozen(kernel)) {
        set_start_timer(kernel, KERNEL_KILL_MS);
        return;
    }
    struct error err = {0};
    error_set(&err, ERROR_TIMEOUT, "the %s interpreter was not ready in time", kernel->view.language);
    kernel_finish(kernel, &kernel->starting, &err);
    kernel_end(kernel, kernel->was_ready ? KERNEL_IS_LOST : KERNEL_GOES, err.message);
}

static void begin_process(struct kernel *kernel)
{
    kernel->view.state = KERNEL_STARTING;
    kernel->view.oom = false;
    kernel->view.reason[0] = kernel->why[0] = kernel->error[0] = 0;
    kernel->view.execution_count = 0;
    kernel->foreign[0] = kernel->foreign_ended[0] = 0;
    kernel->discards = kernel->in_line = kernel->is_ready = kernel->parsing = false;
    kernel->after = KERNEL_IS_LOST;
    kernel->view.created_ms = clock_wall_ms();
}

bool kernel_start(struct kernel *kernel, uint64_t timeout_ms, struct error *err)
{
    unsigned last = kernels_last_start(kernel->sandbox, kernel->view.id);
    kernel->started = (last > kernel->started ? last : kernel->started) + 1;
    snprintf(kernel->view.process_id, sizeof kernel->view.process_id, KERNEL_PREFIX "%s.%u", kernel->view.id,
             kernel->started);
    struct command *command = make_command(kernel, err);
    if (!command)
        return false;
    begin_process(kernel);
    const uint64_t offsets[OUTPUT_STREAMS] = {0};
    kernel->follower = follower_new(FOLLOWER_DRIVER, offsets, kernel_pull, kernel);
    set_start_timer(kernel, timeout_ms ? timeout_ms : KERNEL_START_MS);
    process_exec(kernel->sandbox->all, kernel->sandbox->facts.id, command, kernel->follower);
    return true;
}

void kernel_adopt(struct sandbox *sandbox, struct process *process, const char *id, unsigned started)
{
    struct error ignored = {0};
    char language[DRIVER_NAME_BYTES] = "";
    const char *last = strrchr(process->view.title, ' ');
    if (!last || !driver_language(last + 1, language, &ignored))
        language[0] = 0; /* its title was cut */
    struct kernel *kernel = kernel_new(sandbox, id, language);
    kernel->started = started;
    memcpy(kernel->view.process_id, process->view.id, sizeof kernel->view.process_id);
    begin_process(kernel);
    kernel->view.created_ms = process->view.started_ms;
    uint64_t offsets[OUTPUT_STREAMS] = {0};
    for (int i = 0; i < OUTPUT_STREAMS; i++)
        offsets[i] = process->streams[i].output ? process->streams[i].output->kept_from : 0;
    kernel->in_line = offsets[OUTPUT_STDOUT] > 0;
    kernel->is_ready = kernel->was_ready = kernel->in_line; /* else what it said is still there */
    if (!kernel->is_ready)
        set_start_timer(kernel, KERNEL_START_MS);
    kernel->follower = follower_new(FOLLOWER_DRIVER, offsets, kernel_pull, kernel);
    process_attach(process, kernel->follower); /* not as a verb: that would wake it */
}

/* ---- end ---- */

void kernel_end(struct kernel *kernel, enum kernel_after after, const char *why)
{
    kernel->after = after;
    kernel->discards = true;
    if (!text_format(kernel->why, sizeof kernel->why, "%.*s", (int)sizeof kernel->why - 1, why))
        kernel->why[0] = 0;
    memcpy(kernel->view.reason, kernel->why, sizeof kernel->why);
    kernel_lose_jobs(kernel);
    kernel_tell_init(kernel, FI_KILL, 0);
    pull_again(kernel, 0); /* what is there is read now, so that the end is seen */
}

/* Its last words go with what it did not say in frames. */
static void find_reason(struct kernel *kernel, const struct process_end *end)
{
    char *to = kernel->view.reason;
    size_t size = sizeof kernel->view.reason;
    kernel->view.oom = end->oom;
    if (end->oom)
        snprintf(to, size, "out of memory: the sandbox's limit ended it");
    else if (kernel->why[0])
        snprintf(to, size, "%s", kernel->why);
    else if (end->signal)
        snprintf(to, size, "its process was ended by signal %d (%s)", end->signal, strsignal(end->signal));
    else
        snprintf(to, size, "its process ended with exit status %d%s%.120s", end->exit_code,
                 kernel->error[0] ? ": " : "", kernel->error);
    to[text_utf8_prefix(to, strlen(to))] = 0;
}

static void start_anew(struct kernel *kernel)
{
    struct error err = {0};
    if (kernel_start(kernel, 0, &err))
        return;
    kernel_finish(kernel, &kernel->starting, &err);
    (void)!text_format(kernel->view.reason, sizeof kernel->view.reason, "%.190s", err.message);
    kernel_lose_jobs(kernel);
}

static void forget_process(struct kernel *kernel)
{
    struct process *process = process_find(kernel->sandbox, kernel->view.process_id);
    if (process && process->end_told)
        process_forget(process);
}

/* It has no process any more; view.reason tells why. */
static void on_lost(struct kernel *kernel)
{
    struct error err = {0}, done = {0};
    enum kernel_after after = kernel->after;
    kernel->view.state = KERNEL_LOST;
    leave_process(kernel);
    kernel->after = KERNEL_IS_LOST;
    if (after == KERNEL_STARTS_ANEW) { /* what waits now was asked for since */
        start_anew(kernel);
        return;
    }
    kernel_lose_jobs(kernel);
    error_set(&err, ERROR_INVALID, "the %s context did not start: %s", kernel->view.language, kernel->view.reason);
    bool never_was = !kernel->was_ready;
    kernel_finish(kernel, &kernel->starting, &err);
    if (after != KERNEL_GOES && !never_was)
        return;
    forget_process(kernel);
    kernel_free(kernel, &done);
}

static void on_process_failed(struct kernel *kernel, const struct error *why)
{
    snprintf(kernel->view.reason, sizeof kernel->view.reason, "%.*s", (int)sizeof kernel->view.reason - 1,
             why->message);
    kernel_finish(kernel, &kernel->starting, why); /* with the kind of error that it is */
    if (!kernel->was_ready)
        kernel_fail_jobs(kernel, why);
    kernel->after = kernel->after == KERNEL_STARTS_ANEW ? KERNEL_IS_LOST : kernel->after;
    on_lost(kernel);
}

/* ---- reading ---- */

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
    pull_again(kernel, clock_boot_ns() - parsing->began_ns); /* half of the time is others' */
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
    if (kernel_is_frozen(kernel)) {
        set_large_timer(kernel);
        return;
    }
    if (kernel_lines_held(&kernel->lines) <= KERNEL_LARGE_BYTES || kernel_waits_for_reader(kernel))
        return; /* it is not the line that is late */
    kernel_end(kernel, KERNEL_IS_LOST, "its process began a frame and did not end it");
}

/* A few large lines of a sandbox at once. */
static bool may_be_large(struct kernel *kernel)
{
    bool is_large = kernel_lines_held(&kernel->lines) > KERNEL_LARGE_BYTES;
    if (!is_large || kernel->is_large) {
        if (!is_large) {
            set_large(kernel, false);
            kernel_lines_shrink(&kernel->lines);
        }
        return true;
    }
    if (kernel->sandbox->kernels_large >= KERNELS_LARGE_MAX) {
        pull_again(kernel, ROOM_LOOK_NS);
        return false;
    }
    set_large(kernel, true);
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
        find_reason(kernel, &item.view->end);
        on_lost(kernel);
        return false;
    case FOLLOWER_FAILED: {
        struct error why = *item.error;
        on_process_failed(kernel, &why);
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
            set_large(kernel, false);
        }
        if (!read_lines(kernel) || !may_be_large(kernel))
            return;
        if (budget == 0) {
            pull_again(kernel, 0);
            return;
        }
        if (!read_output(kernel, buffer, &budget))
            return;
    }
}
