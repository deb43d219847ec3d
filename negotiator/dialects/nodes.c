/* nodes.c - the nodes as an admin sees them: join tokens, drain, lost, re-keying; and the enrolment of one. */
#include "negotiator/dialects/errand.h"
#include "negotiator/dialects/shown.h"
#include "negotiator/leasing/lost.h"
#include "shared/base/log.h"
#include "shared/base/memory.h"
#include "shared/base/text.h"

#include <stdlib.h>
#include <string.h>

enum { ENROL_BODY_BYTES = 4096, CHANGE_BODY_BYTES = 4096 };

/* --- how a node looks --- */

static json_t *shown_node(const struct fleet_view *view)
{
    static const char *const LIVES[] = {
        [FLEET_UNKNOWN] = "lost", [FLEET_ALIVE] = "alive", [FLEET_SUSPECT] = "suspect", [FLEET_LOST] = "lost"};
    return json_pack("{s:s, s:s, s:b, s:s, s:I, s:I, s:I, s:I, s:b, s:o, s:I}", "name", view->name, "state",
                     LIVES[view->life], "draining", (int)view->draining, "url", view->url, "slots",
                     (json_int_t)view->slots, "used", (json_int_t)view->used, "incarnation",
                     (json_int_t)view->incarnation, "epoch", (json_int_t)view->epoch, "rekeying", (int)view->rekeying,
                     "seen_at", view->seen_ms ? shown_time(view->seen_ms) : json_null(), "clock_off_ms",
                     (json_int_t)view->clock_off_ms);
}

static void list_nodes(struct http_request *request)
{
    size_t count = 0;
    AUTO_FREE struct fleet_view *views = fleet_list(plane_of(request)->fleet, &count);
    json_t *list = json_array();
    for (size_t i = 0; i < count; i++)
        json_array_append_new(list, shown_node(&views[i]));
    http_reply_json(request, 200, json_pack("{s:o}", "nodes", list));
}

static void reply_node(struct http_request *request, int status, const char *name)
{
    size_t count = 0;
    AUTO_FREE struct fleet_view *views = fleet_list(plane_of(request)->fleet, &count);
    for (size_t i = 0; i < count; i++) {
        if (strcmp(views[i].name, name) == 0) {
            http_reply_json(request, status, json_pack("{s:o}", "node", shown_node(&views[i])));
            return;
        }
    }
    struct error err = {0};
    error_set(&err, ERROR_NOT_FOUND, "there is no such node");
    http_reply_error(request, &err);
}

/* --- one question on its way through the ledger thread --- */

struct visit {
    struct errand errand;
    struct caller caller;
    struct fleet_asking asking;
};

static void visit_free(struct visit *visit)
{
    if (visit == NULL)
        return;
    fleet_asking_done(&visit->asking);
    free(visit);
}
DEFINE_AUTO(visit)

static void free_errand(struct errand *errand)
{
    visit_free((struct visit *)errand);
}

static void print_token(struct http_request *request, const struct fleet_asking *asking)
{
    http_reply_header(request, "Cache-Control", "no-store");
    http_reply_json(request, 201,
                    json_pack("{s:s, s:s, s:o}", "node", asking->node, "join_token", asking->token, "expires_at",
                              shown_time(asking->expires_ms)));
}

static void print_visit(struct http_request *request, struct errand *errand)
{
    struct fleet_asking *asking = &((struct visit *)errand)->asking;
    if (errand->err.kind != ERROR_NONE || asking->refusal.kind != ERROR_NONE) {
        if (asking->refusal.kind == ERROR_UNAUTHENTICATED)
            leasing_stranger(errand->plane->leasing, http_request_remote(request));
        http_reply_error(request, errand->err.kind != ERROR_NONE ? &errand->err : &asking->refusal);
    } else if (asking->verb == FLEET_JOIN) {
        print_token(request, asking);
    } else if (asking->verb == FLEET_ENROL) {
        http_reply_json(request, 200, json_incref(asking->answer));
    } else {
        reply_node(request, asking->verb == FLEET_REKEY ? 202 : 200, asking->node);
    }
}

