/* node_sandbox.c - what is done to a living sandbox, to snapshots and to volumes. */
#include "sandboxd/dialects/node_calls.h"

#include "sandboxd/dialects/plane.h"
#include "shared/base/log.h"

#include <inttypes.h>

/* ---- fields ---- */

const char *node_text(const json_t *message, const char *name, struct error *err)
{
    const char *text = json_string_value(json_object_get(message, name));
    if (!text)
        error_set(err, ERROR_INVALID, "%s is needed: a text", name);
    return text;
}

bool node_number(const json_t *message, const char *name, uint64_t highest, uint64_t *value, struct error *err)
{
    const json_t *given = json_object_get(message, name);
    if (!given)
        return true;
    json_int_t number = json_is_integer(given) ? json_integer_value(given) : -1;
    if (number < 0 || (uint64_t)number > highest)
        return error_set(err, ERROR_INVALID, "%s: 0 to %" PRIu64, name, highest);
    *value = (uint64_t)number;
    return true;
}

bool node_limits_read(const json_t *message, struct fl_limits *limits, struct error *err)
{
    uint64_t cpu_milli = 0, memory = 0, disk = 0, pids = 0, open_files = 0, commands = 0, output = 0;
    if (!node_number(message, "cpu_milli", UINT32_MAX, &cpu_milli, err) ||
        !node_number(message, "memory_bytes", INT64_MAX, &memory, err) ||
        !node_number(message, "disk_bytes", INT64_MAX, &disk, err) ||
        !node_number(message, "pids", UINT32_MAX, &pids, err) ||
        !node_number(message, "open_files", UINT32_MAX, &open_files, err) ||
        !node_number(message, "commands", UINT32_MAX, &commands, err) ||
        !node_number(message, "output_bytes", INT64_MAX, &output, err))
        return false;
    *limits = (struct fl_limits){.cpu_milli = (uint32_t)cpu_milli,
                                 .pids = (uint32_t)pids,
                                 .memory_bytes = memory,
                                 .disk_bytes = disk,
                                 .open_files = (uint32_t)open_files,
                                 .commands = (uint32_t)commands,
                                 .output_bytes = output};
    return true;
}

json_t *node_limits_json(const struct fl_limits *limits)
{
    return json_pack("{s:I,s:I,s:I,s:I,s:I,s:I,s:I}", "cpu_milli", (json_int_t)limits->cpu_milli, "memory_bytes",
                     (json_int_t)limits->memory_bytes, "disk_bytes", (json_int_t)limits->disk_bytes, "pids",
                     (json_int_t)limits->pids, "open_files", (json_int_t)limits->open_files, "commands",
                     (json_int_t)limits->commands, "output_bytes", (json_int_t)limits->output_bytes);
}

/* ---- limits ---- */

static void limited(void *cookie, const struct verb_answer *answer)
{
    AUTO_REGISTRY_VIEW view = {0};
    struct http_request *request = node_find_sandbox(cookie, answer, &view);
    if (!request)
        return;
    const struct node_waiting *waiting = http_request_identity(request);
    log_info("node", "limits changed sandbox=%s", view.id);
    node_reply(request, waiting->number, json_pack("{s:b,s:o}", "ok", 1, "limits", node_limits_json(&view.limits)));
}

bool node_limits(struct http_request *request, const json_t *message, uint64_t number, struct error *err)
{
    struct fl_limits limits;
    const char *id = node_text(message, "id", err);
    if (!id || !node_limits_read(message, &limits, err))
        return false;
    void *cookie = node_wait(request, number, id);
    sandboxes_set_limits(plane_of(request)->sandboxes, id, &limits, limited, cookie);
    return true;
}

/* ---- pause, resume ---- */

static void answer_ok(void *cookie, const struct verb_answer *answer)
{
    struct http_request *request = node_find(cookie, answer);
    if (!request)
        return;
    const struct node_waiting *waiting = http_request_identity(request);
    node_reply(request, waiting->number, json_pack("{s:b}", "ok", 1));
}

bool node_pause(struct http_request *request, const json_t *message, uint64_t number, struct error *err)
{
    const char *id = node_text(message, "id", err);
    if (!id)
        return false;
    sandboxes_pause(plane_of(request)->sandboxes, id, answer_ok, node_wait(request, number, id));
    return true;
}

bool node_resume(struct http_request *request, const json_t *message, uint64_t number, struct error *err)
{
    const char *id = node_text(message, "id", err);
    if (!id)
        return false;
    sandboxes_resume(plane_of(request)->sandboxes, id, answer_ok, node_wait(request, number, id));
    return true;
}

/* ---- snapshots, volumes ---- */

static void kept(void *cookie, const struct verb_answer *answer)
{
    struct http_request *request = node_find(cookie, answer);
    if (!request)
        return;
    const struct node_waiting *waiting = http_request_identity(request);
    const struct sandbox_kept *told = answer->kept;
    log_info("node", "snapshot ready sandbox=%s bytes=%" PRIu64, waiting->sandbox_id, told->size_bytes);
    node_reply(request, waiting->number,
               json_pack("{s:b,s:I,s:s,s:s,s:i}", "ok", 1, "size_bytes", (json_int_t)told->size_bytes, "template",
                         told->template_name, "storage", told->storage, "running", (int)told->running));
}

bool node_snapshot(struct http_request *request, const json_t *message, uint64_t number, struct error *err)
{
    const char *id = node_text(message, "id", err);
    const char *snapshot = id ? node_text(message, "snapshot", err) : NULL;
    if (!snapshot)
        return false;
    sandboxes_snapshot(plane_of(request)->sandboxes, id, snapshot, kept, node_wait(request, number, id));
    return true;
}

bool node_snapshot_drop(struct http_request *request, const json_t *message, uint64_t number, struct error *err)
{
    const char *snapshot = node_text(message, "snapshot", err);
    if (!snapshot)
        return false;
    sandboxes_drop_snapshot(plane_of(request)->sandboxes, snapshot, answer_ok, node_wait(request, number, ""));
    return true;
}

bool node_volume_drop(struct http_request *request, const json_t *message, uint64_t number, struct error *err)
{
    const char *owner = node_text(message, "owner", err);
    const char *name = owner ? node_text(message, "name", err) : NULL;
    if (!name)
        return false;
    sandboxes_drop_volume(plane_of(request)->sandboxes, owner, name, answer_ok, node_wait(request, number, ""));
    return true;
}
