#include "negotiator/fleet/fleet_internal.h"
#include "shared/base/memory.h"
#include "shared/base/text.h"

#include <string.h>

#define NODES_PREFIX "node/"

struct fleet *fleet_start(const struct fleet_options *options, struct error *err)
{
    AUTO(fleet) *fleet = memory_new(sizeof *fleet);
    fleet->options = *options;
    fleet->master = *options->master;
    fleet->options.master = &fleet->master;
    fleet->options.deployment = fleet->deployment;
    key_derive(&fleet->audit_key, &fleet->master, "parley/audit/1");
    /* Wall time, so that no number of before a restart comes again: 2^20 messages a millisecond are never sent. Should
     * the clock have been set back meanwhile, the nodes' rows say more (fleet_load). */
    fleet->start_ms = options->wall_ms();
    fleet->start_ns = options->boot_ns();
    fleet->first_number = (uint64_t)fleet->start_ms << 20;
    fleet->last = &fleet->first;
    pthread_mutex_init(&fleet->registry_lock, NULL);
    pthread_mutex_init(&fleet->queue_lock, NULL);
    pthread_cond_init(&fleet->queued, NULL);
    if (options->deployment && !text_copy(fleet->deployment, sizeof fleet->deployment, options->deployment)) {
        error_set(err, ERROR_INVALID, "the deployment's id is too long");
        return NULL;
    }
    return calls_start(fleet, err) ? TAKE(fleet) : NULL;
}

void fleet_stop(struct fleet *fleet)
{
    calls_stop(fleet);
}

void fleet_free(struct fleet *fleet)
{
    if (fleet == NULL)
        return;
    calls_stop(fleet);
    for (size_t i = 0; i < fleet->node_count; i++) {
        fleet_keys_done(&fleet->nodes[i]->keys);
        json_decref(fleet->nodes[i]->templates);
        free(fleet->nodes[i]);
    }
    free(fleet->nodes);
    key_done(&fleet->master);
    key_done(&fleet->audit_key);
    pthread_cond_destroy(&fleet->queued);
    pthread_mutex_destroy(&fleet->queue_lock);
    pthread_mutex_destroy(&fleet->registry_lock);
    free(fleet);
}

void fleet_keys_of(struct fleet_keys *keys, const struct fleet *fleet, const char *node, uint32_t epoch)
{
    AUTO_KEY key;
    key_node(&key, &fleet->master, node, epoch);
    key_link(&keys->to_node, &key, "negotiator");
    key_link(&keys->from_node, &key, "sandboxd");
}

void fleet_keys_done(struct fleet_keys *keys)
{
    key_done(&keys->to_node);
    key_done(&keys->from_node);
}

void fleet_node_raise(struct fleet *fleet, struct fleet_node *node, uint32_t epoch)
{
    if (epoch <= node->epoch)
        return;
    node->epoch = epoch;
    if (node->next_epoch <= epoch)
        node->next_epoch = 0;
    fleet_keys_of(&node->keys, fleet, node->name, epoch);
    /* Nothing that was said before opens under this key. So the counting begins anew: whoever had the former one may
     * have counted as high as numbers go. */
    node->window = (struct link_window){.incarnation = 0};
    node->seen_incarnation = node->heard_number = node->ruled_incarnation = node->ruled_number = 0;
}

struct fleet_node *fleet_node_of(struct fleet *fleet, const char *name, bool make)
{
    for (size_t i = 0; i < fleet->node_count; i++) {
        if (strcmp(fleet->nodes[i]->name, name) == 0)
            return fleet->nodes[i];
    }
    struct fleet_node *node = NULL;
    if (!make || fleet->node_count >= FLEET_NODES_MAX)
        return NULL;
    node = memory_new(sizeof *node);
    if (!text_copy(node->name, sizeof node->name, name)) {
        free(node);
        return NULL;
    }
    node->epoch = FLEET_EPOCH;
    fleet_keys_of(&node->keys, fleet, name, node->epoch);
    node->seen_ns = fleet->options.boot_ns();
    node->numbers = fleet->first_number;
    fleet->nodes = memory_resize(fleet->nodes, (fleet->node_count + 1) * sizeof *fleet->nodes);
    fleet->nodes[fleet->node_count++] = node;
    return node;
}