static enum kv_outcome visit_rule(struct kv *kv, void *argument, struct error *err)
{
    struct visit *visit = argument;
    return fleet_rule(kv, &visit->asking, err);
}

static void log_visit(const struct visit *visit)
{
    static const char *const DONE[] = {[FLEET_JOIN] = "has a join token",
                                       [FLEET_ENROL] = "has enrolled",
                                       [FLEET_DRAIN] = "drains, or no more",
                                       [FLEET_REKEY] = "is to get another key"};
    const struct fleet_asking *asking = &visit->asking;
    if (visit->errand.err.kind == ERROR_NONE && asking->refusal.kind == ERROR_NONE)
        log_info("fleet", "node %s %s by=%s remote=%s", asking->node, DONE[asking->verb],
                 visit->caller.principal.name[0] ? visit->caller.principal.name : "-", visit->caller.remote);
    else if (asking->verb == FLEET_ENROL)
        log_warn("fleet", "an enrolment was refused: %s remote=%s",
                 visit->errand.err.kind != ERROR_NONE ? visit->errand.err.message : asking->refusal.message,
                 visit->caller.remote);
}

static void visit_returns(struct errand *errand)
{
    struct visit *visit = (struct visit *)errand;
    if (errand->err.kind == ERROR_NONE)
        fleet_made(&visit->asking);
    log_visit(visit);
}

static struct visit *new_visit(const struct http_request *request, enum fleet_verb verb)
{
    struct visit *visit = memory_new(sizeof *visit);
    errand_begin(&visit->errand, request);
    visit->errand.returns = visit_returns;
    visit->errand.print = print_visit;
    visit->errand.free = free_errand;
    visit->asking.fleet = visit->errand.plane->fleet;
    visit->asking.verb = verb;
    return visit;
}

/* Takes the visit. */
static void start_visit(struct http_request *request, struct visit *visit)
{
    const struct caller *caller = &visit->caller;
    bool known = caller->principal.name[0] != '\0';
    visit->asking.record = (struct audit_record){.principal = caller->principal.name,
                                                 .role = known ? role_name(caller->principal.role) : NULL,
                                                 .remote = caller->remote,
                                                 .request_id = caller->request_id};
    errand_send(request, &visit->errand, visit_rule);
}

/* --- what an admin asks --- */

static bool copy_name(char to[static LINK_NODE_BYTES], const char *name, struct error *err)
{
    return (name && text_is_made_of(name, LINK_NODE_BYTES - 1, "._-") && text_copy(to, LINK_NODE_BYTES, name)) ||
           error_set(err, ERROR_INVALID, "a node's name is 1 to %d of A-Za-z0-9._-", LINK_NODE_BYTES - 1);
}

static bool read_join(const json_t *body, struct fleet_asking *asking, struct error *err)
{
    if (json_object_size(body) != 1)
        return error_set(err, ERROR_INVALID, "the body must be {\"name\"}");
    return copy_name(asking->node, json_string_value(json_object_get(body, "name")), err);
}

static bool read_change(const json_t *body, struct fleet_asking *asking, struct error *err)
{
    const json_t *drain = json_object_get(body, "drain");
    bool has_drain = asking->verb == FLEET_DRAIN && drain != NULL;
    if (json_object_size(body) != (has_drain ? 1U : 0U) || (has_drain && !json_is_boolean(drain)))
        return error_set(err, ERROR_INVALID, "the body must be {%s}",
                         asking->verb == FLEET_DRAIN ? "\"drain\"?: true or false" : "");
    asking->drain = !has_drain || json_is_true(drain);
    return true;
}

static bool read_visit(struct http_request *request, struct visit *visit, struct error *err)
{
    struct fleet_asking *asking = &visit->asking;
    json_t *body = plane_caller(request, &visit->caller, err) ? http_request_json(request, err) : NULL;
    bool read = body && (asking->verb == FLEET_JOIN ? read_join(body, asking, err) : read_change(body, asking, err));
    json_decref(body);
    return read &&
           (asking->verb == FLEET_JOIN || copy_name(asking->node, http_request_parameter(request, "node"), err));
}

