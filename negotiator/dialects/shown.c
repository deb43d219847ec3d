#include "negotiator/dialects/shown.h"

#include "negotiator/dialects/wish.h"
#include "shared/base/clock.h"
#include "shared/base/memory.h"
#include "shared/base/text.h"

#include <string.h>

enum { HEARTBEAT_EVERY_S = 60, HEARTBEATS_AN_IDLE_TIMEOUT = 3 };

json_t *shown_time(int64_t wall_ms)
{
    char text[CLOCK_TEXT_BYTES];
    if (life_is_endless(wall_ms))
        return json_null();
    clock_format(text, wall_ms);
    return json_string(text);
}

json_t *shown_endpoints(const char *url, const char *sandbox_id, const char *token)
{
    const char *rest = strstr(url, "://"); /* checked when the node said it */
    AUTO_FREE char *http = memory_printf("%s/s/%s", url, sandbox_id);
    AUTO_FREE char *ws =
        memory_printf("%s%s/s/%s/ws", text_starts_with(url, "https") ? "wss" : "ws", rest ? rest : "", sandbox_id);
    json_t *endpoints = json_pack("{s:s, s:s}", "http", http, "ws", ws);
    if (token) {
        AUTO_FREE char *by_token = memory_printf("%s/c/%s/", url, token);
        json_object_set_new(endpoints, "capability", json_string(by_token));
    }
    return endpoints;
}

json_t *shown_previews(const char *url, const char *domain, const char *sandbox_id, const json_t *ports)
{
    AUTO_FREE char *label = memory_string(sandbox_id);
    char *underscore = strchr(label, '_');
    const char *port = strrchr(url, ':'); /* of "http://host:port"; none behind "http:" and "]" of an address */
    size_t i;
    const json_t *each;
    json_t *previews = json_object();
    if (underscore)
        *underscore = '-';
    if (!port || port[1] == '/' || strchr(port, ']'))
        port = "";
    json_array_foreach (ports, i, each) {
        AUTO_FREE char *name = memory_printf("%lld", (long long)json_integer_value(each));
        AUTO_FREE char *preview = memory_printf("%s://%s-%s.%s%s/", text_starts_with(url, "https") ? "https" : "http",
                                                name, label, domain, port);
        json_object_set_new(previews, name, json_string(preview));
    }
    return previews;
}

/* So that two may be lost of a short one. */
static int64_t heartbeat_every(const struct lease *lease)
{
    int64_t every = lease->idle_timeout_s / HEARTBEATS_AN_IDLE_TIMEOUT;
    return every < 1 ? 1 : every < HEARTBEAT_EVERY_S ? every : HEARTBEAT_EVERY_S;
}

json_t *shown_lease(const struct lease *lease)
{
    bool is_never_idle = lease->idle_timeout_s >= LIFE_ENDLESS_S;
    json_t *idle = is_never_idle ? json_null() : json_integer(lease->idle_timeout_s);
    return json_pack("{s:s, s:s, s:o, s:o, s:o, s:I}", "id", lease->id, "thread_id", lease->thread_id, "expires_at",
                     shown_time(lease->expires_at), "idle_timeout", idle, "max_expires_at",
                     shown_time(lease->max_expires_at), "heartbeat_every", (json_int_t)heartbeat_every(lease));
}

static json_t *shown_resources(const struct resources *resources)
{
    bool whole = resources->cpu_milli % 1000 == 0;
    json_t *cpu = whole ? json_integer(resources->cpu_milli / 1000) : json_real((double)resources->cpu_milli / 1000);
    json_t *json = json_pack("{s:o, s:I, s:I}", "cpu", cpu, "memory_mb", (json_int_t)resources->memory_mb, "pids",
                             (json_int_t)resources->pids);
    const struct {
        const char *name;
        int64_t amount;
    } later[] = {{"disk_mb", resources->disk_mb},
                 {"open_files", resources->open_files},
                 {"processes", resources->processes},
                 {"output_mb", resources->output_mb}};
    for (size_t i = 0; i < sizeof later / sizeof *later; i++) { /* 0: whatever its node gives */
        if (later[i].amount)
            json_object_set_new(json, later[i].name, json_integer(later[i].amount));
    }
    return json;
}

static json_t *shown_usage(const struct usage *usage)
{
    return json_pack("{s:I, s:I, s:I, s:I, s:o}", "cpu_ms", (json_int_t)usage->cpu_ms, "memory_bytes",
                     (json_int_t)usage->memory_bytes, "disk_bytes", (json_int_t)usage->disk_bytes, "pids",
                     (json_int_t)usage->pids, "at", shown_time(usage->told_ms));
}

/* What not every sandbox has. */
static void add_some(json_t *json, const struct sandbox *sandbox)
{
    if (sandbox->isolation_detail[0])
        json_object_set_new(json, "isolation_detail", json_string(sandbox->isolation_detail));
    if (sandbox->storage[0])
        json_object_set_new(json, "storage", json_string(sandbox->storage));
    if (sandbox->snapshot[0])
        json_object_set_new(json, "snapshot", json_string(sandbox->snapshot));
    if (sandbox->volumes)
        json_object_set_new(json, "volumes", wish_shown_volumes(sandbox->volumes));
    if (sandbox->ports)
        json_object_set(json, "ports", sandbox->ports);
    if (sandbox->entrypoint)
        json_object_set(json, "entrypoint", sandbox->entrypoint);
    if (sandbox->origin)
        json_object_set(json, "origin", sandbox->origin);
    if (sandbox->usage.told_ms > 0)
        json_object_set_new(json, "usage", shown_usage(&sandbox->usage));
    if (sandbox->reason[0])
        json_object_set_new(json, "reason", json_string(sandbox->reason));
    if (sandbox->ended_at)
        json_object_set_new(json, "ended_at", shown_time(sandbox->ended_at));
}

/* The row of one without is empty. */
static json_t *shown_network(const struct sandbox *sandbox)
{
    return sandbox->network ? json_incref(sandbox->network) : json_pack("{s:s}", "egress", "none");
}

json_t *shown_sandbox(const struct sandbox *sandbox)
{
    json_t *json = json_pack(
        "{s:s, s:s, s:s, s:s, s:s, s:s, s:s, s:o, s:o, s:o}", "id", sandbox->id, "name", sandbox->name, "state",
        sandbox_state_name(sandbox->state), "template", sandbox->template_name, "isolation", sandbox->isolation, "node",
        sandbox->node, "principal", sandbox->principal, "resources", shown_resources(&sandbox->resources), "created_at",
        shown_time(sandbox->created_at), "max_expires_at", shown_time(sandbox->deadline));
    json_object_set_new(json, "metadata", sandbox->metadata ? json_incref(sandbox->metadata) : json_object());
    json_object_set_new(json, "threads", sandbox->threads ? json_incref(sandbox->threads) : json_array());
    json_object_set_new(json, "on_idle", json_string(on_idle_name(sandbox->on_idle)));
    json_object_set_new(json, "warm", json_boolean(sandbox->was_warm));
    json_object_set_new(json, "network", shown_network(sandbox));
    add_some(json, sandbox);
    return json;
}
