/* kernels.c - the contexts of a sandbox: how they are asked for, found, and found again. */
#include "sandboxd/sandbox/kernels/kernels.h"

#include "sandboxd/helpers/drivers/bridge.h"
#include "sandboxd/sandbox/kernels/kernels_internal.h"
#include "shared/base/memory.h"
#include "shared/base/random.h"
#include "shared/base/text.h"

#include <string.h>

static const char DEFAULT_LANGUAGE[] = "python";

bool kernel_is_id(const char *id)
{
    return text_is_name(id, KERNEL_ID_BYTES - 1);
}

bool kernel_is_process(const char *process_id)
{
    return text_starts_with(process_id, KERNEL_PREFIX);
}

const char *kernel_state_name(enum kernel_state state)
{
    static const char *const NAMES[] = {
        [KERNEL_STARTING] = "starting", [KERNEL_IDLE] = "idle", [KERNEL_BUSY] = "busy", [KERNEL_LOST] = "lost"};
    return NAMES[state];
}

/* ---- asking ---- */

void kernel_ask_free(struct kernel_ask *ask)
{
    if (!ask)
        return;
    free(ask->code);
    free(ask->cwd);
    kernel_run_release(ask->run);
    free(ask);
}

static struct verb *kernel_verb(struct sandboxes *all, const struct kernel_call *call,
                                void (*work)(struct sandbox *sandbox, struct verb *verb))
{
    struct verb *verb = verb_new(all, call->sandbox_id);
    verb->work = work;
    verb->done = call->done;
    verb->cookie = call->cookie;
    verb->kernel = memory_new(sizeof *verb->kernel);
    if (call->kernel_id && !text_copy(verb->kernel->kernel_id, sizeof verb->kernel->kernel_id, call->kernel_id))
        strcpy(verb->kernel->kernel_id, "?"); /* no context has that id */
    return verb;
}

/* ---- on the sandbox's loop ---- */

struct kernel *kernel_find(const struct sandbox *sandbox, const char *id)
{
    for (struct kernel *kernel = sandbox->kernels; kernel; kernel = kernel->next)
        if (strcmp(kernel->view.id, id) == 0)
            return kernel;
    return NULL;
}

/* Also while its process is being killed. */
static bool is_lost(const struct kernel *kernel)
{
    return kernel->view.state == KERNEL_LOST || (kernel->discards && kernel->after == KERNEL_IS_LOST);
}

struct kernel *kernel_find_number(struct sandboxes *all, const char *sandbox_id, uint64_t number)
{
    struct sandbox *sandbox = sandbox_find(all, sandbox_id);
    for (struct kernel *kernel = sandbox ? sandbox->kernels : NULL; kernel; kernel = kernel->next)
        if (kernel->number == number)
            return kernel;
    return NULL;
}

void kernel_show(const struct kernel *kernel, struct kernel_view *view)
{
    *view = kernel->view;
    if (is_lost(kernel))
        view->state = KERNEL_LOST;
    else
        view->state = !kernel->is_ready                       ? KERNEL_STARTING
                      : kernel->current || kernel->foreign[0] ? KERNEL_BUSY
                                                              : KERNEL_IDLE;
    for (const struct kernel_job *job = kernel->first; job; job = job->next)
        view->waiting++;
}

static void finish_with(const struct kernel *kernel, struct verb *verb)
{
    verb->kernel_views = memory_array(1, sizeof *verb->kernel_views);
    verb->kernel_count = 1;
    kernel_show(kernel, verb->kernel_views);
    verb_finish(verb, NULL);
}

void kernel_finish(struct kernel *kernel, struct verb **list, const struct error *err)
{
    while (*list) {
        struct verb *verb = *list;
        *list = verb->next;
        verb->next = NULL;
        if (err)
            verb_finish(verb, err);
        else
            finish_with(kernel, verb);
    }
}

static void add_verb(struct verb **list, struct verb *verb)
{
    verb->next = *list;
    *list = verb;
}

static struct kernel *find_or_refuse(const struct sandbox *sandbox, struct verb *verb)
{
    struct kernel *kernel = kernel_find(sandbox, verb->kernel->kernel_id);
    struct error err = {0};
    if (kernel && kernel->after != KERNEL_GOES)
        return kernel;
    error_set(&err, ERROR_NOT_FOUND, "no context \"%s\" in this sandbox", verb->kernel->kernel_id);
    verb_finish(verb, &err);
    return NULL;
}

/* Why nothing can be done with it; false. */
static bool set_lost(const struct kernel *kernel, struct error *err)
{
    return error_set(err, ERROR_GONE, "context \"%s\" was lost: %s; its variables are gone, restart it",
                     kernel->view.id, kernel->view.reason);
}

