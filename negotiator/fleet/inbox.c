#include "negotiator/fleet/fleet_internal.h"
#include "shared/base/text.h"

#include <inttypes.h>
#include <string.h>

static const int64_t SLOTS_MAX = 65536;

void fleet_message_done(struct fleet_message *message)
{
    json_decref(message->json);
    json_decref(message->templates);
    *message = (struct fleet_message){0};
}

static bool refuse(struct error *err)
{
    return error_set(err, ERROR_UNAUTHENTICATED, "the node message does not open, or came before");
}

/* --- under which key --- */

enum { EPOCHS_AHEAD = 8, AHEAD_MAX_BYTES = 256 * 1024 };

/* What may be tried for a name: a key of an epoch from `first` to `last`. */
struct candidates {
    uint32_t first, last;
};

/* The key in force, and the next one while the node is being re-keyed. A node that was not heard of since our start may
 * be ahead of us: the ledger was put back from an older copy. It got its key from us, so a higher one than ours is no
 * worse. A name that never spoke is tried too: only a node that enrolled has its key. */
static struct candidates candidates_of(struct fleet *fleet, const char *name, size_t size)
{
    struct candidates may = {.first = FLEET_EPOCH, .last = FLEET_EPOCH};
    pthread_mutex_lock(&fleet->registry_lock);
    const struct fleet_node *node = fleet_node_of(fleet, name, false);
    bool heard = node && node->heard;
    if (node)
        may = (struct candidates){node->epoch, node->next_epoch ? node->next_epoch : node->epoch};
    pthread_mutex_unlock(&fleet->registry_lock);
    if (!heard && size <= AHEAD_MAX_BYTES && may.last < UINT32_MAX - EPOCHS_AHEAD)
        may.last += EPOCHS_AHEAD;
    return may;
}

static json_t *open_message(struct fleet *fleet, const void *bytes, size_t size, struct link_head *head,
                            uint32_t *epoch)
{
    struct candidates may = candidates_of(fleet, head->node, size);
    json_t *json = NULL;
    for (*epoch = may.first; json == NULL; (*epoch)++) {
        AUTO_FLEET_KEYS keys;
        fleet_keys_of(&keys, fleet, head->node, *epoch);
        json = link_open(keys.from_node.bytes, bytes, size, head, NULL);
        if (json || *epoch == may.last)
            break;
    }
    return json;
}

/* Told once a minute: the same old message can be sent to us as often as somebody likes. Registry locked. */
static bool tell_stale(struct fleet_node *node, uint64_t now)
{
    static const uint64_t MINUTE_NS = 60000000000;
    if (node->stale_told_ns && now - node->stale_told_ns < MINUTE_NS)
        return false;
    node->stale_told_ns = now;
    return true;
}

static bool take_message(struct fleet *fleet, struct fleet_message *message, struct error *err)
{
    const struct link_head *head = &message->head;
    struct error why = {0};
    uint64_t now = fleet->options.boot_ns(), seen = 0;
    bool accepted = false;
    pthread_mutex_lock(&fleet->registry_lock);
    struct fleet_node *node = fleet_node_of(fleet, head->node, true);
    if (node) {
        fleet_node_raise(fleet, node, message->epoch); /* first: incarnations count within an epoch */
        seen = node->window.incarnation;
        accepted = message->epoch == node->epoch && link_window_accept(&node->window, head, &why);
        message->stale = head->incarnation < seen && tell_stale(node, now);
    }
    pthread_mutex_unlock(&fleet->registry_lock);
    if (node == NULL)
        return error_set(err, ERROR_NO_CAPACITY, "more than %d nodes", FLEET_NODES_MAX);
    if (head->incarnation < seen)
        return error_set(err, ERROR_UNAUTHENTICATED,
                         "node %s spoke as incarnation %" PRIu64 ", it was %" PRIu64
                         " before: an old message, or a copy of its state folder",
                         head->node, head->incarnation, seen);
    if (!accepted && why.kind == ERROR_NONE)
        return refuse(err); /* the key was replaced meanwhile */
    return accepted || error_set(err, ERROR_UNAUTHENTICATED, "%s", why.message);
}

