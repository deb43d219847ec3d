/** stage.h - a whole negotiator over real HTTP, on a memory store, with one node that answers sealed messages (or holds
 *  its answers back), and a client of plain sockets. */
#pragma once

#include "negotiator/dialects/opensandbox/opensandbox.h"
#include "negotiator/dialects/plane.h"
#include "negotiator/leasing/events/hub.h"
#include "shared/base/clock.h"
#include "shared/base/memory.h"
#include "shared/base/text.h"
#include "shared/node_protocol/node_call.h"
#include "tests/unit/check.h"

#include <arpa/inet.h>
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/socket.h>

enum { HELD_MAX = 64 };

struct held {
    struct loop *loop;
    uint64_t request, number, incarnation;
};

struct stage {
    struct key master, to_node, from_node;
    struct kv *kv; /* the ledger's */
    struct ledger *ledger;
    struct fleet *fleet;
    struct leasing *leasing;
    struct principal_table *principals;
    struct events_hub *hub;
    struct plane plane;
    struct http_server *server, *node;
    char admin[API_KEY_BYTES], ada[API_KEY_BYTES], viewer[API_KEY_BYTES];
    atomic_bool holds;
    atomic_int refuses;    /* enum error_kind */
    pthread_mutex_t mutex; /* guards held, numbers and prepares */
    struct held held[HELD_MAX];
    size_t held_count;
    uint64_t number, incarnation;
    unsigned prepares, destroys;
    atomic_bool has_urls, is_mute; /* of what node_execute answers */
    atomic_uint executes;
};

static struct stage stage;

/* ---- the node ---- */

static void node_reply(struct http_request *request, uint64_t in_reply_to, json_t *json)
{
    struct error err = {0};
    uint8_t *bytes = NULL;
    size_t size = 0;
    pthread_mutex_lock(&stage.mutex);
    struct link_head head = {
        .node = "n1", .incarnation = stage.incarnation, .number = ++stage.number, .in_reply_to = in_reply_to};
    pthread_mutex_unlock(&stage.mutex);
    CHECK(link_seal(stage.from_node.bytes, &head, json, &bytes, &size, &err));
    json_decref(json);
    http_reply_bytes(request, 200, "application/octet-stream", bytes, size);
    free(bytes);
}

static json_t *prepared_json(void)
{
    int refuses = atomic_load(&stage.refuses);
    if (refuses)
        return json_pack("{s:{s:s, s:s}}", "error", "code", error_code((enum error_kind)refuses), "message",
                         "template nope is not here");
    return json_pack("{s:b, s:{s:s}}", "ok", 1, "sandbox", "isolation", "namespaces");
}

static void node_handle(struct http_request *request)
{
    struct error err = {0};
    struct link_head head;
    size_t size = 0;
    const char *body = http_request_body(request, &size);
    json_t *json = link_open(stage.to_node.bytes, (const uint8_t *)body, size, &head, &err);
    CHECK(json != NULL && head.in_reply_to == 0 && head.incarnation == stage.incarnation);
    const char *call = json_string_value(json_object_get(json, "call"));
    bool prepare = text_equal(call, "prepare");
    pthread_mutex_lock(&stage.mutex);
    stage.prepares += prepare;
    stage.destroys += text_equal(call, "destroy");
    bool hold = prepare && atomic_load(&stage.holds) && stage.held_count < HELD_MAX;
    if (hold)
        stage.held[stage.held_count++] =
            (struct held){http_request_loop(request), http_request_number(request), head.number, head.incarnation};
    pthread_mutex_unlock(&stage.mutex);
    json_decref(json);
    if (!hold)
        node_reply(request, head.number, prepare ? prepared_json() : json_pack("{s:b}", "ok", 1));
}

/* What a node says to a run that was passed on to it. */
static void node_execute(struct http_request *request)
{
    const char *bearer = http_request_header(request, "authorization");
    CHECK(bearer && strncmp(bearer, "Bearer ey", 9) == 0 && !http_request_header(request, "x-api-key"));
    CHECK(http_request_header(request, "x-parley-elapsed-ms") != NULL);
    atomic_fetch_add(&stage.executes, 1);
    if (atomic_load(&stage.is_mute))
        return;
    if (atomic_load(&stage.has_urls))
        http_reply_header(request, "X-Parley-Artifacts-For", "120");
    size_t size = 0;
    const char *body = http_request_body(request, &size);
    http_reply_json(request, 200, json_pack("{s:s%}", "stdout", body, size));
}

static void answer_held(void *cookie)
{
    AUTO_FREE struct held *held = cookie;
    struct http_request *request = http_request_find(held->loop, held->request);
    if (request)
        node_reply(request, held->number, prepared_json());
}

