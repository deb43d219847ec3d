/* osb_create.c - POST /v1/sandboxes: a sandbox on a thread of its own, answered when it runs. Nobody else knows its id:
 * when the client is not there any more, or was told that it took too long, it goes again; so it does when this process
 * ended meanwhile (told_once). */
#include "negotiator/dialects/opensandbox/opensandbox.h"
#include "negotiator/dialects/opensandbox/osb_codes.h"
#include "negotiator/dialects/opensandbox/osb_errors.h"
#include "negotiator/dialects/opensandbox/osb_shown.h"
#include "negotiator/dialects/opensandbox/osb_wish.h"
#include "negotiator/dialects/waiting.h"
#include "shared/base/clock.h"
#include "shared/base/memory.h"
#include "shared/base/text.h"

#include <stdlib.h>
#include <string.h>

static const uint64_t LATE_NS = UINT64_C(120000000000); /* longer than any client of this protocol waits */
static const char THREAD_PREFIX[] = "opensandbox-";

/* One request and its sandbox; belongs to the request's loop, but for `granted`, which the ledger thread sets. */
struct creation {
    struct plane *plane;
    struct loop *loop;
    uint64_t request; /* its number */
    struct caller caller;
    char thread_id[CAPABILITY_THREAD_BYTES];
    struct loop_timer *timer;
    struct negotiation *granted;
};

static void creation_free(struct creation *creation)
{
    loop_timer_cancel(creation->timer);
    negotiation_free(creation->granted);
    free(creation);
}
DEFINE_AUTO(creation)

static void on_released(void *cookie UNUSED, struct question *q)
{
    question_free(q);
}

static void release(const struct creation *creation)
{
    struct question *q = question_new();
    q->verb = QUESTION_RELEASE;
    q->caller = creation->caller;
    memcpy(q->thread_id, creation->thread_id, sizeof q->thread_id);
    q->answered = on_released;
    leasing_ask(creation->plane->leasing, q);
}

static void print(struct http_request *request, const struct negotiation *n)
{
    AUTO_FREE char *location = memory_printf("/v1/sandboxes/%s", n->sandbox.id);
    http_reply_header(request, "Location", location);
    http_reply_json(request, 202, osb_shown_created(&n->sandbox));
}

static void count(struct plane_outcomes *outcomes, const struct error *refusal)
{
    metrics_add(refusal->kind == ERROR_NONE ? &outcomes->created : &outcomes->refused[refusal->kind], 1);
}

static bool has_host_folder(const struct negotiation *n)
{
    size_t i;
    const json_t *each;
    json_array_foreach (n->wanted.volumes, i, each) {
        if (text_equal(json_string_value(json_object_get(each, "kind")), "host"))
            return true;
    }
    return false;
}

/* What is wrong with the body, in this protocol: the folder of a host that its node does not give, the volume or
 * snapshot that is not there. Only their sentence tells the first from what policy forbids. */
static struct osb_refusal refusal_of(const struct negotiation *n)
{
    struct osb_refusal refusal = {.err = n->refusal};
    const char *why = n->refusal.message;
    if (n->refusal.kind == ERROR_FORBIDDEN && has_host_folder(n) && strstr(why, "volume_hosts")) {
        refusal.code = OSB_VOLUME_HOST_DENIED;
        refusal.status = error_http_status(ERROR_INVALID);
    } else if (n->refusal.kind == ERROR_NOT_FOUND) {
        refusal.code = text_starts_with(why, "there is no volume") ? OSB_VOLUME_NOT_FOUND : OSB_NO_SNAPSHOT;
    }
    return refusal;
}

static void refuse(struct http_request *request, const struct negotiation *n)
{
    struct osb_refusal refusal = refusal_of(n);
    waiting_retry_after(request, n->retry_after_s);
    osb_refuse_quietly(request, &refusal); /* the rules have recorded it */
}

