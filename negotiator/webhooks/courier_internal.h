/** courier_internal.h - what the courier's files share. All but the inbox belongs to its thread. */
#pragma once

#include "negotiator/webhooks/courier.h"
#include "negotiator/webhooks/delivery.h"

#include <pthread.h>
#include <stdatomic.h>

#define COURIER_TESTS_MAX    16
#define COURIER_TESTS_OF_ONE 4 /* of one principal's webhooks */

/* What a hook does just now. */
enum hook_busy {
    HOOK_FREE,
    HOOK_NOTES, /* its row is written, or read, on the ledger thread */
    HOOK_READS, /* events are read there */
    HOOK_SENDS
};

struct hook {
    struct courier *courier;
    char id[RANDOM_ID_BYTES];
    enum hook_busy busy;
    struct webhook row; /* as it was last heard of; revision 0: not yet */
    bool is_stale;      /* the row has changed since */
    bool is_behind;     /* there may be events after `reading.after` */
    struct event_reading reading;
    size_t at;               /* of reading.events: the next one to be sent */
    int64_t due_ms, read_ms; /* wall clock: not looked at before; last read */
    struct delivery delivery;
    struct webhook_note note;
    struct error err; /* of what the ledger thread did */
    struct hook *next;
};

/* A test that is under way. */
struct probe {
    struct delivery delivery;
    struct webhook webhook;
    struct webhook_note note;
    void (*done)(void *cookie, const struct webhook_note *note);
    void *cookie;
    char *tester; /* its place in courier.testers */
    struct probe *next;
};

/* For the thread. */
struct letter {
    struct hook *hook; /* the ledger thread has done what it was asked; or NULL: */
    char id[RANDOM_ID_BYTES];
    struct probe *probe; /* to begin; or NULL: the webhook `id` changed */
    struct letter *next;
};

struct courier {
    struct courier_options options;
    CURLM *multi;
    pthread_t thread;
    bool runs;
    struct events_listener listener;
    atomic_bool stopping, grew;
    pthread_mutex_t mutex; /* guards the inbox and `testers` */
    struct letter *first, **last;
    char testers[COURIER_TESTS_MAX][PRINCIPAL_BYTES]; /* whose webhook each test under way is; "": free */
    struct hook *hooks;
    struct probe *probes;
};

/** A letter for the thread. Any thread. */
void courier_post(struct courier *courier, struct letter letter);

/* hook.c */

/** Does what is to be done next with it, until it waits for something. True: it was deleted and is to be freed. */
bool hook_go(struct hook *hook) MUST_USE;
/** The ledger thread has answered. */
void hook_answered(struct hook *hook);
/** Its delivery has come to an end. */
void hook_sent(struct hook *hook, CURLcode code);
/** With all it has; nothing of it is on the ledger thread. */
void hook_free(struct hook *hook);
