#include "negotiator/dialects/waiting.h"

#include "negotiator/dialects/visit.h"
#include "shared/base/clock.h"
#include "shared/base/memory.h"
#include "shared/base/text.h"

#include <stdatomic.h>
#include <stdlib.h>

static const uint64_t SECOND_NS = 1000000000;

struct waiting {
    struct loop *loop;
    uint64_t request;      /* its number */
    atomic_bool abandoned; /* its client left, or was told to come back; set on the loop */
    struct loop_timer *timer;
    uint64_t wait_ns;
    void (*print)(struct http_request *request, const struct negotiation *n);
    struct negotiation *negotiation; /* the answer, set on the ledger thread before it is posted */
};

void waiting_retry_after(struct http_request *request, unsigned seconds)
{
    char text[16];
    if (seconds > 0 && text_format(text, sizeof text, "%u", seconds))
        http_reply_header(request, "Retry-After", text);
}

void waiting_refuse(struct http_request *request, const struct error *err)
{
    if (err->kind == ERROR_STARTING)
        http_reply_header(request, "Retry-After", "1");
    http_reply_error(request, err);
}

void waiting_print_done(struct http_request *request, const struct question *q UNUSED)
{
    http_reply_empty(request, 204);
}

static void free_waiting(struct waiting *waiting)
{
    loop_timer_cancel(waiting->timer);
    negotiation_free(waiting->negotiation);
    free(waiting);
}

/* --- on the loop --- */

static void client_gone(void *cookie)
{
    struct waiting *waiting = cookie;
    atomic_store(&waiting->abandoned, true);
    loop_timer_cancel(TAKE(waiting->timer));
}

static void give_up(void *cookie)
{
    struct waiting *waiting = cookie;
    struct error err = {0};
    waiting->timer = NULL;
    struct http_request *request = http_request_find(waiting->loop, waiting->request);
    if (request == NULL || atomic_exchange(&waiting->abandoned, true))
        return;
    error_set(&err, ERROR_STARTING, "the sandbox is still being made; ask again");
    waiting_refuse(request, &err);
}

static void start_timer(void *cookie)
{
    struct waiting *waiting = cookie;
    if (!atomic_load(&waiting->abandoned))
        waiting->timer = loop_timer_start(waiting->loop, clock_boot_ns() + waiting->wait_ns, give_up, waiting);
}

static void deliver(void *cookie)
{
    struct waiting *waiting = cookie;
    struct http_request *request = http_request_find(waiting->loop, waiting->request);
    if (request && !atomic_exchange(&waiting->abandoned, true))
        waiting->print(request, waiting->negotiation);
    free_waiting(waiting);
}

/* --- on the ledger thread --- */

static void starting(void *cookie)
{
    struct waiting *waiting = cookie;
    loop_post(waiting->loop, start_timer, waiting);
}

static bool is_abandoned(void *cookie)
{
    struct waiting *waiting = cookie;
    return atomic_load(&waiting->abandoned);
}

static void granted(void *cookie, struct negotiation *negotiation)
{
    struct waiting *waiting = cookie;
    waiting->negotiation = negotiation;
    loop_post(waiting->loop, deliver, waiting);
}

/* --- from a handler --- */

struct waiting *waiting_start(struct http_request *request, struct negotiation *negotiation,
                              void (*print)(struct http_request *request, const struct negotiation *n))
{
    struct waiting *waiting = memory_new(sizeof *waiting);
    waiting->loop = http_request_loop(request);
    waiting->request = http_request_number(request);
    waiting->wait_ns = (uint64_t)wanted_wait_s(&negotiation->wanted) * SECOND_NS;
    waiting->print = print;
    negotiation->starting = starting;
    negotiation->is_abandoned = is_abandoned;
    negotiation->answered = granted;
    negotiation->cookie = waiting;
    http_request_when_gone(request, client_gone, waiting);
    return waiting;
}

void waiting_cancel(struct waiting *waiting)
{
    struct http_request *request = http_request_find(waiting->loop, waiting->request);
    if (request)
        http_request_when_gone(request, NULL, NULL);
    free_waiting(waiting);
}

/* --- what waits for nothing but its turn --- */

DEFINE_VISIT(question)
DEFINE_VISIT(revoking)

void waiting_ask(struct http_request *request, struct question *question,
                 void (*print)(struct http_request *request, const struct question *q))
{
    leasing_ask(plane_of(request)->leasing, question_visit(request, question, print));
}

void waiting_revoke(struct http_request *request, struct revoking *revoking,
                    void (*print)(struct http_request *request, const struct revoking *r))
{
    leasing_revoke(plane_of(request)->leasing, revoking_visit(request, revoking, print));
}
