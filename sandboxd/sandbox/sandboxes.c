/* sandboxes.c - the whole: loops and their sandboxes, and how verbs reach them. */
#include "sandboxd/sandbox/sandboxes.h"

#include "sandboxd/sandbox/executions/executions_internal.h"
#include "sandboxd/sandbox/kernels/kernel_parser.h"
#include "sandboxd/sandbox/kernels/kernels_internal.h"
#include "sandboxd/sandbox/paused_marks.h"
#include "sandboxd/sandbox/sandbox_internal.h"
#include "shared/base/clock.h"
#include "shared/base/fd.h"
#include "shared/base/memory.h"
#include "shared/base/text.h"

#include <string.h>

/* A post to a loop that has not started yet. */
struct early {
    struct early *next;
    void (*run)(void *cookie);
    void *cookie;
};

static const uint64_t SAMPLE_NS = UINT64_C(2000000000); /* as often as a heartbeat */

struct sandboxes *sandboxes_new(const struct sandboxes_options *options)
{
    struct sandboxes *all = memory_new(sizeof *all);
    all->options = *options;
    pthread_mutex_init(&all->mutex, NULL);
    all->registry = registry_new(options->loops);
    all->templates = template_list_new();
    all->launcher = launcher_link_new(all, options->launcher);
    all->descriptors_max = options->descriptors_max;
    all->executions = execution_book_new();
    all->kernel_parser = kernel_parser_new();
    return all;
}

static void run_early(struct early *early)
{
    for (struct early *next; early; early = next) {
        next = early->next;
        early->run(early->cookie);
        free(early);
    }
}

void sandboxes_free(struct sandboxes *all)
{
    if (!all)
        return;
    all->stopping = true;
    for (unsigned i = 0; i < SANDBOXES_LOOPS_MAX; i++)
        run_early(all->early[i]);
    launcher_link_free(all->launcher);
    registry_free(all->registry);
    template_list_free(all->templates);
    execution_book_free(all->executions);
    kernel_parser_free(all->kernel_parser);
    pthread_mutex_destroy(&all->mutex);
    free(all);
}

bool sandboxes_meet_launcher(struct sandboxes *all, struct fl_identity *identity, struct error *err)
{
    if (!launcher_link_meet(all->launcher, identity, err))
        return false;
    paused_marks_clean(all->options.paused_folder, all->registry);
    return true;
}

struct registry *sandboxes_registry(struct sandboxes *all)
{
    return all->registry;
}

struct template_list *sandboxes_templates(struct sandboxes *all)
{
    return all->templates;
}

/* ---- loops ---- */

void sandboxes_post(struct sandboxes *all, unsigned index, void (*run)(void *cookie), void *cookie)
{
    struct loop *loop = all->loops[index];
    if (!loop) {
        pthread_mutex_lock(&all->mutex);
        loop = all->loops[index];
        if (!loop) {
            struct early **at = &all->early[index];
            while (*at)
                at = &(*at)->next;
            *at = memory_new(sizeof **at);
            **at = (struct early){.run = run, .cookie = cookie};
        }
        pthread_mutex_unlock(&all->mutex);
    }
    if (loop)
        loop_post(loop, run, cookie);
}

static void on_sample_timer(void *cookie)
{
    struct sandboxes *all = cookie;
    struct loop *loop = loop_current();
    unsigned index = loop_index(loop);
    for (struct sandbox *sandbox = all->homes[index]; sandbox; sandbox = sandbox->next)
        sandbox_sample(sandbox);
    artifacts_sweep(all);
    all->sample_timers[index] = loop_timer_start(loop, clock_boot_ns() + SAMPLE_NS, on_sample_timer, all);
}

void sandboxes_loop_started(struct sandboxes *all, struct loop *loop)
{
    unsigned index = loop_index(loop);
    pthread_mutex_lock(&all->mutex);
    all->loops[index] = loop;
    struct early *early = TAKE(all->early[index]);
    pthread_mutex_unlock(&all->mutex);
    if (index == 0)
        launcher_link_start(all->launcher, loop);
    run_early(early);
    on_sample_timer(all);
}

void sandboxes_loop_ending(struct sandboxes *all, struct loop *loop)
{
    unsigned index = loop_index(loop);
    all->stopping = true;
    loop_timer_cancel(TAKE(all->sample_timers[index]));
    execution_removals_drop(all);
    struct error err = {0};
    error_set(&err, ERROR_NODE_UNREACHABLE, "the node is restarting; follow the command by its id and offset");
    while (all->homes[index])
        sandbox_free(all->homes[index], &err);
    kernel_parser_finish(all->kernel_parser);
    if (index == 0)
        launcher_link_stop(all->launcher);
}

void sandboxes_why_gone(struct sandboxes *all, const char *id, struct error *err)
{
    AUTO_REGISTRY_VIEW view = {0};
    if (!registry_find(all->registry, id, &view) || view.state == REGISTRY_LIVE)
        error_set(err, ERROR_NOT_FOUND, "no sandbox %s", id);
    else if (view.state == REGISTRY_ENDING)
        error_set(err, ERROR_GONE, "the sandbox is ending: %s", view.reason);
    else
        error_set(err, ERROR_GONE, "the sandbox has ended: %s", view.reason);
}

/* ---- verbs ---- */

