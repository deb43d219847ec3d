/* kernel_jobs.c - what a context runs: one after the other, each in its time, each told to who asked for it. */
#include "sandboxd/sandbox/kernels/kernels_internal.h"

#include "shared/base/clock.h"
#include "shared/base/memory.h"
#include "shared/base/random.h"
#include "shared/base/text.h"

#include <inttypes.h>
#include <signal.h>
#include <string.h>

static const uint64_t NS_A_MS = 1000000;
static const size_t EVENT_BYTES = 256; /* of a small event, about */

static void on_time(void *cookie);

static void on_room(void *owner)
{
    kernel_pull(owner);
}

void kernel_look_busy(struct kernel *kernel)
{
    bool is_busy = kernel->current || kernel->foreign[0];
    struct sandbox *sandbox = kernel->sandbox;
    if (is_busy && !kernel->attached)
        registry_attach(sandbox->all->registry, sandbox->facts.id);
    if (!is_busy && kernel->attached)
        registry_detach(sandbox->all->registry, sandbox->facts.id, clock_wall_ms());
    kernel->attached = is_busy;
}

/* ---- the end of a job ---- */

static void job_free(struct kernel_job *job)
{
    kernel_run_detach(job->run);
    kernel_run_release(job->run);
    free(job->code);
    free(job->cwd);
    free(job);
}

static struct kernel_job *pop(struct kernel *kernel)
{
    struct kernel_job *job = kernel->first;
    kernel->first = job->next;
    if (!kernel->first)
        kernel->last = NULL;
    return job;
}

static void stop_clock(struct kernel *kernel)
{
    loop_timer_cancel(TAKE(kernel->timer));
}

static void set_clock(struct kernel *kernel, uint64_t boot_ns)
{
    stop_clock(kernel);
    kernel->timer = loop_timer_start(kernel->sandbox->loop, boot_ns, on_time, kernel);
}

/* `frame` NULL: it is lost. */
static void tell_done(const struct kernel *kernel, struct kernel_job *job, const char *status,
                      const struct kernel_frame *frame)
{
    json_t *body =
        json_pack("{s:s,s:I}", "status", status, "execution_count", (json_int_t)kernel->view.execution_count);
    if (frame && frame->has_exit_code) {
        json_object_set_new(body, "exit_code", json_integer(frame->exit_code));
    } else if (!frame) {
        json_object_set_new(body, "oom", json_boolean(kernel->view.oom));
        json_object_set_new(body, "reason", json_string(kernel->view.reason));
    }
    kernel_run_put(job->run, KERNEL_EVENT_DONE, "done", body, EVENT_BYTES);
    job_free(job);
}

void kernel_lose_jobs(struct kernel *kernel)
{
    stop_clock(kernel);
    kernel->foreign[0] = 0;
    if (kernel->current)
        tell_done(kernel, TAKE(kernel->current), "lost", NULL);
    while (kernel->first)
        tell_done(kernel, pop(kernel), "lost", NULL);
    kernel_look_busy(kernel);
}

static void fail(struct kernel_job *job, const struct error *err)
{
    kernel_run_fail(job->run, err);
    job_free(job);
}

void kernel_fail_jobs(struct kernel *kernel, const struct error *err)
{
    stop_clock(kernel);
    kernel->foreign[0] = 0;
    if (kernel->current)
        fail(TAKE(kernel->current), err);
    while (kernel->first)
        fail(pop(kernel), err);
    kernel_look_busy(kernel);
}

/* ---- time ---- */

static void interrupt_now(struct kernel *kernel)
{
    kernel_tell_init(kernel, FI_SIGNAL, SIGINT);
}

/* What it says until it heeds that is left out where its reader is behind: it must not wait for one that stopped. */
static void interrupt_run(struct kernel *kernel)
{
    if (kernel->current && kernel->current->has_begun) {
        kernel->current->is_interrupted = true;
        kernel_pull_soon(kernel);
    }
    interrupt_now(kernel);
}

