/* admin.c - whether the negotiator lives, and whether it can work. */
#include "negotiator/dialects/housekeeping.h"
#include "negotiator/dialects/plane.h"
#include "shared/base/memory.h"

#include <stdlib.h>

struct ready {
    struct loop *loop;
    uint64_t request; /* its number */
    struct error err;
    unsigned percent; /* of the ledger's size that is taken */
};

static void healthz(struct http_request *request)
{
    http_reply_json(request, 200, json_pack("{s:s}", "status", "ok"));
}

static void deliver(void *cookie)
{
    AUTO_FREE struct ready *ready = cookie;
    struct http_request *request = http_request_find(ready->loop, ready->request);
    if (request == NULL)
        return;
    size_t alive = fleet_alive(plane_of(request)->fleet);
    if (ready->err.kind != ERROR_NONE)
        error_prefix(&ready->err, "the ledger does not answer");
    else if (ready->percent >= HOUSEKEEPING_FULL_PERCENT)
        error_set(&ready->err, ERROR_NO_CAPACITY,
                  "the ledger has taken %u %% of map_mb; start the negotiator with a larger map_mb", ready->percent);
    else if (alive == 0)
        error_set(&ready->err, ERROR_NODE_UNREACHABLE, "no node is alive; is parley-sandboxd running?");
    if (ready->err.kind != ERROR_NONE)
        http_reply_error(request, &ready->err);
    else
        http_reply_json(request, 200, json_pack("{s:s}", "status", "ok"));
}

static enum kv_outcome ready_rule(struct kv *kv, void *argument, struct error *err)
{
    struct ready *ready = argument;
    AUTO_KV_VALUE value = {0};
    return kv_get(kv, "meta/deployment", &value, err) && kv_usage(kv, &ready->percent, err) ? KV_APPLIED : KV_FAILED;
}

static void ready_done(void *argument, const struct error *err)
{
    struct ready *ready = argument;
    ready->err = *err;
    loop_post(ready->loop, deliver, ready);
}

static void readyz(struct http_request *request)
{
    struct ready *ready = memory_new(sizeof *ready);
    ready->loop = http_request_loop(request);
    ready->request = http_request_number(request);
    ledger_submit(plane_of(request)->ledger, ready_rule, ready_done, ready);
}

struct plane_rows admin_rows(void)
{
    static const struct http_route ROWS[] = {
        {"GET", "/healthz", 0, NULL, 0, healthz},
        {"GET", "/readyz", 0, NULL, 0, readyz},
    };
    return (struct plane_rows){ROWS, sizeof ROWS / sizeof *ROWS};
}
