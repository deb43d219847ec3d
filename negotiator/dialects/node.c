/* node.c - what nodes send (shared/node_protocol/DESIGN.md): sealed messages, answered sealed, once they are durable.
 */
#include "negotiator/dialects/plane.h"
#include "shared/base/clock.h"
#include "shared/base/log.h"
#include "shared/base/memory.h"

#include <stdlib.h>
#include <string.h>

/* One heartbeat on its way through the ledger thread. */
struct beat {
    struct plane *plane;
    struct loop *loop;
    uint64_t request; /* its number */
    struct fleet_message message;
    struct leasing_report report;
    struct error err;
};

static void beat_free(struct beat *beat)
{
    leasing_report_done(&beat->report);
    fleet_message_done(&beat->message);
    free(beat);
}

/* Takes `answer`. */
static void reply_sealed(struct http_request *request, const struct fleet_message *message, json_t *answer)
{
    AUTO_FREE uint8_t *bytes = NULL;
    size_t size = 0;
    struct error err = {0};
    bool sealed = fleet_seal_reply(plane_of(request)->fleet, message, answer, &bytes, &size, &err);
    json_decref(answer);
    if (sealed)
        http_reply_bytes(request, 200, "application/octet-stream", bytes, size);
    else
        http_reply_error(request, &err);
}

static void refuse_sealed(struct http_request *request, const struct fleet_message *message, const struct error *err)
{
    log_warn("fleet", "a message of node %s is refused: %s", message->head.node, err->message);
    reply_sealed(request, message,
                 json_pack("{s:{s:s, s:s}}", "error", "code", error_code(err->kind), "message", err->message));
}

static void deliver(void *cookie)
{
    struct beat *beat = cookie;
    struct http_request *request = http_request_find(beat->loop, beat->request);
    if (request && beat->err.kind != ERROR_NONE)
        refuse_sealed(request, &beat->message, &beat->err);
    else if (request)
        reply_sealed(request, &beat->message,
                     json_pack("{s:b, s:O, s:I}", "ok", 1, "ended_known", beat->report.ended_known, "time",
                               (json_int_t)clock_wall_ms()));
    beat_free(beat);
}

static enum kv_outcome beat_rule(struct kv *kv, void *argument, struct error *err)
{
    struct beat *beat = argument;
    enum kv_outcome outcome = fleet_heartbeat_rule(beat->plane->fleet, kv, &beat->message, err);
    return outcome == KV_APPLIED ? leasing_report_rule(kv, &beat->report, err) : outcome;
}

static void log_beat(const struct beat *beat)
{
    size_t i;
    json_t *id;
    if (beat->message.previous_seen_ms == 0)
        log_info("fleet", "node %s is here, url=%s incarnation=%llu slots=%lld", beat->message.head.node,
                 beat->message.url, (unsigned long long)beat->message.head.incarnation, (long long)beat->message.slots);
    if (beat->message.previous_seen_ms != 0)
        return; /* told once an incarnation, not every two seconds */
    json_array_foreach (beat->report.unknown, i, id)
        log_warn("fleet", "node %s has a sandbox that is not in the ledger, left alone sandbox=%s",
                 beat->message.head.node, json_string_value(id));
}

static void beat_done(void *argument, const struct error *err)
{
    struct beat *beat = argument;
    beat->err = *err;
    if (err->kind == ERROR_NONE) {
        log_beat(beat);
        leasing_report_act(&beat->report);
    } else {
        log_error("fleet", "a heartbeat of node %s was not recorded: %s", beat->message.head.node, err->message);
    }
    loop_post(beat->loop, deliver, beat);
}

static void take_heartbeat(struct http_request *request, struct fleet_message *message)
{
    struct plane *plane = plane_of(request);
    struct beat *beat = memory_new(sizeof *beat);
    beat->plane = plane;
    beat->loop = http_request_loop(request);
    beat->request = http_request_number(request);
    beat->message = *message;
    *message = (struct fleet_message){.json = NULL};
    beat->report.leasing = plane->leasing;
    beat->report.message = beat->message.json;
    beat->report.incarnation = beat->message.head.incarnation;
    beat->report.previous_seen_ms = beat->message.previous_seen_ms;
    memcpy(beat->report.node, beat->message.head.node, sizeof beat->report.node);
    ledger_submit(plane->ledger, beat_rule, beat_done, beat);
}

static void take_message(struct http_request *request)
{
    struct plane *plane = plane_of(request);
    struct fleet_message message = {.json = NULL};
    struct error err = {0};
    size_t size = 0;
    const char *body = http_request_body(request, &size);
    const char *call = NULL;
    if (!fleet_open(plane->fleet, body, size, &message, &err)) {
        if (message.json)
            refuse_sealed(request, &message, &err);
        else
            http_reply_error(request, &err);
        fleet_message_done(&message);
        return;
    }
    call = json_string_value(json_object_get(message.json, "call"));
    if (call == NULL || strcmp(call, "heartbeat") != 0)
        error_set(&err, ERROR_INVALID, "no such call");
    if (err.kind == ERROR_NONE && fleet_check_heartbeat(plane->fleet, &message, &err) &&
        fleet_heartbeat_seen(plane->fleet, &message, &err))
        take_heartbeat(request, &message);
    else
        refuse_sealed(request, &message, &err);
    fleet_message_done(&message);
}

struct plane_rows node_rows(void)
{
    /* Open: the seal is the credential. */
    static const struct http_route ROWS[] = {{"POST", "/node/v1/message", 0, NULL, PLANE_BODY_BYTES, take_message}};
    return (struct plane_rows){ROWS, sizeof ROWS / sizeof *ROWS};
}
