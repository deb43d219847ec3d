/* run_context.c - code for a context, and what comes of it. */
#include "clients/cli/run_context.h"

#include "clients/cli/cli.h"
#include "clients/cli/context_view.h"

#include "clients/c/remote_kernel.h"

#include "shared/base/memory.h"
#include "shared/base/text.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>

static volatile sig_atomic_t interrupts;

/* A run on its way. */
struct running {
    const struct run_context *wanted;
    const struct grant *grant;
    const char *id;
    struct context_view view;
    struct error error;   /* of showing */
    json_t *collected;    /* --json */
    struct text texts[2]; /* of it: stdout, stderr */
    char status[16];
    int interrupted; /* so often it was told */
};

static void on_interrupt(int number)
{
    (void)number;
    interrupts = interrupts + 1;
}

bool run_context_only(const char *language)
{
    return language && (text_starts_with(language, "jupyter:") || strcmp(language, "typescript") == 0 ||
                        strcmp(language, "ts") == 0);
}

/* ---- events ---- */

static void add_text(struct text *text, const json_t *event)
{
    const json_t *more = json_object_get(event, "text");
    text_append(text, json_is_string(more) ? json_string_value(more) : "", json_string_length(more));
}

static json_t *take_text(struct text *text)
{
    json_t *value = json_stringn(text->data ? text->data : "", text->length);
    text_done(text);
    return value;
}

static json_t *without_type(const json_t *event)
{
    json_t *copy = json_copy((json_t *)(uintptr_t)event);
    json_object_del(copy, "type");
    return copy;
}

static void collect(struct running *running, const json_t *event)
{
    json_t *object = running->collected;
    const char *type = json_string_value(json_object_get(event, "type"));
    if (strcmp(type, "stdout") == 0)
        add_text(&running->texts[0], event);
    else if (strcmp(type, "stderr") == 0)
        add_text(&running->texts[1], event);
    else if (strcmp(type, "display") == 0)
        json_array_append_new(json_object_get(object, "displays"), without_type(event));
    else if (strcmp(type, "result") == 0 || strcmp(type, "error") == 0)
        json_object_set_new(object, type, without_type(event));
    else if (strcmp(type, "done") == 0) {
        json_t *done = without_type(event);
        json_object_update(object, done);
        json_decref(done);
    }
}

static void take_done(struct running *running, const json_t *event)
{
    const char *status = json_string_value(json_object_get(event, "status"));
    if (!text_copy(running->status, sizeof running->status, status))
        memcpy(running->status, "error", 6);
    if (running->wanted->json || strcmp(running->status, "lost") != 0)
        return;
    AUTO_FREE char *reason = cli_member(event, "reason");
    fprintf(stderr, "parley: the context was lost: %s\n", reason);
    if (running->wanted->name)
        fprintf(stderr, "try: parley kernels restart %s\n", running->wanted->name);
}

static bool on_event(void *cookie, const json_t *event)
{
    struct running *running = cookie;
    const char *type = json_string_value(json_object_get(event, "type"));
    if (strcmp(type, "done") == 0)
        take_done(running, event);
    if (running->wanted->json) {
        collect(running, event);
        return true;
    }
    return context_view_event(&running->view, event, &running->error);
}

/* The first Ctrl-C interrupts what runs, the second leaves it. */
static bool on_tick(void *cookie)
{
    struct running *running = cookie;
    int now = interrupts;
    if (now == running->interrupted)
        return true;
    if (now > 1)
        return false;
    running->interrupted = now;
    struct error err = {0};
    if (!remote_kernel_interrupt(running->grant, running->id, NULL, &err))
        fprintf(stderr, "parley: it could not be interrupted: %s\n", err.message);
    return true;
}

/* ---- one run ---- */

