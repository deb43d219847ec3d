/** courier.h - sends events to webhooks: one thread with a curl_multi for all of them, so a receiver that is slow
 *  delays no other one; of each webhook one event at a time, in their order, each at least once. How far one is lies
 *  in its row, written after each attempt: nothing is lost when this process is killed. */
#pragma once

#include "negotiator/leasing/events/hub.h"
#include "negotiator/leasing/events/webhook.h"

struct courier;

struct courier_options {
    struct leasing *leasing;
    struct ledger *ledger;
    struct events_hub *hub;
    const char *hosts; /* setting webhook_hosts; borrowed; NULL none */
    int64_t give_up_s; /* of failing without a break, then a webhook is disabled */
    /** Whether that principal may still get events, everybody's when `all`; any thread. NULL: always. */
    bool (*may)(void *context, const char *principal, bool all);
    void *context;
};

/** Starts the thread; takes up what the ledger holds. ERROR_INTERNAL. */
struct courier *courier_start(const struct courier_options *options, struct error *err) MUST_USE;
/** Ends the thread; what is on its way is broken off, and sent again by the next start. Before the ledger stops. NULL
 *  is allowed. */
void courier_stop(struct courier *courier);
/** After the ledger stopped. NULL is allowed. */
void courier_free(struct courier *courier);

/** That webhook was made, changed or deleted. Any thread. */
void courier_changed(struct courier *courier, const char *id);

/** Sends one event of type `webhook.test` now, whatever else waits; once. done(cookie, note) on the courier's thread,
 *  or inside of courier_stop: delivered, status, error, took_ms of the note. Any thread; the webhook is copied. False:
 *  too many are under way, in all or of its principal's. */
bool courier_test(struct courier *courier, const struct webhook *webhook,
                  void (*done)(void *cookie, const struct webhook_note *note), void *cookie) MUST_USE;

/** Whether a webhook may have that URL, as an admin or a user sets it. Any thread. */
bool courier_check_url(const struct courier *courier, const char *url, bool is_admin, struct error *err) MUST_USE;
