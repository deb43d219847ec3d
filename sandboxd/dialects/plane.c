/* plane.c - this plane's part of the audit: a request as a record, and as the text by which a command remembers who
 * wanted it. */
#include "sandboxd/dialects/plane.h"

#include "sandboxd/sandbox/files.h"
#include "sandboxd/sandbox/kernels/kernels.h"
#include "shared/base/clock.h"
#include "shared/base/memory.h"
#include "shared/base/text.h"

#include <sodium.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

enum { CWD_MAX = 1024 };

/* ---- who ---- */

/* The parts of an origin, a line each, in this order. */
enum part { PRINCIPAL, ACTOR, THREAD, LEASE, JTI, LINKS, SCOPE, REMOTE, REQUEST, PARTS };

static void add_part(struct text *text, const char *value)
{
    size_t start = text->length;
    text_append_string(text, value ? value : "");
    for (size_t i = start; i < text->length; i++)
        if (text->data[i] == '\n')
            text->data[i] = ' ';
    text_append(text, "\n", 1);
}

char *plane_origin(const struct http_request *request)
{
    const struct capability_claims *claims = &caller_of(request)->claims;
    struct text text = {0};
    char scope[SCOPE_TEXT_BYTES], links[CAPABILITY_LINKS_TEXT_BYTES];
    scope_format(&claims->scopes, scope);
    capability_links_format(claims, links);
    const char *const parts[PARTS] = {[PRINCIPAL] = claims->principal,
                                      [ACTOR] = claims->actor,
                                      [THREAD] = claims->thread_id,
                                      [LEASE] = claims->lease,
                                      [JTI] = claims->jti,
                                      [LINKS] = links,
                                      [SCOPE] = scope,
                                      [REMOTE] = http_request_remote(request),
                                      [REQUEST] = http_request_id(request)};
    for (int i = 0; i < PARTS; i++)
        add_part(&text, parts[i]);
    return text.data;
}

/* Cuts `origin` up; the record points into it. */
static struct spool_record make_record(char *origin)
{
    const char *parts[PARTS] = {NULL};
    for (int i = 0; i < PARTS && origin; i++) {
        parts[i] = origin;
        origin = strchr(origin, '\n');
        if (origin)
            *origin++ = '\0';
    }
    return (struct spool_record){.outcome = "ok",
                                 .principal = parts[PRINCIPAL],
                                 .actor = parts[ACTOR],
                                 .thread_id = parts[THREAD],
                                 .lease = parts[LEASE],
                                 .jti = parts[JTI],
                                 .links = parts[LINKS],
                                 .scope = parts[SCOPE],
                                 .remote = parts[REMOTE],
                                 .request_id = parts[REQUEST]};
}

/* ---- requests ---- */

/* What may be told of a token whose MAC has not held: nothing that it says. */
static void name_token(const char *token, char to[static 16])
{
    uint8_t hash[crypto_generichash_BYTES_MIN];
    char hex[9] = "";
    if (token) {
        crypto_generichash(hash, sizeof hash, (const uint8_t *)token, strlen(token), NULL, 0);
        text_hex(hex, hash, 4);
    }
    snprintf(to, 16, "%s%s", token ? "bad:" : "none", hex);
}

static void describe_refusal(const struct http_request *request, bool is_known, const struct plane_refusal *refusal,
                             char to[static SPOOL_DETAIL_MAX])
{
    const struct http_route *route = http_request_route(request);
    const char *named = http_request_parameter(request, "sandbox"), *what = refusal->what;
    if (is_known) {
        snprintf(to, SPOOL_DETAIL_MAX, "reason=%s route=%s %s%s%s", refusal->reason, route->method, route->path,
                 what ? " " : "", what ? what : "");
        return;
    }
    char token[16];
    name_token(refusal->token ? refusal->token : http_request_credential(request), token);
    snprintf(to, SPOOL_DETAIL_MAX, "reason=%s token=%s named=%.63s route=%s %s", refusal->reason, token,
             named ? named : "-", route->method, route->path);
}

/* By the word itself: each stands in this program, so their number is bounded. */
static void count_reason(struct plane_reason *table, const char *reason)
{
    for (size_t i = 0; i < PLANE_REASONS; i++) {
        const char *there = NULL;
        if (atomic_compare_exchange_strong(&table[i].reason, &there, reason) || strcmp(there, reason) == 0) {
            metrics_add(&table[i].count, 1);
            return;
        }
    }
}

