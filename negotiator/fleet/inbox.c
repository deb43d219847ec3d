#include "negotiator/fleet/fleet_internal.h"
#include "shared/base/text.h"

#include <inttypes.h>
#include <string.h>

static const int64_t SLOTS_MAX = 65536;

void fleet_message_done(struct fleet_message *message)
{
    json_decref(message->json);
    *message = (struct fleet_message){0};
}

static bool refuse(struct error *err)
{
    return error_set(err, ERROR_UNAUTHENTICATED, "the node message does not open, or came before");
}

/* The key of a name, whether or not such a node ever spoke: only a node that enrolled has it. */
static void key_from(const struct fleet *fleet, const char *node, struct key *from_node)
{
    AUTO_KEY key;
    key_node(&key, &fleet->master, node, FLEET_EPOCH);
    key_link(from_node, &key, "sandboxd");
}

static bool accept(struct fleet *fleet, const struct link_head *head, struct error *err)
{
    struct error why = {0};
    pthread_mutex_lock(&fleet->registry_lock);
    struct fleet_node *node = fleet_node_of(fleet, head->node, true);
    bool accepted = node && link_window_accept(&node->window, head, &why);
    pthread_mutex_unlock(&fleet->registry_lock);
    if (node == NULL)
        return error_set(err, ERROR_NO_CAPACITY, "more than %d nodes", FLEET_NODES_MAX);
    return accepted || error_set(err, ERROR_UNAUTHENTICATED, "%s", why.message);
}

bool fleet_open(struct fleet *fleet, const void *bytes, size_t size, struct fleet_message *message, struct error *err)
{
    struct link_head head;
    AUTO_KEY key;
    if (!link_peek(bytes, size, &head, NULL) || head.in_reply_to != 0)
        return refuse(err);
    key_from(fleet, head.node, &key);
    json_t *json = link_open(key.bytes, bytes, size, &head, NULL);
    if (json == NULL)
        return refuse(err);
    if (!accept(fleet, &head, err)) {
        json_decref(json);
        return false;
    }
    *message = (struct fleet_message){.head = head, .json = json};
    const json_t *time = json_object_get(json, "time");
    int64_t off = json_integer_value(time) - fleet->options.wall_ms();
    /* A start forgets which numbers came; a message that is older than it may be a second time. Later its age tells. */
    bool is_new = fleet->options.boot_ns() - fleet->start_ns < FLEET_SKEW_MS * UINT64_C(1000000);
    if (is_new && json_is_integer(time) && json_integer_value(time) < fleet->start_ms)
        return error_set(err, ERROR_INVALID, "the message is older than this start of the negotiator");
    if (!json_is_integer(time) || off > FLEET_SKEW_MS || off < -FLEET_SKEW_MS)
        return error_set(err, ERROR_INVALID, "the node's clock is %" PRId64 " ms off; at most %d are allowed", off,
                         FLEET_SKEW_MS);
    return true;
}

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
    return link_seal(address.to_node.bytes, &address.head, reply, bytes, size, err);
}
