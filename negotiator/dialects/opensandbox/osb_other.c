/* osb_other.c - health, and what this protocol has and we do not: pools, metrics of its clients. */
#include "negotiator/dialects/opensandbox/opensandbox.h"
#include "negotiator/dialects/opensandbox/osb_codes.h"
#include "negotiator/dialects/opensandbox/osb_errors.h"

enum { EVENT_BODY_BYTES = 16384 };

static void health(struct http_request *request)
{
    http_reply_json(request, 200, json_pack("{s:s}", "status", "healthy"));
}

static void refuse_pools(struct http_request *request)
{
    struct osb_refusal refusal = {.status = 501};
    osb_refusal_set(&refusal, OSB_NO_POOLS, ERROR_INVALID,
                    "there are no pools here; an operator keeps sandboxes warm on their nodes");
    osb_refuse_quietly(request, &refusal);
}

/* How long a client's create took is seen in /metrics; what it says of it is not kept. */
static void drop_event(struct http_request *request)
{
    http_reply_empty(request, 204);
}

struct plane_rows osb_other_rows(void)
{
    static const struct http_route ROWS[] = {
        {"GET", "/health", 0, NULL, 0, health},
        {"GET", "/v1/health", 0, NULL, 0, health},
        {"POST", "/v1/metrics/events", OSB_KEY, "viewer", EVENT_BODY_BYTES, drop_event},
        {"GET", "/v1/pools", OSB_KEY, "viewer", 0, refuse_pools},
        {"POST", "/v1/pools", OSB_KEY, "viewer", EVENT_BODY_BYTES, refuse_pools},
        {"GET", "/v1/pools/{pool}", OSB_KEY, "viewer", 0, refuse_pools},
        {"PUT", "/v1/pools/{pool}", OSB_KEY, "viewer", EVENT_BODY_BYTES, refuse_pools},
        {"DELETE", "/v1/pools/{pool}", OSB_KEY, "viewer", 0, refuse_pools},
    };
    return (struct plane_rows){ROWS, sizeof ROWS / sizeof *ROWS};
}