static void verb_free(struct verb *verb)
{
    command_free(verb->command);
    follower_release(verb->follower);
    free(verb->data);
    free(verb->origin);
    free(verb->views);
    free(verb->line);
    fd_drop(verb->fd);
    free(verb->kernel_views);
    kernel_ask_free(verb->kernel);
    free(verb);
}

static void answer(void *cookie)
{
    struct verb *verb = cookie;
    if (verb->done) {
        struct verb_answer told = {.error = verb->error,
                                   .views = verb->views,
                                   .line = verb->line,
                                   .count = verb->view_count,
                                   .kept = &verb->kept,
                                   .metrics = &verb->metrics,
                                   .disk_bytes = verb->disk_bytes,
                                   .fd = TAKE_FD(verb->fd),
                                   .kernels = verb->kernel_views,
                                   .kernel_count = verb->kernel_count,
                                   .is_new = verb->is_new};
        verb->done(verb->cookie, &told);
    }
    verb_free(verb);
}

void verb_finish(struct verb *verb, const struct error *err)
{
    if (err)
        verb->error = *err;
    bool stopping = verb->all->stopping; /* then the loop that asked may be gone */
    if (verb->follower && err && !stopping)
        follower_tell_failed(verb->follower, err);
    if (verb->kernel && verb->kernel->run && err && !stopping)
        kernel_run_fail(verb->kernel->run, err);
    if (!verb->done || stopping) { /* with a follower the answer is told there */
        if (verb->dropped)
            verb->dropped(verb->cookie);
        verb_free(verb);
        return;
    }
    loop_post(verb->asked_on, answer, verb);
}

struct verb *verb_new(struct sandboxes *all, const char *sandbox_id)
{
    struct verb *verb = memory_new(sizeof *verb);
    verb->all = all;
    verb->asked_on = loop_current();
    verb->fd = -1;
    if (!text_copy(verb->sandbox_id, sizeof verb->sandbox_id, sandbox_id))
        verb->sandbox_id[0] = 0; /* no sandbox has that name */
    return verb;
}

static void run_verb(void *cookie)
{
    struct verb *verb = cookie;
    struct sandbox *sandbox = sandbox_find(verb->all, verb->sandbox_id);
    if (sandbox) {
        sandbox_run(sandbox, verb);
        return;
    }
    struct error err = {0};
    sandboxes_why_gone(verb->all, verb->sandbox_id, &err);
    verb_finish(verb, &err);
}

void verb_send(struct verb *verb)
{
    sandboxes_post(verb->all, registry_owner(verb->all->registry, verb->sandbox_id), run_verb, verb);
}

bool process_is_id(const char *id)
{
    return text_is_name(id, FRONT_INIT_ID_BYTES - 1);
}

void process_exec(struct sandboxes *all, const char *sandbox_id, struct command *command, struct follower *follower)
{
    struct verb *verb = verb_new(all, sandbox_id);
    verb->work = process_verb_exec;
    verb->command = command;
    verb->follower = follower_hold(follower);
    verb_send(verb);
}

static struct verb *process_verb(struct sandboxes *all, const struct process_call *call,
                                 void (*work)(struct sandbox *sandbox, struct verb *verb))
{
    struct verb *verb = verb_new(all, call->sandbox_id);
    verb->work = work;
    verb->done = call->done;
    verb->cookie = call->cookie;
    if (call->process_id && !text_copy(verb->process_id, sizeof verb->process_id, call->process_id))
        strcpy(verb->process_id, "?"); /* no command has that id */
    return verb;
}

void process_follow(struct sandboxes *all, const char *sandbox_id, const char *process_id, struct follower *follower)
{
    struct process_call call = {.sandbox_id = sandbox_id, .process_id = process_id};
    struct verb *verb = process_verb(all, &call, process_verb_follow);
    verb->follower = follower_hold(follower);
    verb_send(verb);
}

void process_signal(struct sandboxes *all, const struct process_call *call, int number)
{
    struct verb *verb = process_verb(all, call, process_verb_signal);
    verb->signal = number;
    verb_send(verb);
}

void process_kill(struct sandboxes *all, const struct process_call *call)
{
    verb_send(process_verb(all, call, process_verb_kill));
}

void process_remove(struct sandboxes *all, const struct process_call *call)
{
    verb_send(process_verb(all, call, process_verb_remove));
}

void process_stop(struct sandboxes *all, const struct process_call *call, uint64_t grace_ms)
{
    struct verb *verb = process_verb(all, call, process_verb_stop);
    verb->grace_ms = grace_ms < PROCESS_GRACE_MAX_MS ? grace_ms : PROCESS_GRACE_MAX_MS;
    verb_send(verb);
}

void process_write(struct sandboxes *all, const struct process_call *call, const void *data, size_t size,
                   uint64_t offset, bool eof)
{
    struct verb *verb = process_verb(all, call, process_verb_input);
    verb->data = memory_copy(data, size);
    verb->size = size;
    verb->offset = offset;
    verb->eof = eof;
    verb->origin = memory_string(call->origin);
    verb_send(verb);
}

void process_resize(struct sandboxes *all, const struct process_call *call, unsigned columns, unsigned rows)
{
    struct verb *verb = process_verb(all, call, process_verb_resize);
    verb->columns = columns;
    verb->rows = rows;
    verb_send(verb);
}

void process_list(struct sandboxes *all, const struct process_call *call)
{
    verb_send(process_verb(all, call, process_verb_list));
}
