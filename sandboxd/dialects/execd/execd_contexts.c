/* execd_contexts.c - see execd_contexts.h. */
#include "sandboxd/dialects/execd/execd_contexts.h"

#include "sandboxd/dialects/plane.h"
#include "shared/base/memory.h"
#include "shared/base/text.h"

#include <string.h>

#define KERNELSPEC "jupyter:"

enum { CWD_SHOWN = 1024 }; /* bytes in a record */

/* ---- names ---- */

bool execd_is_session(const struct kernel_view *view)
{
    return text_starts_with(view->id, EXECD_SESSION "_") && strcmp(view->language, "bash") == 0;
}

bool execd_is_command(const char *theirs)
{
    return theirs[0] == 0 || strcmp(theirs, "command") == 0;
}

bool execd_language(const char *theirs, char ours[static DRIVER_NAME_BYTES], struct error *err)
{
    char named[DRIVER_NAME_BYTES];
    struct error ignored = {0};
    if (execd_is_command(theirs))
        return error_set(err, ERROR_INVALID,
                         "language: python, bash, javascript, typescript, or one that the template "
                         "has a Jupyter kernel of");
    return driver_language(theirs, ours, &ignored) ||
           (text_format(named, sizeof named, KERNELSPEC "%s", theirs) && driver_language(named, ours, err)) ||
           error_set(err, ERROR_INVALID, "language: no language is called so");
}

const char *execd_language_shown(const char *ours)
{
    return text_starts_with(ours, KERNELSPEC) ? ours + strlen(KERNELSPEC) : ours;
}

/* ---- calls ---- */

struct kernel_call execd_call(const struct http_request *request, const char *id,
                              void (*done)(void *cookie, const struct verb_answer *answer))
{
    return (struct kernel_call){.sandbox_id = caller_of(request)->claims.sandbox_id,
                                .kernel_id = id,
                                .done = done,
                                .cookie = (void *)(uintptr_t)http_request_number(request)};
}

static struct http_request *find(void *cookie)
{
    return http_request_find(loop_current(), (uint64_t)(uintptr_t)cookie);
}

struct http_request *execd_waiting(void *cookie, const struct verb_answer *answer)
{
    struct http_request *request = find(cookie);
    if (!request || answer->error.kind == ERROR_NONE)
        return request;
    http_reply_error(request, &answer->error);
    return NULL;
}

struct http_request *execd_waiting_start(void *cookie, const struct verb_answer *answer)
{
    struct http_request *request = find(cookie);
    struct error err = answer->error;
    if (!request || err.kind == ERROR_NONE)
        return request;
    if (err.kind == ERROR_INVALID || err.kind == ERROR_CONFLICT || err.kind == ERROR_TIMEOUT)
        err.kind = ERROR_INTERNAL;
    http_reply_error(request, &err);
    return NULL;
}

static struct sandboxes *all_of(const struct http_request *request)
{
    return plane_of(request)->sandboxes;
}

/* ---- removed, interrupted ---- */

static void answer_done(void *cookie, const struct verb_answer *answer)
{
    struct http_request *request = execd_waiting(cookie, answer);
    if (request)
        http_reply_empty(request, 200);
}

/* Whether it may be done: then it is recorded. */
static bool record(struct http_request *request, const char *action, const char *id)
{
    struct error err = {0};
    if (plane_audit(request, &err, action, "kernel=%s", id))
        return true;
    http_reply_error(request, &err);
    return false;
}

void execd_remove(struct http_request *request, const char *id)
{
    struct kernel_call call = execd_call(request, id, answer_done);
    if (record(request, "code.remove", id))
        kernels_remove(all_of(request), &call);
}

struct interruption {
    uint64_t request;
    void (*other)(struct http_request *request);
};

/* The route may need no more than scope code. */
static bool may_command(struct http_request *request)
{
    struct error err = {0};
    const struct capability_claims *claims = &caller_of(request)->claims;
    struct plane_refusal refusal = {
        .action = "refuse", .reason = capability_refusal_name(CAPABILITY_SCOPE_MISSING), .what = "needs=process"};
    if (scope_allows(&claims->scopes, "process"))
        return true;
    error_set(&err, ERROR_CAPABILITY_DENIED, "to end what is no code context needs scope process");
    plane_record_refusal(request, claims, &refusal, &err);
    http_reply_error(request, &err);
    return false;
}

static void on_looked(void *cookie, const struct verb_answer *answer)
{
    AUTO_FREE struct interruption *asked = cookie;
    struct http_request *request = find((void *)(uintptr_t)asked->request);
    if (!request)
        return;
    if (answer->error.kind == ERROR_NOT_FOUND) {
        if (may_command(request))
            asked->other(request);
    } else if (answer->error.kind != ERROR_NONE || answer->kernel_count != 1) {
        http_reply_error(request, &answer->error);
    } else if (execd_is_session(answer->kernels)) {
        if (may_command(request))
            execd_remove(request, answer->kernels->id);
    } else if (record(request, "code.interrupt", answer->kernels->id)) {
        struct kernel_call call = execd_call(request, answer->kernels->id, answer_done);
        kernels_interrupt(all_of(request), &call);
    }
}

void execd_interrupt(struct http_request *request, const char *id, void (*other)(struct http_request *request))
{
    if (!kernel_is_id(id)) {
        if (may_command(request))
            other(request);
        return;
    }
    struct interruption *asked = memory_new(sizeof *asked);
    *asked = (struct interruption){http_request_number(request), other};
    struct kernel_call call = execd_call(request, id, on_looked);
    call.cookie = asked;
    kernels_list(all_of(request), &call);
}

/* ---- run ---- */

/* The code is cut as a command line is, and left out where those are. */
static bool record_run(const struct http_request *request, const struct execd_order *order, struct error *err)
{
    const struct kernel_code *code = &order->code;
    size_t kept = code->size < SPOOL_COMMAND_MAX ? code->size : SPOOL_COMMAND_MAX;
    kept = plane_of(request)->omit_argv ? 0 : text_utf8_prefix(code->code, kept);
    AUTO_TEXT cwd = {0};
    if (code->cwd) {
        text_append_string(&cwd, " cwd=");
        plane_append_shown(&cwd, code->cwd, CWD_SHOWN);
    }
    return plane_audit(request, err, "code.run", "kernel=%s timeout_ms=%llu size=%zu%s%s%.*s", order->id,
                       (unsigned long long)code->timeout_ms, code->size, code->cwd ? cwd.data : "",
                       kept ? " code=" : "", (int)kept, code->code);
}

void execd_run_code(struct http_request *request, const struct execd_order *order)
{
    struct error err = {0};
    if (!kernel_is_id(order->id)) {
        error_set(&err, ERROR_INTERNAL, "no context \"%.64s\" in this sandbox", order->id);
        http_reply_error(request, &err);
        return;
    }
    if (!record_run(request, order, &err)) {
        http_reply_error(request, &err);
        return;
    }
    struct kernel_run *run = execd_cell_new(request, order->kind, order->id);
    kernels_run(all_of(request), caller_of(request)->claims.sandbox_id, order->id, &order->code, run);
}