/* The first time it is interrupted, and then killed. While there is a foreign run, the time is that one's. */
static void on_time(void *cookie)
{
    struct kernel *kernel = cookie;
    bool *is_over_due = kernel->foreign[0] ? &kernel->foreign_over_due : &kernel->current->is_over_due;
    kernel->timer = NULL;
    if (kernel_is_frozen(kernel)) { /* it could heed nothing */
        set_clock(kernel, clock_boot_ns() + KERNEL_KILL_MS * NS_A_MS);
        return;
    }
    if (*is_over_due) {
        kernel_end(kernel, KERNEL_IS_LOST, "a run was over its timeout and did not heed the interrupt");
        return;
    }
    *is_over_due = true;
    interrupt_run(kernel);
    set_clock(kernel, clock_boot_ns() + KERNEL_KILL_MS * NS_A_MS);
}

static void start_clock(struct kernel *kernel)
{
    if (kernel->current->timeout_ms > 0 && !kernel->timer)
        set_clock(kernel, clock_boot_ns() + kernel->current->timeout_ms * NS_A_MS);
}

void kernel_interrupt(struct kernel *kernel)
{
    if (kernel->current && !kernel->current->has_begun && !kernel->foreign[0])
        kernel->current->interrupts = true;
    else if (kernel->current || kernel->foreign[0])
        interrupt_run(kernel);
}

/* ---- sending ---- */

/* Kept for answers that may come when the context is gone. */
struct sent {
    struct sandboxes *all;
    char sandbox_id[FRONT_LAUNCHER_ID_BYTES];
    uint64_t number;
    char run_id[KERNEL_RUN_ID_BYTES];
};

static struct kernel *find_sender(const struct sent *sent)
{
    struct kernel *kernel = kernel_find_number(sent->all, sent->sandbox_id, sent->number);
    bool is_current = kernel && kernel->current && strcmp(kernel->current->id, sent->run_id) == 0;
    return is_current ? kernel : NULL;
}

/* Then its last words will say why. */
static bool has_ended(const struct kernel *kernel)
{
    const struct process *process = process_find(kernel->sandbox, kernel->view.process_id);
    return !process || process->state == PROCESS_ENDED;
}

static void on_sent(void *cookie, const struct verb_answer *answer)
{
    AUTO_FREE struct sent *sent = cookie;
    struct kernel *kernel = answer->error.kind != ERROR_NONE ? find_sender(sent) : NULL;
    if (!kernel || kernel->current->has_begun || has_ended(kernel))
        return;
    if (answer->error.kind == ERROR_CONFLICT) {
        kernel_end(kernel, KERNEL_IS_LOST, "its process does not read what it is to run any more");
        return;
    }
    if (!kernel->foreign[0])
        stop_clock(kernel);
    fail(TAKE(kernel->current), &answer->error);
    kernel_next_job(kernel);
}

static void on_dropped(void *cookie)
{
    free(cookie);
}

/* The end of its time goes with the run's name, so that the next front knows it: 0 none. */
static void name_job(struct kernel_job *job)
{
    char id[RANDOM_ID_BYTES];
    random_id(id, "run");
    uint64_t until = job->timeout_ms > 0 ? clock_boot_ns() / NS_A_MS + job->timeout_ms : 0;
    (void)!text_format(job->id, sizeof job->id, "%s-%" PRIu64, id, until);
}

