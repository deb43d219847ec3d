/* node.c - opens a message, asks for what it says, seals the answer. */
#include "sandboxd/dialects/node.h"

#include "sandboxd/dialects/plane.h"
#include "shared/base/clock.h"
#include "shared/base/log.h"
#include "shared/base/memory.h"
#include "shared/base/text.h"

#include <string.h>

/* What a request waits for; its identity while it does. */
struct waiting {
    uint64_t number; /* of the message to answer */
    char sandbox_id[FRONT_LAUNCHER_ID_BYTES];
    bool reused;
};

/* Takes the reference to `answer`. */
static void reply_sealed(struct http_request *request, uint64_t number, json_t *answer)
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

static void reply_error(struct http_request *request, uint64_t number, const struct error *err)
{
    const char *message = err->message;
    reply_sealed(request, number,
                 json_pack("{s:{s:s,s:s%}}", "error", "code", error_code(err->kind), "message", message,
                           text_utf8_prefix(message, strlen(message))));
}

static void *wait_for(struct http_request *request, uint64_t number, const char *sandbox_id)
{
    struct waiting *waiting = memory_new(sizeof *waiting);
    waiting->number = number;
    if (!text_copy(waiting->sandbox_id, sizeof waiting->sandbox_id, sandbox_id))
        waiting->sandbox_id[0] = 0;
    AUTO_REGISTRY_VIEW view = {0};
    waiting->reused = registry_find(sandboxes_registry(plane_of(request)->sandboxes), waiting->sandbox_id, &view);
    http_request_set_identity(request, waiting, free, "negotiator");
    return (void *)(uintptr_t)http_request_number(request);
}

/* NULL when the negotiator is gone, or was told the error. */
static struct http_request *find_waiting(void *cookie, const struct verb_answer *answer)
{
    struct http_request *request = http_request_find(loop_current(), (uint64_t)(uintptr_t)cookie);
    if (!request || answer->error.kind == ERROR_NONE)
        return request;
    const struct waiting *waiting = http_request_identity(request);
    log_warn("node", "refused: %s sandbox=%s", answer->error.message, waiting->sandbox_id);
    reply_error(request, waiting->number, &answer->error);
    return NULL;
}

/* ---- prepare ---- */

static bool parse_env(const json_t *variables, char env[static ENV_BYTES], struct error *err)
{
    const char *name;
    json_t *value;
    if (variables && !json_is_object(variables) && !json_is_null(variables))
        return error_set(err, ERROR_INVALID, "env: an object of strings");
    json_object_foreach ((json_t *)(uintptr_t)variables, name, value) {
        if (!json_is_string(value))
            return error_set(err, ERROR_INVALID, "env: \"%.64s\" is not a string", name);
        if (!env_add(env, name, json_string_value(value), err))
            return false;
    }
    return true;
}

static bool parse_prepare(const json_t *message, struct fl_prepare *prepare, struct error *err)
{
    const char *id, *name, *template_name, *isolation;
    json_int_t cpu_milli, memory_bytes, disk_bytes, pids, deadline, key_epoch;
    json_t *variables = NULL;
    json_error_t wrong;
    if (json_unpack_ex((json_t *)(uintptr_t)message, &wrong, 0, "{s:{s:s,s:s,s:s,s:s,s:I,s:I,s:I,s:I,s:I,s:I,s?o}}",
                       "sandbox", "id", &id, "name", &name, "template", &template_name, "isolation", &isolation,
                       "cpu_milli", &cpu_milli, "memory_bytes", &memory_bytes, "disk_bytes", &disk_bytes, "pids", &pids,
                       "deadline", &deadline, "epoch", &key_epoch, "env", &variables) != 0)
        return error_set(err, ERROR_INVALID, "prepare: %.160s", wrong.text);
    bool in_range = cpu_milli >= 0 && cpu_milli <= UINT32_MAX && memory_bytes >= 0 && disk_bytes >= 0 && pids >= 0 &&
                    pids <= UINT32_MAX && key_epoch >= 1 && key_epoch <= UINT32_MAX;
    *prepare = (struct fl_prepare){.limits = {.cpu_milli = (uint32_t)cpu_milli,
                                              .pids = (uint32_t)pids,
                                              .memory_bytes = (uint64_t)memory_bytes,
                                              .disk_bytes = (uint64_t)disk_bytes},
                                   .deadline_wall_ms = deadline,
                                   .epoch = (uint32_t)key_epoch};
    bool fits = text_copy(prepare->id, sizeof prepare->id, id) &&
                text_copy(prepare->hostname, sizeof prepare->hostname, name) &&
                text_copy(prepare->template_name, sizeof prepare->template_name, template_name) &&
                text_copy(prepare->isolation, sizeof prepare->isolation, isolation);
    if (!in_range || !fits)
        return error_set(err, ERROR_INVALID, "prepare: a field is out of its range");
    return parse_env(variables, prepare->env, err);
}