static bool is_alive(const struct kernel *kernel, struct error *err)
{
    return !is_lost(kernel) || set_lost(kernel, err);
}

/* ---- create ---- */

static void find_created(struct sandbox *sandbox, struct kernel *kernel, struct verb *verb)
{
    struct error err = {0};
    const struct kernel_ask *ask = verb->kernel;
    if (kernel->view.language[0] && ask->language[0] && strcmp(kernel->view.language, ask->language) != 0)
        error_set(&err, ERROR_CONFLICT, "context \"%s\" is one of %s, not of %s; remove it, or take another name",
                  kernel->view.id, kernel->view.language, ask->language);
    else if (kernel->after == KERNEL_GOES)
        error_set(&err, ERROR_CONFLICT, "context \"%s\" is being removed; try again", kernel->view.id);
    else if (is_alive(kernel, &err) && !sandbox_wake(sandbox, verb))
        return;
    if (err.kind != ERROR_NONE)
        verb_finish(verb, &err);
    else if (kernel->is_ready && kernel->after == KERNEL_IS_LOST)
        finish_with(kernel, verb);
    else
        add_verb(&kernel->starting, verb);
}

static bool has_room(const struct sandbox *sandbox, struct error *err)
{
    size_t count = 0;
    for (const struct kernel *kernel = sandbox->kernels; kernel; kernel = kernel->next)
        count++;
    return count < KERNELS_MAX ||
           error_set(err, ERROR_NO_CAPACITY, "the sandbox has %d contexts, which is the most; remove one", KERNELS_MAX);
}

static void work_create(struct sandbox *sandbox, struct verb *verb)
{
    struct kernel_ask *ask = verb->kernel;
    if (!ask->kernel_id[0])
        random_id(ask->kernel_id, "ctx");
    struct kernel *kernel = kernel_find(sandbox, ask->kernel_id);
    if (kernel) {
        find_created(sandbox, kernel, verb);
        return;
    }
    struct error err = {0};
    if (!has_room(sandbox, &err)) {
        verb_finish(verb, &err);
        return;
    }
    if (!sandbox_wake(sandbox, verb))
        return;
    kernel = kernel_new(sandbox, ask->kernel_id, ask->language[0] ? ask->language : DEFAULT_LANGUAGE);
    kernel->ground = TAKE(verb->command);
    kernel->is_durable = ask->is_durable;
    if (kernel_start(kernel, ask->timeout_ms, &err)) {
        verb->is_new = true;
        add_verb(&kernel->starting, verb);
        sandbox_touch(sandbox);
        return;
    }
    kernel_free(kernel, &err);
    verb_finish(verb, &err);
}

/* What nobody lives to see, and no clock of nanoseconds ends before. */
static uint64_t within_clock(uint64_t timeout_ms)
{
    static const uint64_t LONGEST_MS = UINT64_C(1) << 42;
    return timeout_ms < LONGEST_MS ? timeout_ms : LONGEST_MS;
}

static void create(struct sandboxes *all, const struct kernel_call *call, const char *language, struct command *command,
                   uint64_t timeout_ms, bool is_durable)
{
    struct verb *verb = kernel_verb(all, call, work_create);
    struct error err = {0};
    verb->command = command;
    verb->kernel->timeout_ms = within_clock(timeout_ms);
    verb->kernel->is_durable = is_durable;
    if (!language || driver_language(language, verb->kernel->language, &err))
        verb_send(verb);
    else
        verb_finish(verb, &err);
}

void kernels_create(struct sandboxes *all, const struct kernel_call *call, const char *language,
                    struct command *command, uint64_t timeout_ms)
{
    create(all, call, language, command, timeout_ms, false);
}

void kernels_create_durable(struct sandboxes *all, const struct kernel_call *call, struct command *command,
                            uint64_t timeout_ms)
{
    create(all, call, "bash", command, timeout_ms, true);
}

/* ---- run ---- */

/* Why the code cannot be taken; false. */
static bool takes_code(const struct kernel *kernel, const struct kernel_ask *ask, struct error *err)
{
    struct kernel_view view;
    kernel_show(kernel, &view);
    bool starts_anew = ask->restarts && kernel->view.language[0];
    if (is_lost(kernel) && !starts_anew)
        return set_lost(kernel, err);
    if (ask->cwd && driver_bridge_spec(kernel->view.language))
        return error_set(err, ERROR_INVALID, "cwd: not in a context of a kernelspec; let the code change its folder");
    if (ask->at_once && (view.state == KERNEL_BUSY || view.waiting > 0))
        return error_set(err, ERROR_CONFLICT, "context \"%s\" is busy: other code runs there", view.id);
    return view.waiting < KERNEL_WAITING_MAX ||
           error_set(err, ERROR_RATE_LIMITED, "%d runs wait in context \"%s\"; send more when some are done",
                     KERNEL_WAITING_MAX, view.id);
}

