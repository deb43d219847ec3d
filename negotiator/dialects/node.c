/* node.c - what nodes send (shared/node_protocol/DESIGN.md): sealed messages, answered sealed, once they are durable.
 */
#include "negotiator/dialects/errand.h"
#include "negotiator/leasing/intake.h"
#include "shared/base/clock.h"
#include "shared/base/log.h"
#include "shared/base/memory.h"
#include "shared/base/text.h"

#include <stdlib.h>
#include <string.h>

/* One heartbeat on its way through the ledger thread. */
struct beat {
    struct errand errand;
    struct fleet_message message;
    struct leasing_report report;
};

/* One shipment of audit records, likewise. */
struct shipment {
    struct errand errand;
    struct fleet_message message;
    struct intake intake;
};

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

/* --- heartbeats --- */

static json_t *beat_answer(struct beat *beat)
{
    struct leasing_report *report = &beat->report;
    json_t *answer = json_pack("{s:b, s:O, s:I, s:b}", "ok", 1, "ended_known", report->ended_known, "time",
                               (json_int_t)clock_wall_ms(), "full_wanted", report->full_wanted);
    if (report->marks)
        json_object_set_new(answer, "marks", TAKE(report->marks));
    return answer;
}

static void print_beat(struct http_request *request, struct errand *errand)
{
    struct beat *beat = (struct beat *)errand;
    if (errand->err.kind != ERROR_NONE)
        refuse_sealed(request, &beat->message, &errand->err);
    else
        reply_sealed(request, &beat->message, beat_answer(beat));
}

static void free_beat(struct errand *errand)
{
    struct beat *beat = (struct beat *)errand;
    leasing_report_done(&beat->report);
    fleet_message_done(&beat->message);
    free(beat);
}

static enum kv_outcome beat_rule(struct kv *kv, void *argument, struct error *err)
{
    struct beat *beat = argument;
    enum kv_outcome outcome = fleet_heartbeat_rule(beat->errand.plane->fleet, kv, &beat->message, err);
    return outcome == KV_APPLIED ? leasing_report_rule(kv, &beat->report, err) : outcome;
}

static void beat_returns(struct errand *errand)
{
    struct beat *beat = (struct beat *)errand;
    const struct fleet_message *message = &beat->message;
    bool taken = errand->err.kind == ERROR_NONE;
    fleet_left(errand->plane->fleet, message->head.node, FLEET_HEARTBEAT);
    if (taken)
        leasing_report_act(&beat->report);
    else
        log_error("fleet", "a heartbeat of node %s was not recorded: %s", message->head.node, errand->err.message);
    if (taken && message->previous_seen_ms == 0) /* told once an incarnation, not every two seconds */
        log_info("fleet", "node %s is here, url=%s incarnation=%llu slots=%lld", message->head.node, message->url,
                 (unsigned long long)message->head.incarnation, (long long)message->slots);
}

static void take_heartbeat(struct http_request *request, struct fleet_message *message)
{
    struct beat *beat = memory_new(sizeof *beat);
    errand_begin(&beat->errand, request);
    beat->errand.returns = beat_returns;
    beat->errand.print = print_beat;
    beat->errand.free = free_beat;
    beat->message = *message;
    *message = (struct fleet_message){.json = NULL};
    beat->report.leasing = beat->errand.plane->leasing;
    beat->report.message = beat->message.json;
    beat->report.incarnation = beat->message.head.incarnation;
    memcpy(beat->report.node, beat->message.head.node, sizeof beat->report.node);
    errand_send(request, &beat->errand, beat_rule);
}

static bool handle_heartbeat(struct http_request *request, struct fleet_message *message, struct error *err)
{
    struct fleet *fleet = plane_of(request)->fleet;
    if (!fleet_check_heartbeat(fleet, message, err) || !fleet_enter(fleet, message->head.node, FLEET_HEARTBEAT, err))
        return false;
    bool seen = fleet_heartbeat_seen(fleet, message, err);
    if (seen)
        take_heartbeat(request, message);
    else
        fleet_left(fleet, message->head.node, FLEET_HEARTBEAT);
    return seen;
}

/* --- audit records --- */

static void print_shipment(struct http_request *request, struct errand *errand)
{
    struct shipment *shipment = (struct shipment *)errand;
    const struct intake *intake = &shipment->intake;
    if (errand->err.kind != ERROR_NONE)
        refuse_sealed(request, &shipment->message, &errand->err);
    else
        reply_sealed(request, &shipment->message,
                     json_pack("{s:b, s:s, s:I}", "ok", 1, "spool", intake->spool, "upto", (json_int_t)intake->upto));
}

static void free_shipment(struct errand *errand)
{
    struct shipment *shipment = (struct shipment *)errand;
    fleet_message_done(&shipment->message);
    free(shipment);
}

static enum kv_outcome ship_rule(struct kv *kv, void *argument, struct error *err)
{
    struct shipment *shipment = argument;
    return intake_rule(kv, &shipment->intake, err);
}

static void shipment_returns(struct errand *errand)
{
    const struct intake *intake = &((struct shipment *)errand)->intake;
    fleet_left(errand->plane->fleet, intake->node, FLEET_RECORDS);
    if (errand->err.kind == ERROR_NONE && intake->refused > 0)
        log_warn("audit", "node %s sent %llu records about sandboxes that are not its own, refused", intake->node,
                 (unsigned long long)intake->refused);
}

static bool handle_audit(struct http_request *request, struct fleet_message *message, struct error *err)
{
    struct plane *plane = plane_of(request);
    if (!fleet_enter(plane->fleet, message->head.node, FLEET_RECORDS, err))
        return false;
    struct shipment *shipment = memory_new(sizeof *shipment);
    errand_begin(&shipment->errand, request);
    shipment->errand.returns = shipment_returns;
    shipment->errand.print = print_shipment;
    shipment->errand.free = free_shipment;
    shipment->message = *message;
    *message = (struct fleet_message){.json = NULL};
    shipment->intake.leasing = plane->leasing;
    shipment->intake.message = shipment->message.json;
    memcpy(shipment->intake.node, shipment->message.head.node, sizeof shipment->intake.node);
    errand_send(request, &shipment->errand, ship_rule);
    return true;
}

/* --- the route --- */

/* The handlers take the message's content when they go on. */
static bool dispatch(struct http_request *request, struct fleet_message *message, struct error *err)
{
    const char *call = json_string_value(json_object_get(message->json, "call"));
    if (text_equal(call, "heartbeat"))
        return handle_heartbeat(request, message, err);
    if (text_equal(call, "audit"))
        return handle_audit(request, message, err);
    return error_set(err, ERROR_INVALID, "call: heartbeat or audit");
}

static void take_message(struct http_request *request)
{
    struct fleet_message message = {.json = NULL};
    struct error err = {0};
    size_t size = 0;
    const char *body = http_request_body(request, &size);
    bool opened = fleet_open(plane_of(request)->fleet, body, size, &message, &err);
    if (!opened && message.json == NULL)
        plane_refuse_node(request, &message, &err);
    else if (!opened || !dispatch(request, &message, &err))
        refuse_sealed(request, &message, &err);
    fleet_message_done(&message);
}

struct plane_rows node_rows(void)
{
    /* Open: the seal is the credential. */
    static const struct http_route ROWS[] = {{"POST", "/node/v1/message", 0, NULL, PLANE_BODY_BYTES, take_message}};
    return (struct plane_rows){ROWS, sizeof ROWS / sizeof *ROWS};
}
