#include "negotiator/leasing/leasing_internal.h"
#include "negotiator/leasing/sharing/sharing.h"

#include <string.h>

enum { HOLDS_MAX = 20, HOLD_MS = 250 };

bool holding_wants(const struct negotiation *n)
{
    return n->is_ahead && n->refusal.kind == ERROR_RATE_LIMITED && n->holds < HOLDS_MAX;
}

static void ask_again(void *argument, int64_t now_ms UNUSED)
{
    struct leasing *leasing = argument;
    struct negotiation *each = leasing->holding.first;
    leasing->holding = (struct holding){.first = NULL};
    for (struct negotiation *next; each; each = next) {
        next = each->next;
        each->next = NULL;
        if (each->is_abandoned(each->cookie))
            negotiate_answer(each);
        else if (each->current_token)
            refresh_submit(each);
        else if (each->share.is_wanted)
            share_submit(each);
        else
            negotiate_submit(each);
    }
}

void holding_add(struct leasing *leasing, struct negotiation *n)
{
    struct holding *holding = &leasing->holding;
    n->holds++;
    n->next = holding->first;
    holding->first = n;
    if (!holding->is_armed)
        ledger_alarm(leasing->options.ledger, leasing->options.wall_ms() + HOLD_MS, ask_again, leasing);
    holding->is_armed = true;
}

void holding_done(struct holding *holding)
{
    struct negotiation *each = holding->first;
    *holding = (struct holding){.first = NULL};
    for (struct negotiation *next; each; each = next) {
        next = each->next;
        each->next = NULL;
        negotiate_answer(each);
    }
}