void plane_record_refusal(const struct http_request *request, const struct capability_claims *claims,
                          const struct plane_refusal *refusal, const struct error *err)
{
    struct spool_record record = {.action = refusal->action,
                                  .outcome = "refused",
                                  .status = error_http_status(err->kind),
                                  .remote = http_request_remote(request),
                                  .request_id = http_request_id(request)};
    char scope[SCOPE_TEXT_BYTES] = "", links[CAPABILITY_LINKS_TEXT_BYTES] = "", detail[SPOOL_DETAIL_MAX];
    if (claims) {
        capability_links_format(claims, links);
        scope_format(&claims->scopes, scope);
        record.principal = claims->principal;
        record.actor = claims->actor;
        record.thread_id = claims->thread_id;
        record.sandbox_id = claims->sandbox_id;
        record.lease = claims->lease;
        record.jti = claims->jti;
    }
    bool is_cut = strcmp(refusal->action, "stream.cut") == 0;
    struct plane_counts *counts = &plane_of(request)->counts;
    count_reason(is_cut ? counts->cut : counts->refused, refusal->reason);
    describe_refusal(request, claims != NULL, refusal, detail);
    record.links = links;
    record.scope = scope;
    record.detail = detail;
    spool_refusal(plane_of(request)->spool, &record);
}

void plane_record_read(const struct http_request *request)
{
    const struct capability_claims *claims = &caller_of(request)->claims;
    char links[CAPABILITY_LINKS_TEXT_BYTES];
    capability_links_format(claims, links);
    struct spool_record record = {.action = "read",
                                  .outcome = "ok",
                                  .principal = claims->principal,
                                  .actor = claims->actor,
                                  .thread_id = claims->thread_id,
                                  .sandbox_id = claims->sandbox_id,
                                  .lease = claims->lease,
                                  .jti = claims->jti,
                                  .links = links,
                                  .remote = http_request_remote(request),
                                  .request_id = http_request_id(request),
                                  .detail = http_request_route(request)->path};
    spool_read(plane_of(request)->spool, &record);
}

/* The identity of a request during which its sandbox counts as used. */
struct staying {
    struct caller caller; /* first: it is the identity's shape */
    struct sandboxes *sandboxes;
    bool has_file;
};

static void staying_free(void *identity)
{
    struct staying *staying = identity;
    const char *sandbox_id = staying->caller.claims.sandbox_id;
    registry_detach(sandboxes_registry(staying->sandboxes), sandbox_id, clock_wall_ms());
    if (staying->has_file)
        files_file_closed(staying->sandboxes, sandbox_id);
    free(staying);
}

static void stay(struct http_request *request, bool has_file)
{
    struct staying *staying = memory_new(sizeof *staying);
    staying->caller = *caller_of(request);
    staying->sandboxes = plane_of(request)->sandboxes;
    staying->has_file = has_file;
    registry_attach(sandboxes_registry(staying->sandboxes), staying->caller.claims.sandbox_id);
    http_request_set_identity(request, staying, staying_free, staying->caller.claims.jti);
}

void plane_stay(struct http_request *request)
{
    stay(request, false);
}

void plane_stay_with_file(struct http_request *request)
{
    stay(request, true);
}

uint64_t plane_deadline_ns(int64_t expires_s)
{
    int64_t left_ms = expires_s * 1000 - clock_wall_ms();
    if (left_ms <= 0)
        left_ms += (int64_t)CAPABILITY_LEEWAY_S * 1000;
    return clock_boot_ns() + (left_ms > 0 ? (uint64_t)left_ms * UINT64_C(1000000) : 0);
}

/* A deed of the request, as `told` has its outcome. */
static bool add_deed(const struct http_request *request, const struct spool_record *told, struct error *err)
{
    AUTO_FREE char *origin = plane_origin(request);
    struct spool_record record = make_record(origin);
    record.action = told->action;
    record.outcome = told->outcome;
    record.status = told->status;
    record.detail = told->detail;
    record.sandbox_id = caller_of(request)->claims.sandbox_id;
    return spool_add(plane_of(request)->spool, &record, err);
}

