/* node_prepare.c - what a sandbox is to be, and what it became. */
#include "sandboxd/dialects/node_calls.h"

#include "sandboxd/dialects/plane.h"
#include "shared/base/clock.h"
#include "shared/base/log.h"
#include "shared/base/text.h"

#include <string.h>

static const char ENTRYPOINT[] = "entrypoint";

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

/* ---- volumes ---- */

/* A text of it; one that is missing is "". */
static bool copy_field(const json_t *from, const char *name, char *to, size_t size, struct error *err)
{
    const json_t *value = json_object_get(from, name);
    if (!value || json_is_null(value))
        return true;
    return (json_is_string(value) && text_copy(to, size, json_string_value(value))) ||
           error_set(err, ERROR_INVALID, "volumes: %s: a text of at most %zu bytes", name, size - 1);
}

static bool parse_volume(const json_t *from, struct fl_volume *volume, struct error *err)
{
    const char *kind = json_string_value(json_object_get(from, "kind"));
    if (text_equal(kind, "named"))
        volume->kind = FL_VOLUME_NAMED;
    else if (text_equal(kind, "host"))
        volume->kind = FL_VOLUME_HOST;
    else
        return error_set(err, ERROR_INVALID, "volumes: kind: \"named\" or \"host\"");
    volume->read_only = json_is_true(json_object_get(from, "read_only"));
    return node_number(from, "size_bytes", INT64_MAX, &volume->size_bytes, err) &&
           copy_field(from, "owner", volume->owner, sizeof volume->owner, err) &&
           copy_field(from, "source", volume->source, sizeof volume->source, err) &&
           copy_field(from, "sub_path", volume->sub_path, sizeof volume->sub_path, err) &&
           copy_field(from, "path", volume->path, sizeof volume->path, err);
}

static bool parse_volumes(const json_t *list, struct fl_prepare *prepare, struct error *err)
{
    if (!list || json_is_null(list))
        return true;
    if (!json_is_array(list) || json_array_size(list) > FRONT_LAUNCHER_VOLUMES)
        return error_set(err, ERROR_INVALID, "volumes: at most %d of them", FRONT_LAUNCHER_VOLUMES);
    size_t index;
    const json_t *each;
    json_array_foreach (list, index, each) {
        if (!parse_volume(each, &prepare->volumes[prepare->volume_count++], err))
            return false;
    }
    return true;
}

/* ---- the entrypoint ---- */

/* *command stays NULL when there is none. */
static bool parse_entrypoint(const json_t *list, struct command **command, struct error *err)
{
    if (!list || json_is_null(list))
        return true;
    if (!json_is_array(list) || json_array_size(list) == 0 || json_array_size(list) > COMMAND_ARGUMENTS_MAX)
        return error_set(err, ERROR_INVALID, "entrypoint: an array of strings, the first the program");
    AUTO(command) *made = command_new();
    size_t index;
    const json_t *each;
    json_array_foreach (list, index, each) {
        if (!json_is_string(each))
            return error_set(err, ERROR_INVALID, "entrypoint: an array of strings");
        if (!command_add_argument(made, json_string_value(each), err))
            return false;
    }
    memcpy(made->id, ENTRYPOINT, sizeof ENTRYPOINT);
    *command = TAKE(made);
    return true;
}

/* ---- the call ---- */

static bool copy_name(const json_t *sandbox, const char *name, char *to, size_t size, struct error *err)
{
    const char *text = node_text(sandbox, name, err);
    if (!text)
        return false;
    return text_copy(to, size, text) || error_set(err, ERROR_INVALID, "prepare: %s: at most %zu bytes", name, size - 1);
}

