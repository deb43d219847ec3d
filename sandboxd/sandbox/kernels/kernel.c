/* kernel.c - one context's process: started, ended, found again. */
#include "sandboxd/sandbox/kernels/kernels_internal.h"

#include "shared/base/clock.h"
#include "shared/base/log.h"
#include "shared/base/memory.h"
#include "shared/base/text.h"

#include <string.h>

static const uint64_t NS_A_MS = 1000000;

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

void kernel_set_large(struct kernel *kernel, bool is_large)
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
    kernel_set_large(kernel, false);
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

void kernel_pull_later(struct kernel *kernel, uint64_t after_ns)
{
    if (!kernel->again)
        kernel->again = loop_timer_start(kernel->sandbox->loop, clock_boot_ns() + after_ns, on_again, kernel);
}

void kernel_pull_soon(struct kernel *kernel)
{
    if (kernel->follower)
        kernel_pull_later(kernel, 0);
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
        (kernel->is_durable && !command_add_argument(command, KERNEL_DURABLE, err)) ||
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

/* "... kernel durable LANGUAGE" */
static bool is_durable_title(const char *title)
{
    return strstr(title, " kernel " KERNEL_DURABLE " ") != NULL;
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
    kernel->is_durable = is_durable_title(process->view.title);
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
    kernel_pull_later(kernel, 0); /* what is there is read now, so that the end is seen */
}

/* Its last words go with what it did not say in frames. */
void kernel_find_reason(struct kernel *kernel, const struct process_end *end)
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
    if (kernel_start(kernel, kernel->anew_ms, &err))
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
void kernel_over(struct kernel *kernel)
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
    error_set(&err, kernel->going ? ERROR_CONFLICT : ERROR_INVALID, "the %s context did not start: %s",
              kernel->view.language, kernel->view.reason);
    bool never_was = !kernel->was_ready;
    kernel_finish(kernel, &kernel->starting, &err);
    if (after != KERNEL_GOES && !never_was)
        return;
    forget_process(kernel);
    kernel_free(kernel, &done);
}

void kernel_not_started(struct kernel *kernel, const struct error *why)
{
    snprintf(kernel->view.reason, sizeof kernel->view.reason, "%.*s", (int)sizeof kernel->view.reason - 1,
             why->message);
    kernel_finish(kernel, &kernel->starting, why); /* with the kind of error that it is */
    if (!kernel->was_ready)
        kernel_fail_jobs(kernel, why);
    kernel->after = kernel->after == KERNEL_STARTS_ANEW ? KERNEL_IS_LOST : kernel->after;
    kernel_over(kernel);
}
