/** errand.h - a request's way over the ledger thread and back: there it is known by its number alone, so a client that
 * left is found missing when the answer comes. Embedded first in what a dialect sends along. Private to this folder. */
#pragma once

#include "negotiator/dialects/plane.h"

#include <stdatomic.h>

struct errand {
    struct plane *plane;
    struct loop *loop;
    uint64_t request;
    atomic_bool abandoned; /* its client left; set on the loop */
    struct error err;      /* of the rule, for print */
    /** On the ledger thread, when the rule has been answered; may be NULL. */
    void (*returns)(struct errand *errand);
    /** On the request's loop; not when its client left. It answers, err too. */
    void (*print)(struct http_request *request, struct errand *errand);
    void (*free)(struct errand *errand); /* with what it is embedded in; on the loop */
};

/** For this request; the three functions are the caller's to set. */
void errand_begin(struct errand *errand, const struct http_request *request);

/** Takes it. The rule's argument is the errand. */
void errand_send(struct http_request *request, struct errand *errand, ledger_rule *rule);
/** The same with ledger_submit_long. */
void errand_send_long(struct http_request *request, struct errand *errand, ledger_rule *rule, ledger_is_over *is_over);

/** Back to its loop: for one that was not sent, but given to a verb that answers on the ledger thread. */
void errand_return(struct errand *errand);