static void send(struct kernel *kernel, struct kernel_job *job)
{
    const struct sandbox *sandbox = kernel->sandbox;
    struct sent *sent = memory_new(sizeof *sent);
    *sent = (struct sent){.all = sandbox->all, .number = kernel->number};
    memcpy(sent->sandbox_id, sandbox->facts.id, sizeof sent->sandbox_id);
    name_job(job);
    memcpy(sent->run_id, job->id, sizeof sent->run_id);
    struct verb *verb = verb_new(sandbox->all, sandbox->facts.id);
    verb->work = process_verb_input;
    verb->done = on_sent;
    verb->dropped = on_dropped;
    verb->cookie = sent;
    verb->of_kernel = true;
    memcpy(verb->process_id, kernel->view.process_id, sizeof verb->process_id);
    verb->data =
        (uint8_t *)memory_printf("{\"run\":{\"id\":\"%s\",\"code\":%s,\"silent\":%s%s%s%s}}\n", job->id, job->code,
                                 job->silent ? "true" : "false", job->merges ? ",\"merge\":true" : "",
                                 job->cwd ? ",\"cwd\":" : "", job->cwd ? job->cwd : "");
    verb->size = strlen((const char *)verb->data);
    verb->offset = PROCESS_OFFSET_NONE;
    free(TAKE(job->code));
    free(TAKE(job->cwd));
    verb_send(verb);
}

void kernel_next_job(struct kernel *kernel)
{
    if (!kernel->current && kernel->first && kernel->is_ready && !kernel->discards) {
        kernel->current = pop(kernel);
        kernel_run_attach(kernel->current->run, on_room, kernel);
        send(kernel, kernel->current);
        if (!kernel->foreign[0]) /* else it counts from where that ends */
            start_clock(kernel);
    }
    kernel_look_busy(kernel);
}

void kernel_add_job(struct kernel *kernel, struct kernel_ask *ask)
{
    struct kernel_job *job = memory_new(sizeof *job);
    job->run = TAKE(ask->run);
    job->code = TAKE(ask->code);
    job->cwd = TAKE(ask->cwd);
    job->merges = ask->merges;
    job->timeout_ms = ask->timeout_ms;
    job->silent = ask->silent;
    if (kernel->last)
        kernel->last->next = job;
    else
        kernel->first = job;
    kernel->last = job;
    kernel_run_put(job->run, KERNEL_EVENT_ACCEPTED, "accepted", NULL, 0);
}

/* ---- what a driver says ---- */

bool kernel_waits_for_reader(struct kernel *kernel)
{
    return kernel->current && !kernel->current->is_interrupted && kernel_run_is_full(kernel->current->run);
}

bool kernel_wants_text(const struct kernel *kernel)
{
    return kernel->current && kernel_run_wants_text(kernel->current->run);
}

void kernel_note(struct kernel *kernel, const char *text)
{
    if (kernel->current)
        kernel_run_put(kernel->current->run, KERNEL_EVENT_TOLD, "stderr", json_pack("{s:s}", "text", text),
                       EVENT_BYTES);
}

/* A run that an earlier front began: it has the time that its name says. */
static void see_foreign(struct kernel *kernel, const char *id)
{
    if (strcmp(kernel->foreign, id) == 0 || strcmp(kernel->foreign_ended, id) == 0)
        return;
    memcpy(kernel->foreign, id, strlen(id) + 1);
    kernel->foreign_over_due = false;
    const char *dash = strrchr(id, '-');
    uint64_t until_ms;
    stop_clock(kernel); /* that of what waits behind it starts when it has ended */
    if (dash && text_parse_u64(dash + 1, strlen(dash + 1), UINT64_MAX / NS_A_MS, &until_ms) && until_ms > 0)
        set_clock(kernel, until_ms * NS_A_MS);
    kernel_look_busy(kernel);
}

static void end_foreign(struct kernel *kernel, const char *id)
{
    memcpy(kernel->foreign_ended, id, strlen(id) + 1);
    if (strcmp(kernel->foreign, id) != 0)
        return;
    kernel->foreign[0] = 0;
    stop_clock(kernel);
    if (kernel->current)
        start_clock(kernel);
    kernel_look_busy(kernel);
}

static void on_begun(struct kernel *kernel)
{
    struct kernel_job *job = kernel->current;
    if (job->has_begun)
        return;
    job->has_begun = true;
    if (kernel->foreign[0])
        stop_clock(kernel);
    kernel->foreign[0] = 0;
    start_clock(kernel);
    if (job->interrupts)
        interrupt_run(kernel);
    kernel_run_put(job->run, KERNEL_EVENT_TOLD, "started",
                   json_pack("{s:s,s:I}", "run", job->id, "execution_count", (json_int_t)kernel->view.execution_count),
                   EVENT_BYTES);
}