static bool parse_names(const json_t *sandbox, struct fl_prepare *prepare, struct error *err)
{
    const json_t *snapshot = json_object_get(sandbox, "snapshot");
    bool has_snapshot = snapshot && !json_is_null(snapshot);
    return copy_name(sandbox, "id", prepare->id, sizeof prepare->id, err) &&
           copy_name(sandbox, "name", prepare->hostname, sizeof prepare->hostname, err) &&
           copy_name(sandbox, "template", prepare->template_name, sizeof prepare->template_name, err) &&
           copy_name(sandbox, "isolation", prepare->isolation, sizeof prepare->isolation, err) &&
           (!has_snapshot || copy_name(sandbox, "snapshot", prepare->snapshot, sizeof prepare->snapshot, err));
}

bool node_prepare_read(const json_t *message, struct fl_prepare *prepare, struct command **entrypoint,
                       struct error *err)
{
    const json_t *sandbox = json_object_get(message, "sandbox");
    uint64_t deadline = 0, key_epoch = 0;
    *prepare = (struct fl_prepare){0};
    if (!json_is_object(sandbox))
        return error_set(err, ERROR_INVALID, "prepare: sandbox is needed");
    if (!parse_names(sandbox, prepare, err) || !node_limits_read(sandbox, &prepare->limits, err) ||
        !node_number(sandbox, "deadline", INT64_MAX, &deadline, err) ||
        !node_number(sandbox, "epoch", UINT32_MAX, &key_epoch, err))
        return false;
    if (deadline == 0 || key_epoch == 0)
        return error_set(err, ERROR_INVALID, "prepare: deadline and epoch are needed");
    prepare->deadline_wall_ms = (int64_t)deadline;
    prepare->epoch = (uint32_t)key_epoch;
    prepare->root_allowed = json_is_true(json_object_get(sandbox, "root"));
    return parse_env(json_object_get(sandbox, "env"), prepare->env, err) &&
           parse_volumes(json_object_get(sandbox, "volumes"), prepare, err) &&
           node_network_read(json_object_get(sandbox, "network"), &prepare->network, err) &&
           parse_entrypoint(json_object_get(sandbox, "entrypoint"), entrypoint, err);
}

static void count_birth(struct plane_counts *counts, bool was_warm, uint64_t took_ns)
{
    metrics_add(was_warm ? &counts->births_warm : &counts->births_cold, 1);
    metrics_observe(was_warm ? &counts->warm : &counts->cold, took_ns);
}

static void prepared(void *cookie, const struct verb_answer *answer)
{
    AUTO_REGISTRY_VIEW view = {0};
    struct http_request *asking = http_request_find(loop_current(), (uint64_t)(uintptr_t)cookie);
    if (asking && answer->error.kind != ERROR_NONE)
        metrics_add(&plane_of(asking)->counts.births_failed, 1);
    struct http_request *request = node_find_sandbox(cookie, answer, &view);
    if (!request)
        return;
    const struct node_waiting *waiting = http_request_identity(request);
    if (!waiting->reused)
        count_birth(&plane_of(request)->counts, view.was_warm, clock_monotonic_ns() - waiting->began_ns);
    log_info("node", "sandbox ready sandbox=%s isolation=%s storage=%s template=%s warm=%d reused=%d", view.id,
             view.isolation, view.storage, view.template_name, view.was_warm, waiting->reused);
    node_reply(request, waiting->number,
               json_pack("{s:b,s:{s:s,s:s,s:s,s:s,s:s,s:I,s:b,s:b}}", "ok", 1, "sandbox", "id", view.id, "isolation",
                         view.isolation, "isolation_detail", view.isolation_detail, "storage", view.storage, "template",
                         view.template_name, "disk_bytes", (json_int_t)view.limits.disk_bytes, "warm", view.was_warm,
                         "reused", waiting->reused));
}

bool node_prepare(struct http_request *request, const json_t *message, uint64_t number, struct error *err)
{
    struct fl_prepare prepare;
    AUTO(command) *entrypoint = NULL;
    if (!node_prepare_read(message, &prepare, &entrypoint, err))
        return false;
    void *cookie = node_wait(request, number, prepare.id);
    sandboxes_prepare(plane_of(request)->sandboxes, &prepare, TAKE(entrypoint), prepared, cookie);
    return true;
}