static int exit_status(const struct running *running)
{
    if (strcmp(running->status, "timeout") == 0)
        fprintf(stderr, "parley: timed out after %g s\n", running->wanted->timeout_s);
    return strcmp(running->status, "ok") == 0            ? CLI_OK
           : strcmp(running->status, "timeout") == 0     ? CLI_TIMED_OUT
           : strcmp(running->status, "interrupted") == 0 ? 128 + SIGINT
                                                         : CLI_FAILED;
}

/* A context that was lost is there no more; what to do is told with its name. */
static int fail(const struct run_context *wanted, const struct error *err)
{
    AUTO_FREE char *hint = memory_printf("parley kernels restart %s", wanted->name ? wanted->name : "");
    bool is_lost = err->kind == ERROR_GONE && wanted->name && strstr(err->message, "restart it");
    return cli_fail(err, is_lost ? hint : NULL, CLI_NO_SANDBOX);
}

static void print_collected(struct running *running)
{
    json_object_set_new(running->collected, "stdout", take_text(&running->texts[0]));
    json_object_set_new(running->collected, "stderr", take_text(&running->texts[1]));
    cli_print_json(TAKE(running->collected));
}

static int run_in(struct running *running, struct error *err)
{
    const struct run_context *wanted = running->wanted;
    const struct remote_kernel_run run = {.id = running->id,
                                          .code = wanted->code,
                                          .size = wanted->size,
                                          .timeout_s = wanted->timeout_s,
                                          .event = on_event,
                                          .tick = on_tick,
                                          .cookie = running};
    if (remote_kernel_run(running->grant, &run, err)) {
        if (wanted->json)
            print_collected(running);
        return exit_status(running);
    }
    if (interrupts > 1)
        return 128 + SIGINT;
    if (running->error.kind != ERROR_NONE)
        return cli_fail(&running->error, NULL, CLI_NO_SANDBOX);
    return fail(wanted, err);
}

static json_t *new_collected(const struct run_context *wanted, const struct grant *grant, const char *id)
{
    return json_pack("{s:s,s:s,s:s,s:s,s:s,s:s,s:[],s:n,s:n}", "sandbox", grant->sandbox_id, "sandbox_name",
                     grant->sandbox_name, "thread", grant->thread, "context", wanted->name ? wanted->name : id,
                     "stdout", "", "stderr", "", "displays", "result", "error");
}

static int run_created(const struct run_context *wanted, const struct grant *grant, const json_t *view)
{
    struct error err = {0};
    AUTO_FREE char *id = memory_string(json_string_value(json_object_get(view, "id")));
    struct running running = {.wanted = wanted, .grant = grant, .id = id ? id : "", .view = {.save = wanted->save}};
    running.collected = wanted->json ? new_collected(wanted, grant, running.id) : NULL;
    struct sigaction before, action = {.sa_handler = on_interrupt};
    sigemptyset(&action.sa_mask);
    sigaction(SIGINT, &action, &before);
    int status = run_in(&running, &err);
    sigaction(SIGINT, &before, NULL);
    json_decref(running.collected);
    text_done(&running.texts[0]);
    text_done(&running.texts[1]);
    struct error ignored = {0};
    if (!wanted->name)
        (void)!remote_kernel_remove(grant, running.id, &ignored);
    return status;
}

int run_context(const struct run_context *wanted, const struct place *place, const struct grant_request *request,
                struct grant *grant)
{
    const struct remote_kernel_wanted kernel = {
        .language = wanted->language, .id = wanted->name, .cwd = wanted->cwd, .variables = wanted->variables};
    struct error err = {0};
    json_t *view = NULL;
    bool negotiated = false, is_made;
    do {
        cli_tell_grant(grant, wanted->verbose);
        is_made = remote_kernel_create(grant, &kernel, &view, &err);
    } while (!is_made && strstr(err.message, "restart it") == NULL &&
             cli_renew_spent(grant, place, request, &negotiated, &err));
    if (!is_made)
        return fail(wanted, &err);
    int status = run_created(wanted, grant, view);
    json_decref(view);
    return status;
}
