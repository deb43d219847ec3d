#include "negotiator/leasing/sandbox.h"

#include "shared/base/text.h"

#include <string.h>

static const char *const STATE_NAMES[SANDBOX_STATES] = {[SANDBOX_PROVISIONING] = "provisioning",
                                                        [SANDBOX_ACTIVE] = "active",
                                                        [SANDBOX_IDLE] = "idle",
                                                        [SANDBOX_PAUSED] = "paused",
                                                        [SANDBOX_TERMINATING] = "terminating",
                                                        [SANDBOX_TERMINATED] = "terminated",
                                                        [SANDBOX_FAILED] = "failed"};

void sandbox_done(struct sandbox *sandbox)
{
    json_decref(sandbox->threads);
    json_decref(sandbox->env);
    json_decref(sandbox->metadata);
    json_decref(sandbox->volumes);
    json_decref(sandbox->network);
    json_decref(sandbox->ports);
    json_decref(sandbox->entrypoint);
    json_decref(sandbox->origin);
    *sandbox = (struct sandbox){0};
}

struct sandbox sandbox_brief(const struct sandbox *from)
{
    struct sandbox brief = *from;
    brief.threads = brief.env = brief.metadata = brief.volumes = brief.network = brief.ports = brief.entrypoint =
        brief.origin = NULL;
    return brief;
}

const char *sandbox_state_name(enum sandbox_state state)
{
    return state < SANDBOX_STATES ? STATE_NAMES[state] : "unknown";
}

bool sandbox_state_parse(const char *text, enum sandbox_state *state)
{
    for (enum sandbox_state each = 0; each < SANDBOX_STATES; each++) {
        if (text_equal(text, STATE_NAMES[each])) {
            *state = each;
            return true;
        }
    }
    return false;
}

void sandbox_set_paused(struct sandbox *sandbox, bool is_paused, int64_t now)
{
    sandbox->state = is_paused ? SANDBOX_PAUSED : SANDBOX_ACTIVE;
    sandbox->state_since = now;
    if (!is_paused)
        sandbox->active_since = now;
}

bool sandbox_is_live(const struct sandbox *sandbox)
{
    return sandbox->revision > 0 && sandbox->state < SANDBOX_TERMINATING;
}

bool sandbox_has_ended(const struct sandbox *sandbox)
{
    return sandbox->state == SANDBOX_TERMINATED || sandbox->state == SANDBOX_FAILED;
}

bool sandbox_is_name(const char *text)
{
    size_t length = text ? strnlen(text, SANDBOX_NAME_BYTES) : 0;
    if (length == 0 || length == SANDBOX_NAME_BYTES || text[0] == '-' || text[length - 1] == '-')
        return false;
    return strspn(text, "abcdefghijklmnopqrstuvwxyz0123456789-") == length;
}

static bool is_thread(const json_t *each, const char *thread_id)
{
    return text_equal(json_string_value(each), thread_id);
}

void sandbox_remove_thread(struct sandbox *sandbox, const char *thread_id)
{
    for (size_t i = json_array_size(sandbox->threads); i > 0; i--) {
        if (is_thread(json_array_get(sandbox->threads, i - 1), thread_id))
            json_array_remove(sandbox->threads, i - 1);
    }
}

void sandbox_add_thread(struct sandbox *sandbox, const char *thread_id)
{
    if (sandbox->threads == NULL)
        sandbox->threads = json_array();
    sandbox_remove_thread(sandbox, thread_id);
    json_array_append_new(sandbox->threads, json_string(thread_id));
}

static char *dump(json_t *taken)
{
    char *text = json_dumps(taken, JSON_COMPACT);
    json_decref(taken);
    return text;
}

const char *on_idle_name(enum on_idle on_idle)
{
    return on_idle == ON_IDLE_PAUSE ? "pause" : "stop";
}

bool on_idle_parse(const char *text, enum on_idle *on_idle)
{
    if (text_equal(text, "stop"))
        *on_idle = ON_IDLE_STOP;
    else if (text_equal(text, "pause"))
        *on_idle = ON_IDLE_PAUSE;
    else
        return false;
    return true;
}

json_t *resources_format(const struct resources *resources)
{
    return json_pack("{s:I, s:I, s:I, s:I, s:I, s:I, s:I}", "cpu_milli", (json_int_t)resources->cpu_milli, "memory_mb",
                     (json_int_t)resources->memory_mb, "disk_mb", (json_int_t)resources->disk_mb, "pids",
                     (json_int_t)resources->pids, "open_files", (json_int_t)resources->open_files, "processes",
                     (json_int_t)resources->processes, "output_mb", (json_int_t)resources->output_mb);
}