/* On the loop: it is durable, or refused. Of a loop that has ended nobody is left to answer. */
static void on_granted(void *cookie)
{
    AUTO(creation) *creation = cookie;
    const struct negotiation *n = creation->granted;
    bool is_there = loop_current() == creation->loop;
    struct http_request *request = is_there ? http_request_find(creation->loop, creation->request) : NULL;
    bool is_late = is_there && creation->timer == NULL;
    count(&creation->plane->counts.negotiations, &n->refusal);
    loop_timer_cancel(TAKE(creation->timer));
    if (request && !is_late) {
        http_request_when_gone(request, NULL, NULL);
        if (n->refusal.kind == ERROR_NONE)
            print(request, n);
        else
            refuse(request, n);
    } else if (is_there && n->refusal.kind == ERROR_NONE) {
        release(creation);
    }
}

static void on_gone(void *cookie)
{
    struct creation *creation = cookie;
    loop_timer_cancel(TAKE(creation->timer));
}

static void on_late(void *cookie)
{
    struct creation *creation = cookie;
    struct error err = {0};
    creation->timer = NULL;
    struct http_request *request = http_request_find(creation->loop, creation->request);
    error_set(&err, ERROR_TIMEOUT, "no sandbox was ready in time");
    if (request)
        http_reply_error(request, &err);
}

/* On the ledger thread. */
static void on_answered(void *cookie, struct negotiation *n)
{
    struct creation *creation = cookie;
    creation->granted = n;
    loop_post(creation->loop, on_granted, creation);
}

static void on_starting(void *cookie UNUSED)
{
}

static bool is_abandoned(void *cookie UNUSED)
{
    return false; /* what was made has to be let go */
}

static bool read_body(struct http_request *request, struct negotiation *n, struct osb_refusal *refusal)
{
    const struct plane *plane = plane_of(request);
    json_t *body = http_request_json(request, &refusal->err);
    if (body == NULL)
        return false;
    json_t *templates = fleet_templates(plane->fleet);
    const struct osb_defaults defaults = {plane->image_templates, templates, plane->opensandbox_egress};
    bool read = osb_wish_read(&n->wanted, body, &defaults, refusal);
    json_decref(templates);
    json_decref(body);
    return read;
}

static bool make_wish(struct http_request *request, struct creation *creation, struct negotiation *n,
                      struct osb_refusal *refusal)
{
    char random[RANDOM_ID_BYTES];
    random_id(random, "x");
    if (!plane_caller(request, &creation->caller, &refusal->err) || !read_body(request, n, refusal) ||
        !text_format(creation->thread_id, sizeof creation->thread_id, "%s%s", THREAD_PREFIX, random + 2))
        return false;
    n->caller = creation->caller;
    n->wanted.told_once = true;
    memcpy(n->thread_id, creation->thread_id, sizeof n->thread_id);
    n->starting = on_starting;
    n->is_abandoned = is_abandoned;
    n->answered = on_answered;
    n->cookie = creation;
    return true;
}

static bool begin(struct http_request *request, struct creation *creation, struct osb_refusal *refusal)
{
    AUTO(negotiation) *n = negotiation_new();
    if (!make_wish(request, creation, n, refusal))
        return false;
    http_request_when_gone(request, on_gone, creation);
    creation->timer = loop_timer_start(creation->loop, clock_boot_ns() + LATE_NS, on_late, creation);
    if (leasing_negotiate(creation->plane->leasing, n, &refusal->err)) {
        n = NULL; /* the rules have it */
        return true;
    }
    http_request_when_gone(request, NULL, NULL);
    refusal->code = NULL;
    return false;
}

static void create(struct http_request *request)
{
    struct osb_refusal refusal = {.code = NULL};
    struct creation *creation = memory_new(sizeof *creation);
    *creation = (struct creation){
        .plane = plane_of(request), .loop = http_request_loop(request), .request = http_request_number(request)};
    if (begin(request, creation, &refusal))
        return;
    creation_free(creation);
    osb_refuse(request, &refusal);
}

struct plane_rows osb_create_rows(void)
{
    static const struct http_route ROWS[] = {
        {"POST", "/v1/sandboxes", OSB_KEY, "user", PLANE_BODY_BYTES, create},
    };
    return (struct plane_rows){ROWS, sizeof ROWS / sizeof *ROWS};
}
