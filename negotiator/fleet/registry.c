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
    /* Wall time, so that no number of before a restart comes again: 2^20 messages a millisecond are never sent. Should
     * the clock have been set back meanwhile, the nodes' rows say more (fleet_load). */
    fleet->start_ms = options->wall_ms();
    fleet->start_ns = options->boot_ns();
    fleet->first_number = (uint64_t)fleet->start_ms << 20;
    fleet->last = &fleet->first;
    pthread_mutex_init(&fleet->registry_lock, NULL);
    pthread_mutex_init(&fleet->queue_lock, NULL);
    pthread_cond_init(&fleet->queued, NULL);
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
        key_done(&fleet->nodes[i]->to_node);
        key_done(&fleet->nodes[i]->from_node);
        free(fleet->nodes[i]);
    }
    free(fleet->nodes);
    key_done(&fleet->master);
    pthread_cond_destroy(&fleet->queued);
    pthread_mutex_destroy(&fleet->queue_lock);
    pthread_mutex_destroy(&fleet->registry_lock);
    free(fleet);
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
    AUTO_KEY key;
    key_node(&key, &fleet->master, name, FLEET_EPOCH);
    key_link(&node->to_node, &key, "negotiator");
    key_link(&node->from_node, &key, "sandboxd");
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
        *address = (struct fleet_address){.to_node = node->to_node, .from_node = node->from_node};
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
    key_done(&address->to_node);
    key_done(&address->from_node);
}

/* --- the store --- */

struct loading {
    struct fleet *fleet;
    bool damaged;
};