/* What rows of before do not have. */
static void add_later_fields(json_t *json, const struct sandbox *sandbox)
{
    json_object_set_new(json, "incarnation", json_integer((json_int_t)sandbox->incarnation));
    json_object_set_new(json, "storage", json_string(sandbox->storage));
    if (sandbox->isolation_detail[0])
        json_object_set_new(json, "isolation_detail", json_string(sandbox->isolation_detail));
    json_object_set_new(json, "on_idle", json_string(on_idle_name(sandbox->on_idle)));
    json_object_set_new(json, "warm", json_boolean(sandbox->was_warm));
    json_object_set_new(json, "root", json_boolean(sandbox->has_root));
    if (sandbox->told_once)
        json_object_set_new(json, "told_once", json_true());
    if (sandbox->volume_mb > 0)
        json_object_set_new(json, "volume_mb", json_integer(sandbox->volume_mb));
    if (sandbox->snapshot[0]) {
        json_object_set_new(json, "snapshot", json_string(sandbox->snapshot));
        json_object_set_new(json, "snapshot_name", json_string(sandbox->snapshot_name));
    }
    json_object_set(json, "threads", sandbox->threads);
    json_object_set(json, "env", sandbox->env);
    json_object_set(json, "metadata", sandbox->metadata);
    json_object_set(json, "volumes", sandbox->volumes);
    json_object_set(json, "network", sandbox->network);
    json_object_set(json, "ports", sandbox->ports);
    json_object_set(json, "entrypoint", sandbox->entrypoint);
    json_object_set(json, "origin", sandbox->origin);
}

char *sandbox_format(const struct sandbox *sandbox)
{
    json_t *json =
        json_pack("{s:s, s:s, s:s, s:s, s:s, s:s, s:s, s:s, s:s, s:o, s:I, s:I, s:I, s:I, s:I, s:I, s:I}", "id",
                  sandbox->id, "name", sandbox->name, "principal", sandbox->principal, "node", sandbox->node,
                  "template", sandbox->template_name, "isolation", sandbox->isolation, "state",
                  sandbox_state_name(sandbox->state), "reason", sandbox->reason, "idempotency", sandbox->idempotency,
                  "resources", resources_format(&sandbox->resources), "epoch", (json_int_t)sandbox->epoch, "node_epoch",
                  (json_int_t)sandbox->node_epoch, "created_at", (json_int_t)sandbox->created_at, "active_since",
                  (json_int_t)sandbox->active_since, "state_since", (json_int_t)sandbox->state_since, "ended_at",
                  (json_int_t)sandbox->ended_at, "deadline", (json_int_t)sandbox->deadline);
    if (sandbox->node_deadline && sandbox->node_deadline != sandbox->deadline)
        json_object_set_new(json, "node_deadline", json_integer(sandbox->node_deadline));
    add_later_fields(json, sandbox);
    return dump(json);
}

struct texts {
    const char *id, *name, *principal, *node, *template_name, *isolation, *state, *reason, *idempotency;
};

static bool take_texts(struct sandbox *to, const struct texts *texts)
{
    return text_copy(to->id, sizeof to->id, texts->id) && text_copy(to->name, sizeof to->name, texts->name) &&
           text_copy(to->principal, sizeof to->principal, texts->principal) &&
           text_copy(to->node, sizeof to->node, texts->node) &&
           text_copy(to->template_name, sizeof to->template_name, texts->template_name) &&
           text_copy(to->isolation, sizeof to->isolation, texts->isolation) &&
           text_copy(to->reason, sizeof to->reason, texts->reason) &&
           text_copy(to->idempotency, sizeof to->idempotency, texts->idempotency) &&
           sandbox_state_parse(texts->state, &to->state);
}

static bool read_resources(struct resources *to, json_t *json)
{
    json_int_t cpu = 0, memory = 0, disk = 0, pids = 0, files = 0, processes = 0, output = 0;
    if (json_unpack(json, "{s:I, s:I, s:I, s:I, s?I, s?I, s?I}", "cpu_milli", &cpu, "memory_mb", &memory, "disk_mb",
                    &disk, "pids", &pids, "open_files", &files, "processes", &processes, "output_mb", &output) != 0)
        return false;
    *to = (struct resources){.cpu_milli = cpu,
                             .memory_mb = memory,
                             .disk_mb = disk,
                             .pids = pids,
                             .open_files = files,
                             .processes = processes,
                             .output_mb = output};
    return true;
}

static bool read_optional_text(char *to, size_t size, const json_t *json, const char *name)
{
    const char *text = json_string_value(json_object_get(json, name));
    return text == NULL || text_copy(to, size, text);
}

static bool read_later_fields(struct sandbox *to, json_t *json)
{
    const char *on_idle = json_string_value(json_object_get(json, "on_idle"));
    if (!read_optional_text(to->storage, sizeof to->storage, json, "storage") ||
        !read_optional_text(to->isolation_detail, sizeof to->isolation_detail, json, "isolation_detail") ||
        !read_optional_text(to->snapshot, sizeof to->snapshot, json, "snapshot") ||
        !read_optional_text(to->snapshot_name, sizeof to->snapshot_name, json, "snapshot_name") ||
        (on_idle && !on_idle_parse(on_idle, &to->on_idle)))
        return false;
    to->incarnation = (uint64_t)json_integer_value(json_object_get(json, "incarnation"));
    to->was_warm = json_is_true(json_object_get(json, "warm"));
    to->has_root = json_is_true(json_object_get(json, "root"));
    to->told_once = json_is_true(json_object_get(json, "told_once"));
    to->volume_mb = json_integer_value(json_object_get(json, "volume_mb"));
    to->threads = json_incref(json_object_get(json, "threads"));
    to->env = json_incref(json_object_get(json, "env"));
    to->metadata = json_incref(json_object_get(json, "metadata"));
    to->volumes = json_incref(json_object_get(json, "volumes"));
    to->network = json_incref(json_object_get(json, "network"));
    to->ports = json_incref(json_object_get(json, "ports"));
    to->entrypoint = json_incref(json_object_get(json, "entrypoint"));
    to->origin = json_incref(json_object_get(json, "origin"));
    return true;
}