/* A lost one, for code that asks for it. False: it could not be. */
static bool start_lost(struct kernel *kernel, struct error *err)
{
    if (kernel->view.state == KERNEL_LOST)
        return kernel_start(kernel, 0, err);
    if (is_lost(kernel)) { /* its process is on its way out */
        kernel->after = KERNEL_STARTS_ANEW;
        kernel->anew_ms = 0;
    }
    return true;
}

static void work_run(struct sandbox *sandbox, struct verb *verb)
{
    struct kernel *kernel = find_or_refuse(sandbox, verb);
    struct error err = {0};
    if (!kernel)
        return;
    if (!takes_code(kernel, verb->kernel, &err)) {
        verb_finish(verb, &err);
        return;
    }
    if (!sandbox_wake(sandbox, verb))
        return;
    if (!start_lost(kernel, &err)) {
        verb_finish(verb, &err);
        return;
    }
    kernel_add_job(kernel, verb->kernel);
    sandbox_touch(sandbox);
    verb_finish(verb, NULL);
    kernel_next_job(kernel);
}

void kernels_run(struct sandboxes *all, const char *sandbox_id, const char *kernel_id, const struct kernel_code *code,
                 struct kernel_run *run)
{
    struct kernel_call call = {.sandbox_id = sandbox_id, .kernel_id = kernel_id};
    struct verb *verb = kernel_verb(all, &call, work_run);
    verb->kernel->run = kernel_run_hold(run);
    verb->kernel->timeout_ms = within_clock(code->timeout_ms);
    verb->kernel->silent = code->silent;
    verb->kernel->merges = code->merges;
    verb->kernel->at_once = code->at_once;
    verb->kernel->restarts = code->restarts;
    json_t *text = json_stringn(code->code, code->size);
    verb->kernel->code = text ? json_dumps(text, JSON_ENCODE_ANY) : NULL;
    json_decref(text);
    json_t *cwd = code->cwd ? json_string(code->cwd) : NULL;
    verb->kernel->cwd = cwd ? json_dumps(cwd, JSON_ENCODE_ANY) : NULL;
    json_decref(cwd);
    struct error err = {0};
    if (!verb->kernel->code)
        error_set(&err, ERROR_INVALID, "code: UTF-8 text");
    else if (code->cwd && !verb->kernel->cwd)
        error_set(&err, ERROR_INVALID, "cwd: UTF-8 text");
    else if (strlen(verb->kernel->code) + (verb->kernel->cwd ? strlen(verb->kernel->cwd) : 0) >
             DRIVER_REQUEST_MAX - 256)
        error_set(&err, ERROR_TOO_LARGE, "code: at most %d bytes as JSON", DRIVER_REQUEST_MAX - 256);
    if (err.kind == ERROR_NONE)
        verb_send(verb);
    else
        verb_finish(verb, &err);
}

/* ---- interrupt, restart, remove, list ---- */

static void work_interrupt(struct sandbox *sandbox, struct verb *verb)
{
    struct kernel *kernel = find_or_refuse(sandbox, verb);
    struct error err = {0};
    if (!kernel)
        return;
    if (!is_alive(kernel, &err)) {
        verb_finish(verb, &err);
        return;
    }
    if (!sandbox_wake(sandbox, verb))
        return;
    kernel_interrupt(kernel);
    sandbox_touch(sandbox);
    finish_with(kernel, verb);
}

static void work_restart(struct sandbox *sandbox, struct verb *verb)
{
    struct kernel *kernel = find_or_refuse(sandbox, verb);
    struct error err = {0};
    if (!kernel)
        return;
    if (!kernel->view.language[0]) {
        error_set(&err, ERROR_CONFLICT, "which language context \"%s\" had is not known any more; remove it",
                  kernel->view.id);
        verb_finish(verb, &err);
        return;
    }
    if (!sandbox_wake(sandbox, verb))
        return;
    sandbox_touch(sandbox);
    if (kernel->view.state != KERNEL_LOST) {
        kernel->anew_ms = verb->kernel->timeout_ms;
        add_verb(&kernel->starting, verb);
        if (kernel->after != KERNEL_STARTS_ANEW)
            kernel_end(kernel, KERNEL_STARTS_ANEW, "it was restarted");
    } else if (kernel_start(kernel, verb->kernel->timeout_ms, &err)) {
        add_verb(&kernel->starting, verb);
    } else {
        verb_finish(verb, &err);
    }
}

