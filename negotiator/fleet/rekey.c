/* rekey.c - tells a node its next key: boxed to its launcher, in a message under the key that is in force. */
#include "negotiator/fleet/fleet_internal.h"

#include <string.h>

static const uint64_t AGAIN_NS = 10000000000; /* what a node was told and has not done is said again */

/* What is said. */
struct rekey {
    const char *node;
    uint32_t epoch, next_epoch;
    uint8_t public_key[32];
};

static bool is_due(struct fleet *fleet, struct rekey *rekey, bool now)
{
    uint64_t now_ns = fleet->options.boot_ns();
    pthread_mutex_lock(&fleet->registry_lock);
    struct fleet_node *node = fleet_node_of(fleet, rekey->node, false);
    bool due = node && node->next_epoch > 0 && node->has_public_key &&
               (now || node->rekey_sent_ns == 0 || now_ns - node->rekey_sent_ns >= AGAIN_NS);
    if (due) {
        node->rekey_sent_ns = now_ns;
        rekey->epoch = node->epoch;
        rekey->next_epoch = node->next_epoch;
        memcpy(rekey->public_key, node->public_key, sizeof rekey->public_key);
    }
    pthread_mutex_unlock(&fleet->registry_lock);
    return due;
}

void fleet_send_rekey(struct fleet *fleet, const char *name, bool now)
{
    struct rekey rekey = {.node = name};
    if (!is_due(fleet, &rekey, now))
        return;
    struct enrol_pair pair;
    AUTO_ENROL_GRANT grant = {.epoch = rekey.next_epoch};
    uint8_t bound[ENROL_HASH_BYTES];
    memcpy(grant.node, name, strnlen(name, sizeof grant.node - 1));
    memcpy(grant.deployment, fleet->deployment, sizeof grant.deployment);
    key_node(&grant.node_key, &fleet->master, name, rekey.next_epoch);
    enrol_rekey_bound(bound, name, rekey.epoch, rekey.next_epoch);
    enrol_negotiator_pair(&pair, &fleet->master);
    json_t *message = enrol_seal(&pair, rekey.public_key, bound, &grant, NULL);
    key_done(&pair.secret_key);
    if (message == NULL)
        return; /* it was sealed to that key when the node enrolled: not so */
    json_object_set_new(message, "call", json_string("rekey"));
    json_object_set_new(message, "epoch", json_integer(rekey.next_epoch));
    fleet_call(fleet, name, message, NULL, NULL);
}