static void ask(struct http_request *request, enum fleet_verb verb)
{
    struct error err = {0};
    AUTO(visit) *visit = new_visit(request, verb);
    if (read_visit(request, visit, &err))
        start_visit(request, TAKE(visit));
    else
        plane_refuse(request, &err);
}

static void add_node(struct http_request *request)
{
    ask(request, FLEET_JOIN);
}

static void drain_node(struct http_request *request)
{
    ask(request, FLEET_DRAIN);
}

static void rekey_node(struct http_request *request)
{
    ask(request, FLEET_REKEY);
}

/* --- enrolment: the proof in the body is the credential --- */

static void enrol(struct http_request *request)
{
    struct error err = {0};
    AUTO(visit) *visit = new_visit(request, FLEET_ENROL);
    json_t *body = http_request_json(request, &err);
    bool read = body && enrol_read(&visit->asking.request, body, &err) &&
                text_copy(visit->caller.remote, sizeof visit->caller.remote, http_request_remote(request)) &&
                text_copy(visit->caller.request_id, sizeof visit->caller.request_id, http_request_id(request));
    json_decref(body);
    if (read) {
        start_visit(request, TAKE(visit));
        return;
    }
    leasing_stranger(plane_of(request)->leasing, http_request_remote(request));
    http_reply_error(request, &err);
}

/* --- lost --- */

struct loss {
    struct errand errand;
    struct losing losing;
};

static void print_loss(struct http_request *request, struct errand *errand)
{
    struct loss *loss = (struct loss *)errand;
    if (loss->losing.refusal.kind != ERROR_NONE)
        http_reply_error(request, &loss->losing.refusal);
    else
        http_reply_json(request, 200,
                        json_pack("{s:s, s:I}", "node", loss->losing.node, "ended", (json_int_t)loss->losing.ended));
}

static void answered_loss(void *cookie)
{
    struct loss *loss = cookie;
    if (loss->losing.refusal.kind == ERROR_NONE)
        log_warn("fleet", "node %s was given up for lost, sandboxes ended=%zu by=%s", loss->losing.node,
                 loss->losing.ended, loss->losing.caller.principal.name);
    errand_return(&loss->errand);
}

static void free_loss(struct errand *errand)
{
    free(errand);
}

static bool read_loss(struct http_request *request, struct losing *losing, struct error *err)
{
    json_t *body = plane_caller(request, &losing->caller, err) ? http_request_json(request, err) : NULL;
    bool empty = body && json_object_size(body) == 0;
    json_decref(body);
    if (body && !empty)
        error_set(err, ERROR_INVALID, "the body must be {}");
    return empty && copy_name(losing->node, http_request_parameter(request, "node"), err);
}

static void lose_node(struct http_request *request)
{
    struct error err = {0};
    AUTO_FREE struct loss *loss = memory_new(sizeof *loss);
    errand_begin(&loss->errand, request);
    loss->errand.print = print_loss;
    loss->errand.free = free_loss;
    if (!read_loss(request, &loss->losing, &err)) {
        plane_refuse(request, &err);
        return;
    }
    loss->losing.answered = answered_loss;
    loss->losing.cookie = loss;
    leasing_lose(plane_of(request)->leasing, &TAKE(loss)->losing);
}

struct plane_rows nodes_rows(void)
{
    static const struct http_route ROWS[] = {
        {"GET", "/nodes", HTTP_BEARER | HTTP_API_KEY, "admin", 0, list_nodes},
        {"POST", "/nodes", HTTP_BEARER | HTTP_API_KEY, "admin", CHANGE_BODY_BYTES, add_node},
        {"POST", "/nodes/{node}/drain", HTTP_BEARER | HTTP_API_KEY, "admin", CHANGE_BODY_BYTES, drain_node},
        {"POST", "/nodes/{node}/rekey", HTTP_BEARER | HTTP_API_KEY, "admin", CHANGE_BODY_BYTES, rekey_node},
        {"POST", "/nodes/{node}/lost", HTTP_BEARER | HTTP_API_KEY, "admin", CHANGE_BODY_BYTES, lose_node},
        {"POST", "/node/v1/enrol", 0, NULL, ENROL_BODY_BYTES, enrol},
    };
    return (struct plane_rows){ROWS, sizeof ROWS / sizeof *ROWS};
}