void plane_append_shown(struct text *to, const char *text, size_t most)
{
    size_t end = to->length + most;
    for (; *text && to->length + 6 < end; text++) {
        unsigned char c = (unsigned char)*text;
        bool is_plain =
            (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || strchr("/._-~+@,", c);
        if (is_plain)
            text_append(to, text, 1);
        else
            text_append_format(to, "%%%02X", c);
    }
    if (*text)
        text_append_string(to, "...");
}

bool plane_audit(const struct http_request *request, struct error *err, const char *action, const char *detail, ...)
{
    char text[SPOOL_DETAIL_MAX];
    va_list list;
    va_start(list, detail);
    (void)vsnprintf(text, sizeof text, detail, list);
    va_end(list);
    struct spool_record record = {.action = action, .outcome = "ok", .detail = text};
    return add_deed(request, &record, err);
}

void plane_record_failure(const struct http_request *request, const char *action, const char *detail, int status,
                          const char *why)
{
    struct error ignored = {0};
    char text[SPOOL_DETAIL_MAX];
    snprintf(text, sizeof text, "%s error=%s", detail, why);
    struct spool_record record = {.action = action, .outcome = "failed", .status = status, .detail = text};
    (void)add_deed(request, &record, &ignored);
}

/* ---- commands ---- */

static void describe_start(const struct plane *plane, const struct process_deed *deed, char *to, size_t size)
{
    const struct command *command = deed->command;
    char title[SPOOL_COMMAND_MAX + 1] = "";
    if (!plane->omit_argv)
        command_title(command, title, sizeof title);
    AUTO_TEXT cwd = {0};
    text_append_string(&cwd, "cwd=");
    plane_append_shown(&cwd, command->cwd ? command->cwd : "", CWD_MAX);
    (void)snprintf(to, size, "id=%s %s%s timeout_ms=%llu stdin=%zu arguments=%zu%s%s", deed->process_id, cwd.data,
                   command->as_root ? " user=root" : "", (unsigned long long)command->timeout_ms, command->input_size,
                   command->argument_count, plane->omit_argv ? "" : " command=", title);
}

static struct metrics_counter *counter_of(struct plane_counts *counts, const char *action)
{
    return strcmp(action, "exec") == 0       ? &counts->commands
           : strcmp(action, "terminal") == 0 ? &counts->terminals
                                             : &counts->kernels;
}

bool plane_command_starts(void *context, const struct process_deed *deed, struct error *err)
{
    struct plane *plane = context;
    char detail[SPOOL_DETAIL_MAX];
    AUTO_FREE char *origin = memory_string(deed->origin);
    struct spool_record record = make_record(origin);
    describe_start(plane, deed, detail, sizeof detail);
    record.action = kernel_is_process(deed->process_id) ? "code.start" : deed->command->terminal ? "terminal" : "exec";
    record.sandbox_id = deed->sandbox_id;
    record.detail = detail;
    metrics_add(counter_of(&plane->counts, record.action), 1);
    return spool_add(plane->spool, &record, err);
}

bool plane_command_takes_input(void *context, const struct process_deed *deed, struct error *err)
{
    const struct plane *plane = context;
    char detail[128];
    AUTO_FREE char *origin = memory_string(deed->origin);
    struct spool_record record = make_record(origin);
    (void)snprintf(detail, sizeof detail, "id=%s", deed->process_id);
    record.action = "stdin";
    record.sandbox_id = deed->sandbox_id;
    record.detail = detail;
    return spool_add(plane->spool, &record, err);
}

bool plane_sandbox_changes(void *context, const struct sandbox_deed *deed, struct error *err)
{
    const struct plane *plane = context;
    char detail[SPOOL_COMMAND_MAX];
    (void)snprintf(detail, sizeof detail, "%s%s%s", deed->detail, deed->why ? " error=" : "",
                   deed->why ? deed->why->message : "");
    const struct spool_record record = {.action = deed->action,
                                        .outcome = deed->why ? "failed" : "ok",
                                        .status = deed->why ? error_http_status(deed->why->kind) : 0,
                                        .sandbox_id = deed->sandbox_id,
                                        .request_id = deed->request_id,
                                        .detail = detail};
    return spool_add(plane->spool, &record, err);
}

void plane_command_ended(void *context, const struct process_deed *deed)
{
    struct plane *plane = context;
    /* init tells a new front all that ended before it, too. */
    if (!deed->origin && spool_knows_end(plane->spool, deed->sandbox_id, deed->process_id))
        return;
    metrics_add(deed->end ? &plane->counts.ended : &plane->counts.not_ended_well, 1);
    char detail[512];
    AUTO_FREE char *origin = memory_string(deed->origin);
    struct spool_record record = make_record(origin);
    const struct process_end *end = deed->end;
    if (end)
        (void)snprintf(detail, sizeof detail, "id=%s exit=%d signal=%d timed_out=%d oom=%d wall_ms=%llu",
                       deed->process_id, end->exit_code, end->signal, end->timed_out, end->oom,
                       (unsigned long long)end->wall_ms);
    else
        (void)snprintf(detail, sizeof detail, "id=%s none: %s", deed->process_id, deed->why ? deed->why->message : "");
    record.action = kernel_is_process(deed->process_id) ? "code.end" : "exec.end";
    record.outcome = end ? "ok" : "failed";
    record.sandbox_id = deed->sandbox_id;
    record.detail = detail;
    spool_end(plane->spool, &record, deed->process_id);
}
