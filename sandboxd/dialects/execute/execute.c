/* execute.c - routes, and the translation between them and the verb. */
#include "sandboxd/dialects/execute/execute.h"

#include "sandboxd/dialects/execute/execute_request.h"
#include "sandboxd/dialects/execute/execute_result.h"
#include "sandboxd/dialects/plane.h"
#include "sandboxd/sandbox/executions/artifacts.h"
#include "sandboxd/sandbox/files.h"
#include "shared/base/clock.h"
#include "shared/base/memory.h"

#include <inttypes.h>
#include <string.h>

enum { BODY_BYTES = 8 * 1024 * 1024, URL_SECONDS = 120 };
static const char ROUTE[] = "/s/{sandbox}/execute",
                  ARTIFACT_ROUTE[] = "/s/{sandbox}/executions/{id}/artifacts/{name...}";
static const uint64_t SECOND_NS = UINT64_C(1000000000);

/* A request that waits for its run. */
struct run {
    struct http_request *request;
    struct execution *execution;
};

/* ---- what it left ---- */

/* The token that URLs hold: the caller's, which may nothing any more, and not for long. False: it cannot be narrowed.
 */
static bool make_token(const struct http_request *request, char to[static CAPABILITY_TEXT_BYTES])
{
    const struct capability_claims *claims = &caller_of(request)->claims;
    int64_t until = clock_wall_ms() / 1000 + URL_SECONDS;
    const struct capability_link link = {
        .scope = "", .expires_at = until < claims->expires_at ? until : claims->expires_at, .note = "artifacts"};
    return capability_attenuate(to, http_request_credential(request), &link, NULL);
}

/* NULL: it is not kept. */
static json_t *url_json(const struct http_request *request, const char *token, const char *execution_id,
                        struct execution_artifact *artifact)
{
    struct plane *plane = plane_of(request);
    const char *base = atomic_load(&plane->url);
    char ticket[ARTIFACT_TICKET_BYTES];
    const struct artifact_name name = {
        .sandbox_id = caller_of(request)->claims.sandbox_id, .execution_id = execution_id, .name = artifact->name};
    if (!artifacts_keep(plane->sandboxes, &name, artifact->file, artifact->size,
                        clock_boot_ns() + URL_SECONDS * SECOND_NS, ticket, NULL))
        return NULL;
    artifact->file = -1;
    AUTO_FREE char *path = execute_result_path(execution_id, artifact->name);
    AUTO_FREE char *url = memory_printf("%s/c/%s/%s?ticket=%s", base ? base : "", token, path, ticket);
    json_t *object = json_object();
    json_object_set_new(object, "url", json_string(url));
    return object;
}

/* What could not be given is counted in *left_out. */
static json_t *artifacts_json(struct http_request *request, const struct execution_result *result, size_t *left_out)
{
    char token[CAPABILITY_TEXT_BYTES], until[24];
    bool has_token = make_token(request, token), has_url = false;
    json_t *artifacts = json_object();
    for (size_t i = 0; i < result->artifact_count; i++) {
        struct execution_artifact *artifact = &result->artifacts[i];
        json_t *value = artifact->data ? execute_result_inline(artifact)
                        : has_token    ? url_json(request, token, result->id, artifact)
                                       : NULL;
        *left_out += value == NULL;
        has_url = has_url || (value && !artifact->data);
        if (value)
            json_object_set_new(artifacts, artifact->name, value);
    }
    if (has_url) { /* whoever made this sandbox for the one run keeps it so long */
        (void)snprintf(until, sizeof until, "%d", URL_SECONDS);
        http_reply_header(request, "X-Parley-Artifacts-For", until);
    }
    return artifacts;
}

/* ---- the run ---- */

static void on_done(void *cookie, struct execution_result *result, const struct error *err)
{
    struct run *run = cookie;
    struct http_request *request = run->request;
    free(run);
    if (err) {
        http_reply_error(request, err);
        return;
    }
    size_t left_out = 0;
    json_t *artifacts = result->artifact_count > 0 ? artifacts_json(request, result, &left_out) : NULL;
    if (left_out > 0)
        text_append_format(&result->streams[OUTPUT_STDERR],
                           "[parley] %zu left out of the artifacts: too many wait for their download\n", left_out);
    http_reply_header(request, "X-Parley-Execution", result->id);
    http_reply_json(request, 200, execute_result_json(result, caller_of(request)->claims.sandbox_id, artifacts));
}

static void on_gone(void *cookie)
{
    struct run *run = cookie;
    execution_cancel(run->execution);
    free(run);
}

/* When its head was here, as boot time, less what a relay before us has used up of the client's time. */
static uint64_t begun_at(const struct http_request *request)
{
    const char *elapsed = http_request_header(request, "x-parley-elapsed-ms");
    uint64_t used_ms = 0, now = clock_boot_ns();
    int64_t since_ms = clock_wall_ms() - caller_of(request)->judged_ms;
    if (elapsed && !text_parse_u64(elapsed, strlen(elapsed), EXECUTE_TIMEOUT_MAX_S * UINT64_C(1000), &used_ms))
        used_ms = 0;
    uint64_t past = (used_ms + (since_ms > 0 ? (uint64_t)since_ms : 0)) * 1000000;
    return now > past ? now - past : 0;
}