static void work_remove(struct sandbox *sandbox, struct verb *verb)
{
    struct kernel *kernel = find_or_refuse(sandbox, verb);
    if (!kernel || !sandbox_wake(sandbox, verb))
        return;
    sandbox_touch(sandbox);
    if (kernel->view.state != KERNEL_LOST) {
        add_verb(&kernel->going, verb);
        kernel_end(kernel, KERNEL_GOES, "it was removed");
        return;
    }
    struct error gone = {0};
    struct process *process = process_find(sandbox, kernel->view.process_id);
    if (process && process->end_told)
        process_forget(process);
    kernel_free(kernel, &gone);
    verb_finish(verb, NULL);
}

static void work_list(struct sandbox *sandbox, struct verb *verb)
{
    if (verb->kernel->kernel_id[0]) {
        const struct kernel *kernel = find_or_refuse(sandbox, verb);
        if (kernel)
            finish_with(kernel, verb);
        return;
    }
    verb->kernel_views = memory_array(KERNELS_MAX + FRONT_INIT_COMMANDS, sizeof *verb->kernel_views);
    for (const struct kernel *kernel = sandbox->kernels; kernel; kernel = kernel->next)
        if (kernel->after != KERNEL_GOES && verb->kernel_count < KERNELS_MAX + FRONT_INIT_COMMANDS)
            kernel_show(kernel, &verb->kernel_views[verb->kernel_count++]);
    verb_finish(verb, NULL);
}

void kernels_interrupt(struct sandboxes *all, const struct kernel_call *call)
{
    verb_send(kernel_verb(all, call, work_interrupt));
}

void kernels_restart(struct sandboxes *all, const struct kernel_call *call, uint64_t timeout_ms)
{
    struct verb *verb = kernel_verb(all, call, work_restart);
    verb->kernel->timeout_ms = within_clock(timeout_ms);
    verb_send(verb);
}

void kernels_remove(struct sandboxes *all, const struct kernel_call *call)
{
    verb_send(kernel_verb(all, call, work_remove));
}

void kernels_list(struct sandboxes *all, const struct kernel_call *call)
{
    verb_send(kernel_verb(all, call, work_list));
}

bool kernels_is_deed(const struct verb *verb)
{
    return verb->work == work_create || verb->work == work_run || verb->work == work_interrupt ||
           verb->work == work_restart || verb->work == work_remove;
}

/* ---- an earlier front's ---- */

/* "kernel.<id>.<number>": the id may have dots. */
static bool read_process_id(const char *process_id, char id[static KERNEL_ID_BYTES], unsigned *started)
{
    if (!kernel_is_process(process_id))
        return false;
    const char *from = process_id + strlen(KERNEL_PREFIX), *dot = strrchr(from, '.');
    uint64_t number;
    if (!dot || dot == from || (size_t)(dot - from) >= KERNEL_ID_BYTES ||
        !text_parse_u64(dot + 1, strlen(dot + 1), UINT32_MAX, &number))
        return false;
    memcpy(id, from, (size_t)(dot - from));
    id[dot - from] = 0;
    *started = (unsigned)number;
    return kernel_is_id(id);
}

unsigned kernels_last_start(const struct sandbox *sandbox, const char *id)
{
    unsigned last = 0, number;
    char of[KERNEL_ID_BYTES];
    for (const struct process *process = sandbox->processes; process; process = process->next)
        if (read_process_id(process->view.id, of, &number) && strcmp(of, id) == 0 && number > last)
            last = number;
    for (const struct process_tomb *tomb = sandbox->tombs; tomb; tomb = tomb->next)
        if (read_process_id(tomb->view.id, of, &number) && strcmp(of, id) == 0 && number > last)
            last = number;
    return last;
}

void kernels_adopt(struct sandbox *sandbox)
{
    char id[KERNEL_ID_BYTES];
    unsigned started;
    struct error done = {0};
    for (struct process *process = sandbox->processes; process; process = process->next) {
        if (process->state == PROCESS_STARTING || !read_process_id(process->view.id, id, &started) ||
            kernels_last_start(sandbox, id) != started)
            continue;
        struct kernel *known = kernel_find(sandbox, id);
        bool was_missed = known && known->view.state == KERNEL_LOST && known->started == started &&
                          process->state == PROCESS_RUNNING; /* the connection broke while it was started */
        if (was_missed)
            kernel_free(known, &done);
        if (!known || was_missed)
            kernel_adopt(sandbox, process, id, started);
    }
}

void kernels_free(struct sandbox *sandbox, const struct error *err)
{
    while (sandbox->kernels)
        kernel_free(sandbox->kernels, err);
}
