#include "negotiator/dialects/errand.h"

void errand_begin(struct errand *errand, const struct http_request *request)
{
    errand->plane = plane_of(request);
    errand->loop = http_request_loop(request);
    errand->request = http_request_number(request);
}

static void deliver(void *cookie)
{
    struct errand *errand = cookie;
    struct http_request *request = http_request_find(errand->loop, errand->request);
    if (request)
        errand->print(request, errand);
    errand->free(errand);
}

void errand_return(struct errand *errand)
{
    loop_post(errand->loop, deliver, errand);
}

static void answered(void *argument, const struct error *err)
{
    struct errand *errand = argument;
    errand->err = *err;
    if (errand->returns)
        errand->returns(errand);
    errand_return(errand);
}

static void client_gone(void *cookie)
{
    struct errand *errand = cookie;
    atomic_store(&errand->abandoned, true);
}

void errand_send(struct http_request *request, struct errand *errand, ledger_rule *rule)
{
    http_request_when_gone(request, client_gone, errand);
    ledger_submit(errand->plane->ledger, rule, answered, errand);
}

void errand_send_long(struct http_request *request, struct errand *errand, ledger_rule *rule, ledger_is_over *is_over)
{
    http_request_when_gone(request, client_gone, errand);
    ledger_submit_long(errand->plane->ledger, rule, is_over, answered, errand);
}