static bool load_node(void *cookie, const char *key, const struct kv_value *value)
{
    struct loading *loading = cookie;
    json_t *row = json_loadb(value->data, value->size, 0, NULL);
    json_int_t incarnation = 0, numbers = 0;
    const char *url = NULL;
    bool read =
        row && json_unpack(row, "{s:I, s:s, s?I}", "incarnation", &incarnation, "url", &url, "numbers", &numbers) == 0;
    struct fleet_node *node = read ? fleet_node_of(loading->fleet, key + strlen(NODES_PREFIX), true) : NULL;
    if (node && text_copy(node->url, sizeof node->url, url)) {
        node->window.incarnation = (uint64_t)incarnation;
        node->numbers = (uint64_t)numbers > node->numbers ? (uint64_t)numbers : node->numbers;
        node->seen_ns = loading->fleet->options.boot_ns();
    } else {
        loading->damaged = true;
    }
    json_decref(row);
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

/* Two loops may have taken two heartbeats in one order and queued them in the other. *numbers gets the last number. */
static bool begin_rule(struct fleet *fleet, const struct link_head *head, uint64_t *numbers, struct error *err)
{
    pthread_mutex_lock(&fleet->registry_lock);
    struct fleet_node *node = fleet_node_of(fleet, head->node, false);
    bool is_late = node == NULL || head->incarnation < node->ruled_incarnation ||
                   (head->incarnation == node->ruled_incarnation && head->number < node->ruled_number);
    if (!is_late) {
        node->ruled_incarnation = head->incarnation;
        node->ruled_number = head->number;
        *numbers = node->numbers;
    }
    pthread_mutex_unlock(&fleet->registry_lock);
    return !is_late || error_set(err, ERROR_CONFLICT, "a later heartbeat came first");
}

/* How far the numbers are spoken for, as the row is to say it. */
static uint64_t ceiling_of(const struct kv_value *row, uint64_t numbers)
{
    json_t *json = row->data ? json_loadb(row->data, row->size, 0, NULL) : NULL;
    uint64_t ceiling = (uint64_t)json_integer_value(json_object_get(json, "numbers"));
    json_decref(json);
    return ceiling < numbers + NUMBERS_AHEAD ? numbers + NUMBERS_STEP : ceiling;
}

enum kv_outcome fleet_heartbeat_rule(struct fleet *fleet, struct kv *kv, const struct fleet_message *message,
                                     struct error *err)
{
    uint64_t numbers = 0;
    if (!begin_rule(fleet, &message->head, &numbers, err))
        return KV_FAILED;
    char key[sizeof NODES_PREFIX + LINK_NODE_BYTES];
    if (!text_format(key, sizeof key, NODES_PREFIX "%s", message->head.node)) {
        error_set(err, ERROR_INTERNAL, "a node's name does not fit");
        return KV_FAILED;
    }
    AUTO_KV_VALUE value = {0};
    if (!kv_get(kv, key, &value, err))
        return KV_FAILED;
    json_t *row = json_pack("{s:I, s:s, s:i, s:I}", "incarnation", (json_int_t)message->head.incarnation, "url",
                            message->url, "epoch", FLEET_EPOCH, "numbers", (json_int_t)ceiling_of(&value, numbers));
    AUTO_FREE char *text = json_dumps(row, JSON_COMPACT);
    json_decref(row);
    if (text_equal(text, value.data))
        return KV_APPLIED;
    AUTO(kv_change) *change = kv_change_new();
    kv_change_expect(change, key, value.revision);
    kv_change_put(change, key, text, strlen(text));
    return kv_apply(kv, change, err);
}

/* --- life and place --- */

static enum fleet_life life_of(const struct fleet_node *node, uint64_t now)
{
    uint64_t silent = now > node->seen_ns ? now - node->seen_ns : 0;
    if (node->heard && silent < FLEET_ALIVE_NS)
        return FLEET_ALIVE;
    return silent < FLEET_LOST_NS ? FLEET_SUSPECT : FLEET_LOST;
}

enum fleet_life fleet_find(struct fleet *fleet, const char *name, char url[static FLEET_URL_BYTES])
{
    uint64_t now = fleet->options.boot_ns();
    url[0] = '\0';
    pthread_mutex_lock(&fleet->registry_lock);
    const struct fleet_node *node = fleet_node_of(fleet, name, false);
    enum fleet_life life = node ? life_of(node, now) : FLEET_UNKNOWN;
    if (node)
        memcpy(url, node->url, sizeof node->url);
    pthread_mutex_unlock(&fleet->registry_lock);
    return life;
}

size_t fleet_alive(struct fleet *fleet)
{
    uint64_t now = fleet->options.boot_ns();
    size_t alive = 0;
    pthread_mutex_lock(&fleet->registry_lock);
    for (size_t i = 0; i < fleet->node_count; i++)
        alive += life_of(fleet->nodes[i], now) == FLEET_ALIVE;
    pthread_mutex_unlock(&fleet->registry_lock);
    return alive;
}

static bool offers(const struct fleet_node *node, const char *isolation)
{
    bool found = strcmp(isolation, "auto") == 0;
    for (size_t i = 0; i < node->isolation_count; i++)
        found = found || strcmp(node->isolations[i], isolation) == 0;
    return found;
}

struct choice {
    struct fleet_node *best;
    bool any_alive, any_suitable;
};

static int64_t load_of(const struct fleet_node *node)
{
    return node->used + node->placed;
}

static void consider(struct choice *choice, struct fleet_node *node, const char *isolation)
{
    choice->any_alive = true;
    if (!offers(node, isolation))
        return;
    choice->any_suitable = true;
    if (load_of(node) < node->slots && node->waiting < FLEET_WAITING_MAX &&
        (choice->best == NULL || load_of(node) < load_of(choice->best)))
        choice->best = node;
}

bool fleet_place(struct fleet *fleet, const char *isolation, char to[static LINK_NODE_BYTES], uint32_t *epoch,
                 struct error *err)
{
    uint64_t now = fleet->options.boot_ns();
    struct choice choice = {.best = NULL};
    pthread_mutex_lock(&fleet->registry_lock);
    for (size_t i = 0; i < fleet->node_count; i++) {
        if (life_of(fleet->nodes[i], now) == FLEET_ALIVE)
            consider(&choice, fleet->nodes[i], isolation);
    }
    if (choice.best) {
        choice.best->placed++;
        memcpy(to, choice.best->name, LINK_NODE_BYTES);
        *epoch = FLEET_EPOCH;
    }
    pthread_mutex_unlock(&fleet->registry_lock);
    if (choice.best)
        return true;
    if (!choice.any_alive)
        return error_set(err, ERROR_NODE_UNREACHABLE, "no node is alive; is parley-sandboxd running?");
    if (!choice.any_suitable)
        return error_set(err, ERROR_INVALID, "no node offers isolation %s", isolation);
    return error_set(err, ERROR_NO_CAPACITY, "every node is full, or has too many calls waiting");
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
    bool taken = node && is_later(node, &message->head);
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
        memcpy(node->url, message->url, sizeof node->url);
        memcpy(node->isolations, message->isolations, sizeof node->isolations);
        node->isolation_count = message->isolation_count;
    }
    pthread_mutex_unlock(&fleet->registry_lock);
    return taken || error_set(err, ERROR_CONFLICT, "a later heartbeat came first");
}
