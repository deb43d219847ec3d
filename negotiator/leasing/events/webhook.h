/** webhook.h - webhooks: where a principal's events are sent (specs/webhooks.md). The rules about them; who sends is
 *  negotiator/webhooks/.
 *
 *    webhook/<id>                  struct webhook, with its cursor: what is not delivered yet is never forgotten
 *    hookowned/<principal>/<id>    "" : for lists, and how many there are */
#pragma once

#include "negotiator/leasing/events/event.h"
#include "negotiator/leasing/leasing.h"

#define WEBHOOK_URL_BYTES      2049
#define WEBHOOK_REASON_BYTES   160
#define WEBHOOK_SECRET_BYTES   51 /* "whsec_", base64 of 32 bytes, NUL */
#define WEBHOOK_ATTEMPTS_KEPT  20
#define WEBHOOKS_MAX           16   /* of one principal */
#define WEBHOOKS_ALL_MAX       1000 /* of a deployment */
#define WEBHOOK_GRACE_MAX_S    (7 * 24 * 3600)
#define WEBHOOK_GRACE_S        (24 * 3600)
#define WEBHOOK_BACKOFF_MAX_MS (3600 * 1000)

struct webhook {
    char id[RANDOM_ID_BYTES];        /* "whk_..." */
    char principal[PRINCIPAL_BYTES]; /* whose */
    char url[WEBHOOK_URL_BYTES];
    char types[EVENT_TYPES_BYTES];     /* as of an event_filter */
    bool all;                          /* everybody's events; admins alone */
    bool is_admins;                    /* an admin set the URL: it may lead anywhere */
    bool enabled;                      /* else nothing is sent, and the cursor stays */
    char reason[WEBHOOK_REASON_BYTES]; /* why it was disabled; "" it was asked for */
    uint32_t secret;                   /* number of the secret in use, from 1 on */
    int64_t old_until;                 /* wall clock, ms: the one before it signs too until then; 0: it does not */
    int64_t created_at;                /* wall clock, ms */
    uint64_t cursor;                   /* all events up to it are delivered, or not wanted */
    int64_t failing_since;             /* wall clock, ms; 0: the last attempt succeeded */
    uint32_t attempts;                 /* that failed, of the first event behind the cursor */
    int64_t next_at;                   /* wall clock, ms: when the next attempt is due; 0: at once */
    json_t *last;                      /* owned; the last attempts, oldest first, at most WEBHOOK_ATTEMPTS_KEPT */
    uint64_t revision;                 /* 0: there is none */
};
/** Drops what it owns. */
void webhook_done(struct webhook *webhook);
#define AUTO_WEBHOOK __attribute__((cleanup(webhook_done))) struct webhook

/** A copy that owns its own. */
struct webhook webhook_copy(const struct webhook *webhook) MUST_USE;

/** The key that deliveries are signed with: secret number `number` of that webhook. Any thread. */
void webhook_key(const struct leasing *leasing, const char *id, uint32_t number, struct key *key);
/** The same as its owner gets it: "whsec_" and base64. */
void webhook_secret(const struct leasing *leasing, const char *id, uint32_t number,
                    char to[static WEBHOOK_SECRET_BYTES]);

/* --- what people ask --- */

enum webhook_verb {
    WEBHOOK_MAKE,
    WEBHOOK_LIST, /* the owner's; with `all`, everybody's (admins) */
    WEBHOOK_FIND,
    WEBHOOK_TEST, /* as FIND, for who may change it */
    WEBHOOK_CHANGE,
    WEBHOOK_ROTATE,
    WEBHOOK_DROP
};

/** The question above, the answer below. */
struct webhook_question {
    enum webhook_verb verb;
    struct caller caller;
    char id[RANDOM_ID_BYTES];
    /* MAKE, CHANGE: those that are set. The URL was checked (negotiator/webhooks/target.h). */
    const char *url, *types; /* borrowed from `body` */
    json_t *body;            /* owned; may be NULL */
    bool has_all, all, has_enabled, enabled;
    int64_t grace_s;                                            /* ROTATE */
    void (*answered)(void *cookie, struct webhook_question *q); /* on the ledger thread; the callee's from then on */
    void *cookie;

    struct error refusal; /* ERROR_NONE: done */
    struct webhook webhook;
    struct webhook *list; /* owned */
    size_t count;

    struct leasing *leasing; /* private */
};

/** An empty question. */
struct webhook_question *webhook_question_new(void);
/** With all it owns; NULL is allowed. */
void webhook_question_free(struct webhook_question *question);
DEFINE_AUTO(webhook_question)

/** Queues it; takes it. Any thread. */
void leasing_ask_webhooks(struct leasing *leasing, struct webhook_question *question);

/* --- for who sends; in rules --- */

/** revision 0: there is none of that id. */
bool webhook_get(struct kv *kv, const char *id, struct webhook *webhook, struct error *err) MUST_USE;

/** The ids of all webhooks, at most WEBHOOKS_ALL_MAX, as a JSON array; the caller owns it. NULL with err. */
json_t *webhook_list_ids(struct kv *kv, struct error *err) MUST_USE;

/** What came of an attempt, or only how far it is (seq 0). */
struct webhook_note {
    struct leasing *leasing;
    char id[RANDOM_ID_BYTES];
    uint64_t cursor; /* as far as nothing is left to deliver; 0: as it is */
    uint64_t seq;    /* the event that was sent; 0: none */
    char type[EVENT_TYPE_BYTES];
    bool delivered;
    bool disable;  /* the receiver, or what it may see, is gone: no more attempts; `error` says why */
    int status;    /* of the answer; 0: none */
    int64_t at_ms; /* wall clock */
    int64_t took_ms;
    int64_t wait_s;    /* that the receiver asked for before the next attempt; 0: it did not */
    int64_t give_up_s; /* of failing without a break, then it is disabled */
    char error[WEBHOOK_REASON_BYTES];
    struct webhook webhook; /* the answer: as it is now; revision 0: it was deleted */
};
/** The rule. */
enum kv_outcome webhook_note_rule(struct kv *kv, struct webhook_note *note, struct error *err);

/** How long to wait after `attempts` (1..) that failed: 1 s, doubled each time up to an hour; the half of it is chance,
 *  so that those of one outage do not come back together. ms. */
int64_t webhook_backoff_ms(uint32_t attempts) MUST_USE;