/* What its `exec` record, of the same request, does not say. The code is cut and left out as command lines are. */
static bool record(const struct http_request *request, const struct execution_order *order, struct error *err)
{
    const struct execution_file *code = &order->files[0];
    size_t kept = code->size < SPOOL_COMMAND_MAX ? code->size : SPOOL_COMMAND_MAX;
    kept = plane_of(request)->omit_argv ? 0 : text_utf8_prefix(code->data, kept);
    return plane_audit(request, err, "code.execute", "file=%s size=%zu files=%zu%s%.*s", code->path, code->size,
                       order->file_count - 1, kept ? " code=" : "", (int)kept, code->data);
}

static void start(struct http_request *request, const struct execute_request *asked)
{
    struct error err = {0};
    if (!record(request, asked->order, &err)) {
        execution_order_free(asked->order);
        http_reply_error(request, &err);
        return;
    }
    struct run *run = memory_new(sizeof *run);
    double margin = execute_request_margin(asked->timeout_s);
    uint64_t begun = begun_at(request);
    asked->order->answer_by = begun + (uint64_t)((asked->timeout_s - margin) * 1e9);
    asked->order->give_up_at = begun + (uint64_t)((asked->timeout_s - margin / 3) * 1e9);
    asked->order->program->origin = plane_origin(request);
    plane_stay(request);
    run->request = request;
    run->execution = execution_start(plane_of(request)->sandboxes, asked->order, on_done, run);
    http_request_when_gone(request, on_gone, run);
}

static void handle_execute(struct http_request *request)
{
    static const char *const NAMES[] = {NULL};
    struct error err = {0};
    struct execute_request asked;
    const char *sandbox_id = caller_of(request)->claims.sandbox_id;
    json_t *body = http_request_query_only(request, NAMES, &err) ? http_request_json(request, &err) : NULL;
    bool is_read = body && execute_request_parse(&asked, sandbox_id, body, &err);
    json_decref(body);
    if (!is_read)
        http_reply_error(request, &err);
    else if (!asked.order)
        http_reply_json(request, 200, execute_result_bare(1, asked.refusal.message, sandbox_id));
    else
        start(request, &asked);
}

/* ---- a download ---- */

static bool find_artifact(struct http_request *request, bool looks, int *file, uint64_t *size, struct error *err)
{
    static const char *const NAMES[] = {"ticket", NULL};
    struct sandboxes *sandboxes = plane_of(request)->sandboxes;
    const char *ticket = http_request_query(request, "ticket");
    const struct artifact_name name = {.sandbox_id = caller_of(request)->claims.sandbox_id,
                                       .execution_id = http_request_parameter(request, "id"),
                                       .name = http_request_parameter(request, "name")};
    if (!http_request_query_only(request, NAMES, err))
        return false;
    return looks ? artifacts_look(sandboxes, &name, ticket ? ticket : "", file, size, err)
                 : artifacts_take(sandboxes, &name, ticket ? ticket : "", file, size, err);
}

static void handle_artifact(struct http_request *request)
{
    struct error err = {0};
    bool looks = strcmp(http_request_method(request), "HEAD") == 0;
    int file = -1;
    uint64_t size = 0;
    if (!find_artifact(request, looks, &file, &size, &err)) {
        http_reply_error(request, &err);
        return;
    }
    if (looks)
        plane_stay(request);
    else
        plane_stay_with_file(request);
    http_reply_header(request, "Cache-Control", "no-store");
    http_reply_header(request, "X-Content-Type-Options", "nosniff");
    http_reply_header(request, "Content-Disposition", "attachment");
    http_reply_file(request, 200, "application/octet-stream", file, 0, size);
}

/* ---- the table ---- */

json_t *execute_error(const struct http_request *request, const struct error *err)
{
    const struct http_route *route = http_request_route(request);
    if (!route || (strcmp(route->path, ROUTE) != 0 && strcmp(route->path, ARTIFACT_ROUTE) != 0))
        return NULL;
    const struct caller *caller = caller_of(request);
    return execute_result_bare(1, err->message, caller ? caller->claims.sandbox_id : NULL);
}

const struct http_route *execute_routes(size_t *count)
{
    static const struct http_route ROUTES[] = {
        {"POST", "/s/{sandbox}/execute", HTTP_BEARER | HTTP_PATH, "process", BODY_BYTES, handle_execute},
        {"GET", "/s/{sandbox}/executions/{id}/artifacts/{name...}", HTTP_BEARER | HTTP_PATH, "", 0, handle_artifact},
    };
    *count = sizeof ROUTES / sizeof *ROUTES;
    return ROUTES;
}