bool fleet_address(struct fleet *fleet, const char *name, struct fleet_address *address)
{
    pthread_mutex_lock(&fleet->registry_lock);
    struct fleet_node *node = fleet_node_of(fleet, name, false);
    if (node) {
        *address = (struct fleet_address){.keys = node->keys};
        memcpy(address->head.node, node->name, sizeof address->head.node);
        memcpy(address->url, node->url, sizeof address->url);
        address->head.incarnation = node->window.incarnation;
        address->head.number = ++node->numbers;
    }
    pthread_mutex_unlock(&fleet->registry_lock);
    return node != NULL;
}

void fleet_address_done(struct fleet_address *address)
{
    fleet_keys_done(&address->keys);
}

/* --- the store --- */

struct loading {
    struct fleet *fleet;
    bool damaged;
};

static bool load_node(void *cookie, const char *key, const struct kv_value *value)
{
    struct loading *loading = cookie;
    struct fleet_row row;
    bool read = fleet_row_parse(&row, value);
    struct fleet_node *node = read ? fleet_node_of(loading->fleet, key + strlen(NODES_PREFIX), true) : NULL;
    if (node) {
        memcpy(node->url, row.url, sizeof node->url);
        node->numbers = row.numbers > node->numbers ? row.numbers : node->numbers;
        fleet_node_raise(loading->fleet, node, row.epoch);
        node->window.incarnation = row.incarnation; /* counted under that epoch */
        node->next_epoch = row.next_epoch;
        node->draining = row.draining;
        node->has_public_key = row.has_public_key;
        memcpy(node->public_key, row.public_key, sizeof node->public_key);
    } else {
        loading->damaged = true;
    }
    return !loading->damaged;
}

bool fleet_load(struct fleet *fleet, struct kv *kv, struct error *err)
{
    struct loading loading = {.fleet = fleet};
    pthread_mutex_lock(&fleet->registry_lock);
    bool read = kv_range(kv, NODES_PREFIX, NULL, 0, load_node, &loading, err);
    pthread_mutex_unlock(&fleet->registry_lock);
    if (read && loading.damaged)
        return error_set(err, ERROR_INTERNAL, "the row of a node is damaged, or there are more than %d",
                         FLEET_NODES_MAX);
    return read;
}

/* Two loops may have taken two heartbeats in one order and queued them in the other. *now gets what is to be durable.
 */
static bool begin_rule(struct fleet *fleet, const struct fleet_message *message, struct fleet_row *now,
                       struct error *err)
{
    const struct link_head *head = &message->head;
    pthread_mutex_lock(&fleet->registry_lock);
    struct fleet_node *node = fleet_node_of(fleet, head->node, false);
    bool is_late = node == NULL || message->epoch < node->epoch || head->incarnation < node->ruled_incarnation ||
                   (head->incarnation == node->ruled_incarnation && head->number < node->ruled_number);
    if (!is_late) {
        node->ruled_incarnation = head->incarnation;
        node->ruled_number = head->number;
        *now = (struct fleet_row){.numbers = node->numbers, .epoch = node->epoch};
    }
    pthread_mutex_unlock(&fleet->registry_lock);
    return !is_late || error_set(err, ERROR_CONFLICT, "a later heartbeat came first");
}