static bool read_row(struct sandbox *to, json_t *json)
{
    struct texts texts;
    json_t *resources = NULL;
    json_int_t epoch = 0, node_epoch = 0, created = 0, active = 0, since = 0, ended = 0, deadline = 0;
    int code = json_unpack(
        json, "{s:s, s:s, s:s, s:s, s:s, s:s, s:s, s:s, s:s, s:o, s:I, s:I, s:I, s:I, s:I, s:I, s:I}", "id", &texts.id,
        "name", &texts.name, "principal", &texts.principal, "node", &texts.node, "template", &texts.template_name,
        "isolation", &texts.isolation, "state", &texts.state, "reason", &texts.reason, "idempotency",
        &texts.idempotency, "resources", &resources, "epoch", &epoch, "node_epoch", &node_epoch, "created_at", &created,
        "active_since", &active, "state_since", &since, "ended_at", &ended, "deadline", &deadline);
    if (code != 0 || !take_texts(to, &texts) || !read_resources(&to->resources, resources))
        return false;
    to->epoch = (uint32_t)epoch;
    to->node_epoch = (uint32_t)node_epoch;
    to->created_at = created;
    to->active_since = active;
    to->state_since = since;
    to->ended_at = ended;
    const json_t *told = json_object_get(json, "node_deadline");
    to->deadline = deadline;
    to->node_deadline = told ? json_integer_value(told) : deadline;
    return read_later_fields(to, json);
}

bool sandbox_parse(struct sandbox *sandbox, const char *data, size_t size, struct error *err)
{
    struct sandbox read = {0};
    json_t *json = json_loadb(data, size, 0, NULL);
    bool good = json && read_row(&read, json);
    json_decref(json);
    if (!good) {
        sandbox_done(&read);
        return error_set(err, ERROR_INTERNAL, "the row of a sandbox is damaged");
    }
    sandbox_done(sandbox);
    *sandbox = read;
    return true;
}

bool life_is_endless(int64_t at)
{
    return at >= LIFE_ENDLESS_S * 1000; /* what is counted on from never is never */
}

int64_t life_end(int64_t now, int64_t seconds)
{
    return seconds >= LIFE_ENDLESS_S ? LIFE_ENDLESS_MS : now + seconds * 1000;
}

bool lease_is_thread_id(const char *text)
{
    return text_is_made_of(text, CAPABILITY_THREAD_BYTES - 1, "._:-") && strcmp(text, ".") != 0 &&
           strcmp(text, "..") != 0;
}

char *lease_format(const struct lease *lease)
{
    json_t *json = json_pack("{s:s, s:s, s:s, s:I, s:I, s:I, s:I}", "id", lease->id, "thread_id", lease->thread_id,
                             "sandbox_id", lease->sandbox_id, "created_at", (json_int_t)lease->created_at, "expires_at",
                             (json_int_t)lease->expires_at, "max_expires_at", (json_int_t)lease->max_expires_at,
                             "idle_timeout", (json_int_t)lease->idle_timeout_s);
    if (lease->has_long)
        json_object_set_new(json, "long", json_true());
    return dump(json);
}

bool lease_parse(struct lease *lease, const char *data, size_t size, struct error *err)
{
    struct lease read = {0};
    const char *id = NULL, *thread = NULL, *sandbox = NULL;
    json_int_t created = 0, expires = 0, max_expires = 0, idle = 0;
    json_t *json = json_loadb(data, size, 0, NULL);
    bool good = json &&
                json_unpack(json, "{s:s, s:s, s:s, s:I, s:I, s:I, s:I}", "id", &id, "thread_id", &thread, "sandbox_id",
                            &sandbox, "created_at", &created, "expires_at", &expires, "max_expires_at", &max_expires,
                            "idle_timeout", &idle) == 0 &&
                text_copy(read.id, sizeof read.id, id) && text_copy(read.thread_id, sizeof read.thread_id, thread) &&
                text_copy(read.sandbox_id, sizeof read.sandbox_id, sandbox);
    read.has_long = json_is_true(json_object_get(json, "long"));
    json_decref(json);
    if (!good)
        return error_set(err, ERROR_INTERNAL, "the row of a lease is damaged");
    read.created_at = created;
    read.expires_at = expires;
    read.max_expires_at = max_expires;
    read.idle_timeout_s = idle;
    *lease = read;
    return true;
}
