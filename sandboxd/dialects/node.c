/* node.c - opens a message, asks for what it says, seals the answer. */
#include "sandboxd/dialects/node.h"

#include "sandboxd/dialects/node_calls.h"
#include "sandboxd/dialects/plane.h"
#include "shared/base/clock.h"
#include "shared/base/log.h"
#include "shared/base/memory.h"
#include "shared/base/text.h"

#include <string.h>

void node_reply(struct http_request *request, uint64_t number, json_t *answer)
{
    AUTO_FREE uint8_t *bytes = NULL;
    size_t size = 0;
    struct error err = {0};
    bool sealed = node_seal_close(plane_of(request)->seal, answer, number, &bytes, &size, NULL, &err);
    json_decref(answer);
    if (sealed)
        http_reply_bytes(request, 200, "application/octet-stream", bytes, size);
    else
        http_reply_error(request, &err);
}

void node_reply_error(struct http_request *request, uint64_t number, const struct error *err)
{
    const char *message = err->message;
    node_reply(request, number,
               json_pack("{s:{s:s,s:s%}}", "error", "code", error_code(err->kind), "message", message,
                         text_utf8_prefix(message, strlen(message))));
}

void *node_wait(struct http_request *request, uint64_t number, const char *sandbox_id)
{
    struct node_waiting *waiting = memory_new(sizeof *waiting);
    waiting->number = number;
    waiting->began_ns = clock_monotonic_ns();
    if (!text_copy(waiting->sandbox_id, sizeof waiting->sandbox_id, sandbox_id))
        waiting->sandbox_id[0] = 0;
    AUTO_REGISTRY_VIEW view = {0};
    waiting->reused = registry_find(sandboxes_registry(plane_of(request)->sandboxes), waiting->sandbox_id, &view);
    http_request_set_identity(request, waiting, free, "negotiator");
    return (void *)(uintptr_t)http_request_number(request);
}

struct http_request *node_find(void *cookie, const struct verb_answer *answer)
{
    struct http_request *request = http_request_find(loop_current(), (uint64_t)(uintptr_t)cookie);
    if (!request || answer->error.kind == ERROR_NONE)
        return request;
    const struct node_waiting *waiting = http_request_identity(request);
    log_warn("node", "refused: %s sandbox=%s", answer->error.message, waiting->sandbox_id);
    node_reply_error(request, waiting->number, &answer->error);
    return NULL;
}

struct http_request *node_find_sandbox(void *cookie, const struct verb_answer *answer, struct registry_view *view)
{
    struct http_request *request = node_find(cookie, answer);
    if (!request)
        return NULL;
    const struct node_waiting *waiting = http_request_identity(request);
    if (registry_find(sandboxes_registry(plane_of(request)->sandboxes), waiting->sandbox_id, view))
        return request;
    struct error err = {0};
    error_set(&err, ERROR_GONE, "the sandbox has ended meanwhile");
    node_reply_error(request, waiting->number, &err);
    return NULL;
}

/* ---- destroy, deadline ---- */

static bool handle_destroy(struct http_request *request, const json_t *message, uint64_t number, struct error *err)
{
    const char *id = json_string_value(json_object_get(message, "id"));
    const char *reason = json_string_value(json_object_get(message, "reason"));
    if (!id || !reason || strlen(id) >= FRONT_LAUNCHER_ID_BYTES)
        return error_set(err, ERROR_INVALID, "destroy: id and reason are needed");
    log_info("node", "destroy sandbox=%s reason=%s", id, reason);
    sandboxes_destroy(plane_of(request)->sandboxes, id, reason);
    node_reply(request, number, json_pack("{s:b}", "ok", 1));
    return true;
}

static void deadline_moved(void *cookie, const struct verb_answer *answer)
{
    struct http_request *request = node_find(cookie, answer);
    if (!request)
        return;
    const struct node_waiting *waiting = http_request_identity(request);
    node_reply(request, waiting->number, json_pack("{s:b}", "ok", 1));
}

static bool handle_deadline(struct http_request *request, const json_t *message, uint64_t number, struct error *err)
{
    const char *id = json_string_value(json_object_get(message, "id"));
    const json_t *deadline = json_object_get(message, "deadline");
    if (!id || !json_is_integer(deadline))
        return error_set(err, ERROR_INVALID, "deadline: id and deadline are needed");
    void *cookie = node_wait(request, number, id);
    sandboxes_set_deadline(plane_of(request)->sandboxes, id, json_integer_value(deadline), deadline_moved, cookie);
    return true;
}

/* ---- marks ---- */

/* A page on its way: the request is on that loop, if it still waits. */
struct page {
    struct loop *loop;
    uint64_t request;
};