enum kv_outcome fleet_heartbeat_rule(struct fleet *fleet, struct kv *kv, const struct fleet_message *message,
                                     struct error *err)
{
    struct fleet_row now = {.epoch = 0}, row;
    const char *name = message->head.node;
    if (!begin_rule(fleet, message, &now, err) || !fleet_row_get(&row, kv, name, err))
        return KV_FAILED;
    struct fleet_row before = row;
    row.incarnation = message->head.incarnation;
    memcpy(row.url, message->url, sizeof row.url);
    /* How far the numbers are spoken for: not a write a message. */
    if (row.numbers < now.numbers + NUMBERS_AHEAD)
        row.numbers = now.numbers + NUMBERS_STEP;
    row.epoch = now.epoch > row.epoch ? now.epoch : row.epoch;
    if (row.next_epoch <= row.epoch)
        row.next_epoch = 0;
    bool same = row.revision > 0 && row.incarnation == before.incarnation && strcmp(row.url, before.url) == 0 &&
                row.numbers == before.numbers && row.epoch == before.epoch && row.next_epoch == before.next_epoch;
    if (same)
        return KV_APPLIED;
    AUTO(kv_change) *change = kv_change_new();
    fleet_row_put(change, &row, name);
    return kv_apply(kv, change, err);
}

unsigned fleet_count_waiting(struct fleet *fleet, const char *name, int by)
{
    unsigned before = 0;
    pthread_mutex_lock(&fleet->registry_lock);
    struct fleet_node *node = fleet_node_of(fleet, name, false);
    if (node) {
        before = node->waiting;
        node->waiting = by > 0 ? before + 1 : before ? before - 1 : 0;
    }
    pthread_mutex_unlock(&fleet->registry_lock);
    return before;
}

uint32_t fleet_epoch(struct fleet *fleet, const char *name)
{
    pthread_mutex_lock(&fleet->registry_lock);
    const struct fleet_node *node = fleet_node_of(fleet, name, false);
    uint32_t epoch = node ? node->epoch : FLEET_EPOCH;
    pthread_mutex_unlock(&fleet->registry_lock);
    return epoch;
}

uint64_t fleet_incarnation(struct fleet *fleet, const char *name)
{
    pthread_mutex_lock(&fleet->registry_lock);
    const struct fleet_node *node = fleet_node_of(fleet, name, false);
    uint64_t incarnation = node ? node->window.incarnation : 0;
    pthread_mutex_unlock(&fleet->registry_lock);
    return incarnation;
}

/* Whether the heartbeat is news. */
static bool is_later(const struct fleet_node *node, const struct link_head *head)
{
    bool same = node->heard && node->seen_incarnation == head->incarnation;
    return same ? head->number > node->heard_number : !node->heard || head->incarnation > node->seen_incarnation;
}

bool fleet_heartbeat_seen(struct fleet *fleet, struct fleet_message *message, struct error *err)
{
    uint64_t now_ns = fleet->options.boot_ns();
    int64_t now_ms = fleet->options.wall_ms();
    pthread_mutex_lock(&fleet->registry_lock);
    struct fleet_node *node = fleet_node_of(fleet, message->head.node, true);
    bool taken = node && message->epoch >= node->epoch && is_later(node, &message->head);
    if (taken) {
        bool same = node->heard && node->seen_incarnation == message->head.incarnation;
        message->previous_seen_ms = same ? node->seen_ms : 0;
        node->seen_incarnation = message->head.incarnation;
        node->heard_number = message->head.number;
        node->heard = true;
        node->seen_ns = now_ns;
        node->seen_ms = now_ms;
        node->slots = message->slots;
        node->used = message->used;
        node->placed = 0;
        node->clock_off_ms = message->clock_off_ms;
        memcpy(node->url, message->url, sizeof node->url);
        memcpy(node->isolations, message->isolations, sizeof node->isolations);
        node->isolation_count = message->isolation_count;
        if (message->templates || !same) { /* a difference says nothing of what is as it was */
            json_decref(node->templates);
            node->templates = TAKE(message->templates);
        }
    }
    pthread_mutex_unlock(&fleet->registry_lock);
    if (!taken)
        return error_set(err, ERROR_CONFLICT, "a later heartbeat came first");
    fleet_send_rekey(fleet, message->head.node, false);
    return true;
}