bool fleet_open(struct fleet *fleet, const void *bytes, size_t size, struct fleet_message *message, struct error *err)
{
    struct fleet_message opened = {.json = NULL};
    if (!link_peek(bytes, size, &opened.head, NULL) || opened.head.in_reply_to != 0 ||
        opened.head.incarnation > INT64_MAX) /* as JSON has it */
        return refuse(err);
    opened.json = open_message(fleet, bytes, size, &opened.head, &opened.epoch);
    if (opened.json == NULL)
        return refuse(err);
    if (!take_message(fleet, &opened, err)) {
        json_decref(TAKE(opened.json));
        *message = opened;
        return false;
    }
    const json_t *time = json_object_get(opened.json, "time");
    int64_t told = json_integer_value(time);
    int64_t off = opened.clock_off_ms = (told > 0 ? told : 0) - fleet->options.wall_ms();
    *message = opened;
    /* Not ERROR_INVALID: the same said again may be right, and no record of an audit is to be given up for it.
     * A start forgets which numbers came; a message that is older than it may be a second time. Later its age tells. */
    bool is_new = fleet->options.boot_ns() - fleet->start_ns < FLEET_SKEW_MS * UINT64_C(1000000);
    if (is_new && json_is_integer(time) && json_integer_value(time) < fleet->start_ms)
        return error_set(err, ERROR_CONFLICT, "the message is older than this start of the negotiator");
    if (!json_is_integer(time) || off > FLEET_SKEW_MS || off < -FLEET_SKEW_MS)
        return error_set(err, ERROR_CONFLICT, "the node's clock is %" PRId64 " ms off; at most %d are allowed", off,
                         FLEET_SKEW_MS);
    return true;
}

/* --- one at a time --- */

bool fleet_enter(struct fleet *fleet, const char *name, enum fleet_kind kind, struct error *err)
{
    pthread_mutex_lock(&fleet->registry_lock);
    struct fleet_node *node = fleet_node_of(fleet, name, false);
    bool entered = node && !node->is_inside[kind];
    if (entered)
        node->is_inside[kind] = true;
    pthread_mutex_unlock(&fleet->registry_lock);
    return entered || error_set(err, ERROR_RATE_LIMITED, "what you sent before is still being taken; send it later");
}

void fleet_left(struct fleet *fleet, const char *name, enum fleet_kind kind)
{
    pthread_mutex_lock(&fleet->registry_lock);
    struct fleet_node *node = fleet_node_of(fleet, name, false);
    if (node)
        node->is_inside[kind] = false;
    pthread_mutex_unlock(&fleet->registry_lock);
}

/* --- heartbeats --- */

/* "http://host:port", "https://host/prefix": it is told to clients, and called. */
static bool is_url(const char *url)
{
    if (url == NULL || (!text_starts_with(url, "http://") && !text_starts_with(url, "https://")))
        return false;
    const char *rest = strstr(url, "://") + 3;
    return rest[0] != '/' && text_is_made_of(rest, FLEET_URL_BYTES - 10, ".-_~:/[]%");
}

static bool read_isolations(struct fleet_message *message, const json_t *list)
{
    if (!json_is_array(list) || json_array_size(list) > FLEET_ISOLATIONS)
        return false;
    message->isolation_count = 0;
    for (size_t i = 0; i < json_array_size(list); i++) {
        const char *name = json_string_value(json_array_get(list, i));
        if (!text_copy(message->isolations[i], LINK_NODE_BYTES, name))
            return false;
        message->isolation_count++;
    }
    return true;
}

static bool is_count(const json_t *value)
{
    return json_is_integer(value) && json_integer_value(value) >= 0 && json_integer_value(value) <= SLOTS_MAX;
}

bool fleet_check_heartbeat(struct fleet *fleet UNUSED, struct fleet_message *message, struct error *err)
{
    const json_t *json = message->json;
    const char *url = json_string_value(json_object_get(json, "url"));
    const json_t *slots = json_object_get(json, "slots"), *used = json_object_get(json, "used");
    if (!is_url(url) || !text_copy(message->url, sizeof message->url, url))
        return error_set(err, ERROR_INVALID, "the heartbeat's url is not one");
    size_t length = strlen(message->url);
    if (message->url[length - 1] == '/')
        message->url[length - 1] = '\0';
    if (!is_count(slots) || !is_count(used) || !read_isolations(message, json_object_get(json, "isolation")))
        return error_set(err, ERROR_INVALID, "the heartbeat's slots, used or isolation are not what they should be");
    if (!json_is_array(json_object_get(json, "sandboxes")) || !json_is_array(json_object_get(json, "ended")))
        return error_set(err, ERROR_INVALID, "the heartbeat's sandboxes or ended is not a list");
    if (!fleet_read_templates(&message->templates, json_object_get(json, "templates"), err))
        return false;
    message->slots = json_integer_value(slots);
    message->used = json_integer_value(used);
    return true;
}

bool fleet_seal_reply(struct fleet *fleet, const struct fleet_message *message, const json_t *reply, uint8_t **bytes,
                      size_t *size, struct error *err)
{
    AUTO_ADDRESS address = {0};
    if (!fleet_address(fleet, message->head.node, &address))
        return error_set(err, ERROR_INTERNAL, "node %s is not in the registry", message->head.node);
    address.head.incarnation = message->head.incarnation;
    address.head.in_reply_to = message->head.number;
    return link_seal(address.keys.to_node.bytes, &address.head, reply, bytes, size, err);
}
