/* node_seal.c - open, close, and never the same number twice. */
#include "sandboxd/sandbox/node_seal.h"

#include "shared/base/memory.h"
#include "shared/base/text.h"

#include <pthread.h>
#include <stdatomic.h>
#include <string.h>

static const int64_t TIME_OFF_MS = 10000;

struct node_seal {
    struct fl_identity identity;
    pthread_mutex_t mutex;     /* guards window */
    struct link_window window; /* of the negotiator's requests */
    _Atomic uint64_t next_number;
    _Atomic int64_t contact_ms;
};

struct node_seal *node_seal_new(const struct fl_identity *identity)
{
    struct node_seal *seal = memory_new(sizeof *seal);
    seal->identity = *identity;
    seal->next_number = 1;
    pthread_mutex_init(&seal->mutex, NULL);
    return seal;
}

void node_seal_free(struct node_seal *seal)
{
    if (!seal)
        return;
    key_done(&seal->identity.link_to_node);
    key_done(&seal->identity.link_from_node);
    pthread_mutex_destroy(&seal->mutex);
    free(seal);
}

const struct fl_identity *node_seal_identity(const struct node_seal *seal)
{
    return &seal->identity;
}

int64_t node_seal_contact_ms(const struct node_seal *seal)
{
    return seal->contact_ms;
}

static json_t *refuse(struct error *err)
{
    error_set(err, ERROR_UNAUTHENTICATED, "not a message for this node");
    return NULL;
}

/* Opened, and for this start of this node. */
static json_t *open_ours(const struct node_seal *seal, const void *bytes, size_t size, struct link_head *head,
                         struct error *err)
{
    json_t *message = link_open(seal->identity.link_to_node.bytes, bytes, size, head, err);
    if (!message)
        return refuse(err);
    if (strcmp(head->node, seal->identity.node) == 0 && head->incarnation == seal->identity.incarnation)
        return message;
    json_decref(message);
    return refuse(err);
}

static bool is_timely(const json_t *message, int64_t now_ms)
{
    const json_t *time = json_object_get(message, "time");
    if (!time)
        return true;
    int64_t off = json_is_integer(time) ? json_integer_value(time) - now_ms : INT64_MAX;
    return off <= TIME_OFF_MS && off >= -TIME_OFF_MS;
}

static bool accept_number(struct node_seal *seal, const struct link_head *head)
{
    struct error ignored = {0};
    pthread_mutex_lock(&seal->mutex);
    bool accepted = link_window_accept(&seal->window, head, &ignored);
    pthread_mutex_unlock(&seal->mutex);
    return accepted;
}

json_t *node_seal_open(struct node_seal *seal, const void *bytes, size_t size, int64_t now_ms, uint64_t *number,
                       struct error *err)
{
    struct link_head head;
    json_t *message = open_ours(seal, bytes, size, &head, err);
    if (!message)
        return NULL;
    if (head.in_reply_to != 0 || !is_timely(message, now_ms) || !accept_number(seal, &head)) {
        json_decref(message);
        return refuse(err);
    }
    seal->contact_ms = now_ms;
    *number = head.number;
    return message;
}

json_t *node_seal_open_reply(struct node_seal *seal, const void *bytes, size_t size, uint64_t number, int64_t now_ms,
                             struct error *err)
{
    struct link_head head;
    json_t *message = open_ours(seal, bytes, size, &head, err);
    if (!message)
        return NULL;
    if (head.in_reply_to != number || !is_timely(message, now_ms)) {
        json_decref(message);
        return refuse(err);
    }
    seal->contact_ms = now_ms;
    return message;
}

bool node_seal_close(struct node_seal *seal, const json_t *message, uint64_t in_reply_to, uint8_t **bytes, size_t *size,
                     uint64_t *number, struct error *err)
{
    struct link_head head = {.incarnation = seal->identity.incarnation, .in_reply_to = in_reply_to};
    head.number = atomic_fetch_add(&seal->next_number, 1);
    if (!text_copy(head.node, sizeof head.node, seal->identity.node))
        return error_set(err, ERROR_INTERNAL, "the node's name is too long");
    if (!link_seal(seal->identity.link_from_node.bytes, &head, message, bytes, size, err))
        return false;
    if (number)
        *number = head.number;
    return true;
}