static void on_done(struct kernel *kernel, const struct kernel_frame *frame)
{
    static const char *const NAMES[] = {
        [KERNEL_FRAME_OK] = "ok", [KERNEL_FRAME_ERRED] = "error", [KERNEL_FRAME_INTERRUPTED] = "interrupted"};
    struct kernel_job *job = TAKE(kernel->current);
    bool is_late = job->is_over_due && frame->status != KERNEL_FRAME_OK;
    stop_clock(kernel);
    memcpy(kernel->foreign_ended, job->id, sizeof kernel->foreign_ended); /* what it left behind may still speak */
    tell_done(kernel, job, is_late ? "timeout" : NAMES[frame->status], frame);
    kernel_next_job(kernel);
}

static const char *type_of(const struct kernel_job *job, enum kernel_frame_kind kind)
{
    static const char *const NAMES[] = {
        [KERNEL_FRAME_STDOUT] = "stdout", [KERNEL_FRAME_STDERR] = "stderr", [KERNEL_FRAME_DISPLAY] = "display",
        [KERNEL_FRAME_RESULT] = "result", [KERNEL_FRAME_CLEAR] = "clear",   [KERNEL_FRAME_ERROR] = "error"};
    return NAMES[kind == KERNEL_FRAME_STDERR && job->merges ? KERNEL_FRAME_STDOUT : kind];
}

/* Whether its reader, who is behind, must do without: but for the error that an interrupt ends with. */
static bool is_left_out(struct kernel_job *job, const struct kernel_frame *frame)
{
    if (!job->is_interrupted || !kernel_run_is_full(job->run))
        return false;
    bool is_told = frame->kind == KERNEL_FRAME_ERROR && frame->cost <= KERNEL_RUN_FULL && !job->told_error;
    job->told_error = job->told_error || is_told;
    return !is_told;
}

static void tell_frame(struct kernel *kernel, struct kernel_frame *frame)
{
    struct kernel_job *job = kernel->current;
    bool is_left = is_left_out(job, frame);
    if (!is_left && frame->text)
        kernel_run_put_text(job->run, type_of(job, frame->kind), TAKE(frame->text), frame->cost);
    else if (!is_left)
        kernel_run_put(job->run, KERNEL_EVENT_TOLD, type_of(job, frame->kind), TAKE(frame->body), frame->cost);
    else if (!job->told_left_out)
        kernel_note(kernel, "[parley: left out: what it wrote once it was interrupted]\n");
    job->told_left_out = job->told_left_out || is_left;
}

/* What is said between runs nobody hears. */
static void take_of_current(struct kernel *kernel, struct kernel_frame *frame)
{
    if (frame->kind == KERNEL_FRAME_STARTED)
        on_begun(kernel);
    else if (frame->kind == KERNEL_FRAME_DONE)
        on_done(kernel, frame);
    else
        tell_frame(kernel, frame);
}

void kernel_take_frame(struct kernel *kernel, struct kernel_frame *frame)
{
    bool is_told = frame->kind == KERNEL_FRAME_STARTED || frame->kind == KERNEL_FRAME_DONE;
    bool is_current = kernel->current && strcmp(frame->run, kernel->current->id) == 0;
    if (is_told && frame->count > 0)
        kernel->view.execution_count = frame->count;
    if (is_current || (!frame->run[0] && !is_told && kernel->current && kernel->current->has_begun))
        take_of_current(kernel, frame);
    else if (frame->kind == KERNEL_FRAME_DONE)
        end_foreign(kernel, frame->run);
    else if (frame->run[0] && !(kernel->current && kernel->current->has_begun))
        see_foreign(kernel, frame->run);
}
