#include "negotiator/leasing/events/hub.h"

#include "negotiator/ledger/audit.h"
#include "shared/base/memory.h"

#include <pthread.h>
#include <string.h>

struct events_hub {
    pthread_mutex_t mutex; /* guards all below */
    struct events_listener *first;
    uint64_t told; /* the head that all were told of */
};

/* On the ledger thread. A head that cannot be read is told when the next batch comes. */
static void committed(void *context, struct kv *kv)
{
    struct events_hub *hub = context;
    struct audit_position head;
    pthread_mutex_lock(&hub->mutex);
    bool grew = hub->first && audit_head(kv, &head.seq, head.hash, NULL) && head.seq != hub->told;
    if (grew)
        hub->told = head.seq;
    for (struct events_listener *each = hub->first; grew && each; each = each->next)
        each->grew(each->cookie, head.seq);
    pthread_mutex_unlock(&hub->mutex);
}

struct events_hub *events_hub_new(struct ledger *ledger)
{
    struct events_hub *hub = memory_new(sizeof *hub);
    pthread_mutex_init(&hub->mutex, NULL);
    ledger_on_commit(ledger, committed, hub);
    return hub;
}

void events_hub_free(struct events_hub *hub)
{
    if (hub == NULL)
        return;
    pthread_mutex_destroy(&hub->mutex);
    free(hub);
}

static bool has_room(const struct events_hub *hub, const char *principal, struct error *err)
{
    size_t all = 0, own = 0;
    for (const struct events_listener *each = hub->first; each; each = each->next) {
        all++;
        own += strcmp(each->principal, principal) == 0;
    }
    if (principal[0] && own >= EVENTS_OF_ONE_MAX)
        return error_set(err, ERROR_RATE_LIMITED, "%s follows events %d times already", principal, EVENTS_OF_ONE_MAX);
    return principal[0] == '\0' || all < EVENTS_LISTENERS_MAX ||
           error_set(err, ERROR_RATE_LIMITED, "events are followed %d times already", EVENTS_LISTENERS_MAX);
}

bool events_listen(struct events_hub *hub, struct events_listener *listener, struct error *err)
{
    pthread_mutex_lock(&hub->mutex);
    bool listens = has_room(hub, listener->principal, err);
    if (listens) {
        listener->next = hub->first;
        hub->first = listener;
    }
    pthread_mutex_unlock(&hub->mutex);
    return listens;
}

void events_unlisten(struct events_hub *hub, struct events_listener *listener)
{
    pthread_mutex_lock(&hub->mutex);
    struct events_listener **at = &hub->first;
    while (*at && *at != listener)
        at = &(*at)->next;
    if (*at)
        *at = listener->next;
    pthread_mutex_unlock(&hub->mutex);
}