static void answer_marks(void *cookie)
{
    AUTO_FREE struct page *page = cookie;
    struct http_request *request = http_request_find(page->loop, page->request);
    if (!request)
        return;
    const struct node_waiting *waiting = http_request_identity(request);
    json_t *answer = marks_position(plane_of(request)->marks);
    json_object_set_new(answer, "ok", json_true());
    node_reply(request, waiting->number, answer);
}

static void marks_settled(void *cookie)
{
    struct page *page = cookie;
    loop_post(page->loop, answer_marks, page);
}

static bool handle_marks(struct http_request *request, const json_t *message, uint64_t number, struct error *err)
{
    (void)!node_wait(request, number, "");
    struct page *page = memory_new(sizeof *page);
    *page = (struct page){.loop = http_request_loop(request), .request = http_request_number(request)};
    if (marks_take(plane_of(request)->marks, message, marks_settled, page, err))
        return true;
    free(page);
    return false;
}

/* ---- rekey ---- */

static void rekeyed(void *cookie, const struct verb_answer *answer)
{
    struct http_request *request = node_find(cookie, answer);
    if (!request)
        return;
    const struct node_waiting *waiting = http_request_identity(request);
    log_info("node", "the node's key has a new epoch: this front ends, the next one has it");
    node_reply(request, waiting->number, json_pack("{s:b}", "ok", 1));
}

static bool handle_rekey(struct http_request *request, const json_t *message, uint64_t number, struct error *err)
{
    const json_t *epoch = json_object_get(message, "epoch");
    struct fl_rekey rekey = {0};
    if (!json_is_integer(epoch) || json_integer_value(epoch) < 2 || json_integer_value(epoch) > UINT32_MAX)
        return error_set(err, ERROR_INVALID, "rekey: epoch: from 2");
    rekey.epoch = (uint32_t)json_integer_value(epoch);
    if (!enrol_box_read(&rekey.box, message, err))
        return false;
    void *cookie = node_wait(request, number, "");
    sandboxes_rekey(plane_of(request)->sandboxes, &rekey, rekeyed, cookie);
    return true;
}

/* ---- beat ---- */

static bool handle_beat(struct http_request *request, const json_t *message UNUSED, uint64_t number,
                        struct error *err UNUSED)
{
    const struct plane *plane = plane_of(request);
    plane->beat(plane->beat_context);
    node_reply(request, number, json_pack("{s:b}", "ok", 1));
    return true;
}

/* ---- the route ---- */

static const struct {
    const char *name;
    node_call_fn *handle;
} CALLS[] = {
    {"prepare", node_prepare},
    {"destroy", handle_destroy},
    {"deadline", handle_deadline},
    {"limits", node_limits},
    {"network", node_network},
    {"pause", node_pause},
    {"resume", node_resume},
    {"snapshot", node_snapshot},
    {"snapshot_drop", node_snapshot_drop},
    {"volume_drop", node_volume_drop},
    {"evidence", node_evidence},
    {"logs", node_logs},
    {"marks", handle_marks},
    {"rekey", handle_rekey},
    {"beat", handle_beat},
};

static bool dispatch(struct http_request *request, const json_t *message, uint64_t number, struct error *err)
{
    const char *name = json_string_value(json_object_get(message, "call"));
    for (size_t i = 0; i < sizeof CALLS / sizeof *CALLS; i++)
        if (text_equal(name, CALLS[i].name))
            return CALLS[i].handle(request, message, number, err);
    return error_set(err, ERROR_INVALID, "call: no call of this node");
}

static void handle_message(struct http_request *request)
{
    size_t size = 0;
    const char *body = http_request_body(request, &size);
    struct error err = {0};
    uint64_t number = 0;
    json_t *message = node_seal_open(plane_of(request)->seal, body, size, clock_wall_ms(), &number, &err);
    if (!message) {
        log_warn("node", "a message was refused: %s remote=%s", err.message, http_request_remote(request));
        http_reply_error(request, &err);
        return;
    }
    http_request_continue(request, json_string_value(json_object_get(message, "request_id")),
                          json_string_value(json_object_get(message, "traceparent")));
    sandboxes_asked_by(json_object_get(message, "request_id") ? http_request_id(request) : NULL);
    if (!dispatch(request, message, number, &err))
        node_reply_error(request, number, &err);
    sandboxes_asked_by(NULL);
    json_decref(message);
}

static const struct http_route ROUTES[] = {
    {"POST", "/node/v1/message", 0, NULL, LINK_MESSAGE_MAX_BYTES, handle_message},
};

const struct http_route *node_routes(size_t *count)
{
    *count = sizeof ROUTES / sizeof *ROUTES;
    return ROUTES;
}
