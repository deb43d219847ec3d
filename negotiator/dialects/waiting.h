/** waiting.h - a request that waits for the ledger thread: from its loop there, and back by its number. Private to this
 *  folder. Each one is freed on its loop, when its answer comes: the rules answer always, and once. */
#pragma once

#include "negotiator/dialects/plane.h"
#include "negotiator/leasing/revocation.h"

struct waiting;

/** Prepares a negotiation's callbacks; print(request, n) runs on the request's loop, unless its client left or the wait
 *  was over (423, Retry-After) by then. */
struct waiting *waiting_start(struct http_request *request, struct negotiation *negotiation,
                              void (*print)(struct http_request *request, const struct negotiation *n));

/** When it was not handed to the rules after all. */
void waiting_cancel(struct waiting *waiting);

/** Asks the rules; takes the question. print(request, q) runs on the request's loop unless they refuse, which is
 * printed here, or its client left. */
void waiting_ask(struct http_request *request, struct question *question,
                 void (*print)(struct http_request *request, const struct question *q));

/** Revokes, or asks about revocations; takes the question. print as of waiting_ask. */
void waiting_revoke(struct http_request *request, struct revoking *revoking,
                    void (*print)(struct http_request *request, const struct revoking *r));

/** A print for waiting_revoke: the revocation, 202 while nodes are missing (revocations.c). */
void revocations_print_one(struct http_request *request, const struct revoking *r);

/** A print for waiting_ask: 204. */
void waiting_print_done(struct http_request *request, const struct question *q);

/** Says in how many seconds what is refused may be had; 0 says nothing. Before waiting_refuse. */
void waiting_retry_after(struct http_request *request, unsigned seconds);

/** Ends the request with an error; 423 with a Retry-After. */
void waiting_refuse(struct http_request *request, const struct error *err);
