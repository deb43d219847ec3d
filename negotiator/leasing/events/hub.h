/** hub.h - who is told that the audit chain grew: nobody polls. */
#pragma once

#include "negotiator/leasing/principal.h"
#include "negotiator/ledger/ledger.h"

#define EVENTS_LISTENERS_MAX 512 /* in all */
#define EVENTS_OF_ONE_MAX    32  /* of one principal */

struct events_hub;

/** Hears of every batch that `ledger` makes durable. */
struct events_hub *events_hub_new(struct ledger *ledger);
/** After the ledger stopped; nobody listens any more. NULL is allowed. */
void events_hub_free(struct events_hub *hub);
DEFINE_AUTO(events_hub)

/** Embedded in who listens. */
struct events_listener {
    char principal[PRINCIPAL_BYTES]; /* who it counts for; "": nobody */
    /** Ledger thread, behind a batch that added records: it must not block, nor call the hub. */
    void (*grew)(void *cookie, uint64_t head);
    void *cookie;
    struct events_listener *next; /* private */
};

/** From now on it is told. ERROR_RATE_LIMITED when there are too many. Any thread. */
bool events_listen(struct events_hub *hub, struct events_listener *listener, struct error *err) MUST_USE;
/** It is not any more when this returns. One that does not listen is fine. Any thread. */
void events_unlisten(struct events_hub *hub, struct events_listener *listener);
