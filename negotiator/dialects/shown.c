#include "negotiator/dialects/shown.h"

#include "shared/base/clock.h"
#include "shared/base/memory.h"
#include "shared/base/text.h"

#include <string.h>

enum { HEARTBEAT_EVERY_S = 60, HEARTBEATS_AN_IDLE_TIMEOUT = 3 };

json_t *shown_time(int64_t wall_ms)
{
    char text[CLOCK_TEXT_BYTES];
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

/* So that two may be lost of a short one. */
static int64_t heartbeat_every(const struct lease *lease)
{
    int64_t every = lease->idle_timeout_s / HEARTBEATS_AN_IDLE_TIMEOUT;
    return every < 1 ? 1 : every < HEARTBEAT_EVERY_S ? every : HEARTBEAT_EVERY_S;
}

json_t *shown_lease(const struct lease *lease)
{
    return json_pack("{s:s, s:s, s:o, s:I, s:o, s:I}", "id", lease->id, "thread_id", lease->thread_id, "expires_at",
                     shown_time(lease->expires_at), "idle_timeout", (json_int_t)lease->idle_timeout_s, "max_expires_at",
                     shown_time(lease->max_expires_at), "heartbeat_every", (json_int_t)heartbeat_every(lease));
}

static json_t *shown_resources(const struct resources *resources)
{
    bool whole = resources->cpu_milli % 1000 == 0;
    json_t *cpu = whole ? json_integer(resources->cpu_milli / 1000) : json_real((double)resources->cpu_milli / 1000);
    return json_pack("{s:o, s:I, s:I, s:I}", "cpu", cpu, "memory_mb", (json_int_t)resources->memory_mb, "disk_mb",
                     (json_int_t)resources->disk_mb, "pids", (json_int_t)resources->pids);
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
    if (sandbox->reason[0])
        json_object_set_new(json, "reason", json_string(sandbox->reason));
    if (sandbox->ended_at)
        json_object_set_new(json, "ended_at", shown_time(sandbox->ended_at));
    return json;
}