static UNUSED void node_release(void)
{
    atomic_store(&stage.holds, false);
    pthread_mutex_lock(&stage.mutex);
    for (size_t i = 0; i < stage.held_count; i++)
        loop_post(stage.held[i].loop, answer_held, memory_copy(&stage.held[i], sizeof stage.held[i]));
    stage.held_count = 0;
    pthread_mutex_unlock(&stage.mutex);
}

static UNUSED unsigned node_prepares(void)
{
    pthread_mutex_lock(&stage.mutex);
    unsigned count = stage.prepares;
    pthread_mutex_unlock(&stage.mutex);
    return count;
}

static UNUSED json_t *stage_templates; /* in the next heartbeat alone; taken by it */

/** One heartbeat; takes both lists. The reply (the caller decrefs), NULL with err when it was refused. */
static UNUSED json_t *node_beat(json_t *sandboxes, json_t *ended, struct error *err)
{
    AUTO(node_caller) *caller = node_caller_new();
    AUTO_FREE char *url = memory_printf("http://127.0.0.1:%u/node/v1/message", http_server_port(stage.server));
    AUTO_FREE char *node_url = memory_printf("http://127.0.0.1:%u", http_server_port(stage.node));
    AUTO_FREE uint8_t *bytes = NULL, *reply = NULL;
    size_t size = 0, reply_size = 0;
    struct link_head head = {.node = "n1", .incarnation = stage.incarnation}, answer;
    pthread_mutex_lock(&stage.mutex);
    head.number = ++stage.number;
    pthread_mutex_unlock(&stage.mutex);
    json_t *message = json_pack("{s:s, s:I, s:s, s:i, s:i, s:[s], s:o, s:o}", "call", "heartbeat", "time",
                                (json_int_t)clock_wall_ms(), "url", node_url, "slots", 100, "used", 0, "isolation",
                                "namespaces", "sandboxes", sandboxes, "ended", ended);
    if (stage_templates)
        json_object_set_new(message, "templates", TAKE(stage_templates));
    CHECK(link_seal(stage.from_node.bytes, &head, message, &bytes, &size, err));
    json_decref(message);
    if (!node_call(caller, url, bytes, size, 5000, &reply, &reply_size, err))
        return NULL;
    json_t *json = link_open(stage.to_node.bytes, reply, reply_size, &answer, err);
    CHECK(json == NULL || answer.in_reply_to == head.number);
    return json;
}

/* ---- the negotiator ---- */

static enum kv_outcome add_keys(struct kv *kv, void *argument UNUSED, struct error *err)
{
    AUTO(kv_change) *change = kv_change_new();
    struct principal admin = {.name = "admin", .role = ROLE_ADMIN}, ada = {.name = "ada", .role = ROLE_USER},
                     viewer = {.name = "ada", .role = ROLE_VIEWER};
    principal_add_key(change, &stage.master, stage.admin, &admin, 1);
    principal_add_key(change, &stage.master, stage.ada, &ada, 1);
    principal_add_key(change, &stage.master, stage.viewer, &viewer, 1);
    enum kv_outcome outcome = kv_apply(kv, change, err);
    return outcome == KV_APPLIED && !principal_table_load(stage.principals, kv, err) ? KV_FAILED : outcome;
}

static json_t *stage_error_body(const struct http_request *request, const struct error *err)
{
    json_t *body = execute_error(request, err);
    return body ? body : opensandbox_error(request, err);
}