static void prepared(void *cookie, const struct verb_answer *answer)
{
    struct http_request *request = find_waiting(cookie, answer);
    if (!request)
        return;
    const struct waiting *waiting = http_request_identity(request);
    AUTO_REGISTRY_VIEW view = {0};
    if (!registry_find(sandboxes_registry(plane_of(request)->sandboxes), waiting->sandbox_id, &view)) {
        struct error err = {0};
        error_set(&err, ERROR_GONE, "the sandbox ended while it was made");
        reply_error(request, waiting->number, &err);
        return;
    }
    log_info("node", "sandbox ready sandbox=%s isolation=%s storage=%s reused=%d", view.id, view.isolation,
             view.storage, waiting->reused);
    reply_sealed(request, waiting->number,
                 json_pack("{s:b,s:{s:s,s:s,s:s,s:I,s:b}}", "ok", 1, "sandbox", "id", view.id, "isolation",
                           view.isolation, "storage", view.storage, "disk_bytes", (json_int_t)view.limits.disk_bytes,
                           "reused", waiting->reused));
}

static bool handle_prepare(struct http_request *request, const json_t *message, uint64_t number, struct error *err)
{
    struct fl_prepare prepare;
    if (!parse_prepare(message, &prepare, err))
        return false;
    void *cookie = wait_for(request, number, prepare.id);
    sandboxes_prepare(plane_of(request)->sandboxes, &prepare, prepared, cookie);
    return true;
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
    reply_sealed(request, number, json_pack("{s:b}", "ok", 1));
    return true;
}

static void deadline_moved(void *cookie, const struct verb_answer *answer)
{
    struct http_request *request = find_waiting(cookie, answer);
    if (!request)
        return;
    const struct waiting *waiting = http_request_identity(request);
    reply_sealed(request, waiting->number, json_pack("{s:b}", "ok", 1));
}

static bool handle_deadline(struct http_request *request, const json_t *message, uint64_t number, struct error *err)
{
    const char *id = json_string_value(json_object_get(message, "id"));
    const json_t *deadline = json_object_get(message, "deadline");
    if (!id || !json_is_integer(deadline))
        return error_set(err, ERROR_INVALID, "deadline: id and deadline are needed");
    void *cookie = wait_for(request, number, id);
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
    const struct waiting *waiting = http_request_identity(request);
    json_t *answer = marks_position(plane_of(request)->marks);
    json_object_set_new(answer, "ok", json_true());
    reply_sealed(request, waiting->number, answer);
}

static void marks_settled(void *cookie)
{
    struct page *page = cookie;
    loop_post(page->loop, answer_marks, page);
}

static bool handle_marks(struct http_request *request, const json_t *message, uint64_t number, struct error *err)
{
    (void)wait_for(request, number, "");
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
    struct http_request *request = find_waiting(cookie, answer);
    if (!request)
        return;
    const struct waiting *waiting = http_request_identity(request);
    log_info("node", "the node's key has a new epoch: this front ends, the next one has it");
    reply_sealed(request, waiting->number, json_pack("{s:b}", "ok", 1));
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
    void *cookie = wait_for(request, number, "");
    sandboxes_rekey(plane_of(request)->sandboxes, &rekey, rekeyed, cookie);
    return true;
}

/* ---- beat ---- */

static void handle_beat(struct http_request *request, uint64_t number)
{
    const struct plane *plane = plane_of(request);
    plane->beat(plane->beat_context);
    reply_sealed(request, number, json_pack("{s:b}", "ok", 1));
}

/* ---- the route ---- */

static bool dispatch(struct http_request *request, const json_t *message, uint64_t number, struct error *err)
{
    const char *call = json_string_value(json_object_get(message, "call"));
    if (text_equal(call, "prepare"))
        return handle_prepare(request, message, number, err);
    if (text_equal(call, "destroy"))
        return handle_destroy(request, message, number, err);
    if (text_equal(call, "deadline"))
        return handle_deadline(request, message, number, err);
    if (text_equal(call, "marks"))
        return handle_marks(request, message, number, err);
    if (text_equal(call, "rekey"))
        return handle_rekey(request, message, number, err);
    if (text_equal(call, "beat")) {
        handle_beat(request, number);
        return true;
    }
    return error_set(err, ERROR_INVALID, "call: prepare, destroy, deadline, marks, rekey or beat");
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
    if (!dispatch(request, message, number, &err))
        reply_error(request, number, &err);
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