static void stage_open(void)
{
    struct error err = {0};
    static const struct http_route NODE_ROUTES[] = {
        {"POST", "/node/v1/message", 0, NULL, 1024 * 1024, node_handle},
        {"POST", "/s/{sandbox}/execute", 0, NULL, 1024 * 1024, node_execute}};
    keys_start();
    pthread_mutex_init(&stage.mutex, NULL);
    stage.incarnation = 1;
    key_random(&stage.master);
    struct key node_key;
    key_node(&node_key, &stage.master, "n1", FLEET_EPOCH);
    key_link(&stage.to_node, &node_key, "negotiator");
    key_link(&stage.from_node, &node_key, "sandboxd");
    principal_new_api_key(stage.admin);
    principal_new_api_key(stage.ada);
    principal_new_api_key(stage.viewer);
    stage.principals = principal_table_new(&stage.master);
    stage.kv = kv_memory_new(20, 1);
    stage.ledger = ledger_start(stage.kv, &err);
    CHECK(ledger_run(stage.ledger, add_keys, NULL, &err));
    stage.fleet = fleet_start(&(struct fleet_options){.master = &stage.master,
                                                      .workers = 4,
                                                      .call_timeout_ms = 10000,
                                                      .wall_ms = clock_wall_ms,
                                                      .boot_ns = clock_boot_ns},
                              &err);
    stage.hub = events_hub_new(stage.ledger);
    stage.leasing = leasing_new(&(struct leasing_options){
        .ledger = stage.ledger,
        .master = &stage.master,
        .principals = stage.principals,
        .deployment = "dep_aaaaaaaaaaaaaaaaaaaa",
        .nodes = plane_nodes(stage.fleet),
        .limits = {.ttl_default_s = 900,
                   .ttl_max_s = 3600,
                   .idle_timeout_s = 3600,
                   .max_lifetime_s = 28800,
                   .max_lifetime_max_s = 86400,
                   .resources = {.cpu_milli = 1000, .memory_mb = 512, .disk_mb = 1024, .pids = 256}},
        .policy = {.snapshots_max = 5, .volumes_max = 3},
        .wall_ms = clock_wall_ms});
    stage.plane = (struct plane){.leasing = stage.leasing,
                                 .fleet = stage.fleet,
                                 .ledger = stage.ledger,
                                 .principals = stage.principals,
                                 .hub = stage.hub,
                                 .preview_domain = "localhost",
                                 .image_templates = "*=base",
                                 .opensandbox_egress = "none"};
    struct http_server_options options = {.host = "127.0.0.1",
                                          .loops = 2,
                                          .name = "negotiator",
                                          .authorize = plane_authorize,
                                          .loop_started = plane_loop_started,
                                          .loop_ending = plane_loop_ending,
                                          .error_body = stage_error_body,
                                          .header_prefix = {"open-sandbox-api-key", "/v1"},
                                          .context = &stage.plane};
    options.routes = plane_routes(&options.route_count);
    stage.server = http_server_start(&options, &err);
    stage.node = http_server_start(
        &(struct http_server_options){
            .host = "127.0.0.1", .loops = 1, .name = "node", .routes = NODE_ROUTES, .route_count = 2},
        &err);
    CHECK_TEXT(err.message, "");
}

static void stage_close(void)
{
    http_server_stop(stage.server, 2000);
    leasing_stopping(stage.leasing);
    http_server_stop(stage.node, 100); /* what it holds back it answers no more */
    fleet_stop(stage.fleet);
    ledger_stop(stage.ledger);
    leasing_free(stage.leasing);
    http_server_free(stage.server);
    http_server_free(stage.node);
    fleet_free(stage.fleet);
    events_hub_free(stage.hub);
    principal_table_free(stage.principals);
}

/* ---- the client ---- */

struct answer {
    int status;
    char *head;   /* owned */
    json_t *json; /* owned; NULL when the body is none */
};

static UNUSED void answer_done(struct answer *answer)
{
    free(answer->head);
    json_decref(answer->json);
}
#define AUTO_ANSWER __attribute__((cleanup(answer_done))) struct answer

static int http_connect(void)
{
    struct sockaddr_in address = {
        .sin_family = AF_INET, .sin_port = htons(http_server_port(stage.server)), .sin_addr = {htonl(INADDR_LOOPBACK)}};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    CHECK(connect(fd, (const struct sockaddr *)&address, sizeof address) == 0);
    return fd;
}

static void http_send(int fd, const char *method, const char *path, const char *header, const char *body)
{
    AUTO_FREE char *text =
        memory_printf("%s %s HTTP/1.1\r\nHost: x\r\nConnection: close\r\n%sContent-Length: %zu\r\n\r\n%s", method, path,
                      header, strlen(body), body);
    CHECK(send(fd, text, strlen(text), MSG_NOSIGNAL) == (ssize_t)strlen(text));
}

/** `header` is whole lines with \r\n. */
static struct answer http_do(const char *method, const char *path, const char *header, const char *body)
{
    struct answer answer = {.status = 0};
    AUTO_TEXT all = {0};
    AUTO_FD int fd = http_connect();
    http_send(fd, method, path, header, body);
    char part[4096];
    for (ssize_t got; (got = recv(fd, part, sizeof part, 0)) > 0;)
        text_append(&all, part, (size_t)got);
    char *end = all.data ? strstr(all.data, "\r\n\r\n") : NULL;
    CHECK(end != NULL);
    if (end == NULL)
        return answer;
    answer.status = atoi(all.data + strlen("HTTP/1.1 "));
    answer.json = json_loads(end + 4, 0, NULL);
    answer.head = memory_copy(all.data, (size_t)(end - all.data));
    return answer;
}

static UNUSED struct answer as(const char *key, const char *method, const char *path, const char *body)
{
    AUTO_FREE char *header = memory_printf("Authorization: Bearer %s\r\n", key);
    return http_do(method, path, header, body);
}

/** "sandbox.id" of the answer; "" when there is none. */
static UNUSED const char *told(const struct answer *answer, const char *path)
{
    const json_t *at = answer->json;
    AUTO_FREE char *copy = memory_string(path);
    char *rest = NULL;
    for (char *name = strtok_r(copy, ".", &rest); name; name = strtok_r(NULL, ".", &rest))
        at = json_object_get(at, name);
    return json_is_string(at) ? json_string_value(at) : "";
}
