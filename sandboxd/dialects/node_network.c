/* node_network.c - where a sandbox may go: from the negotiator's words to what the launcher takes. */
#include "sandboxd/dialects/node_calls.h"

#include "sandboxd/dialects/plane.h"
#include "shared/base/log.h"
#include "shared/base/memory.h"
#include "shared/base/text.h"
#include "shared/node_protocol/egress_rule.h"

#include <string.h>

_Static_assert(FRONT_LAUNCHER_NETS >= EGRESS_RULES_MAX && FRONT_LAUNCHER_NAMES_BYTES >= EGRESS_RULES_BYTES,
               "all that may be asked for fits");

static struct fl_net net_of(const struct egress_rule *rule)
{
    return (struct fl_net){.address = rule->address,
                           .prefix = rule->prefix,
                           .protocol = rule->protocol,
                           .port_from = rule->port,
                           .port_to = rule->port};
}

static bool add_name(char names[static FRONT_LAUNCHER_NAMES_BYTES], const struct egress_rule *rule)
{
    char entry[EGRESS_RULE_BYTES];
    size_t used = strlen(names);
    egress_rule_print(rule, entry);
    return text_format(names + used, FRONT_LAUNCHER_NAMES_BYTES - used, "%s%s", used ? " " : "", entry);
}

static uint32_t mode_of(enum egress_mode mode)
{
    return mode == EGRESS_PUBLIC ? FL_NETWORK_PUBLIC : mode == EGRESS_ALLOW ? FL_NETWORK_ALLOW : FL_NETWORK_NONE;
}

bool node_network_read(const json_t *given, struct fl_network *network, struct error *err)
{
    struct egress_wish wish;
    struct egress_rule rule;
    *network = (struct fl_network){.mode = FL_NETWORK_NONE};
    if (!given || json_is_null(given))
        return true;
    if (!egress_wish_read(given, &wish, err))
        return false;
    network->mode = mode_of(wish.mode);
    for (const char *at = NULL; egress_wish_next(&wish, &at, &rule);) {
        if (!rule.is_name)
            network->nets[network->net_count++] = net_of(&rule);
        else if (!add_name(network->names, &rule))
            return error_set(err, ERROR_INVALID, "network.allow is too long");
    }
    for (const char *at = NULL; egress_wish_next_denied(&wish, &at, &rule);) {
        if (!rule.is_name)
            network->denied[network->denied_count++] = net_of(&rule);
        else if (!add_name(network->denied_names, &rule))
            return error_set(err, ERROR_INVALID, "network.deny is too long");
    }
    return true;
}

static void changed(void *cookie, const struct verb_answer *answer)
{
    AUTO_REGISTRY_VIEW view = {0};
    struct http_request *request = node_find_sandbox(cookie, answer, &view);
    if (!request)
        return;
    const struct node_waiting *waiting = http_request_identity(request);
    log_info("node", "network changed sandbox=%s", view.id);
    node_reply(request, waiting->number, json_pack("{s:b}", "ok", 1));
}

bool node_network(struct http_request *request, const json_t *message, uint64_t number, struct error *err)
{
    struct fl_network network;
    const json_t *given = json_object_get(message, "network");
    const char *id = node_text(message, "id", err);
    if (!id || !node_network_read(given, &network, err))
        return false;
    AUTO_FREE char *json = json_dumps(given ? given : json_null(), JSON_COMPACT | JSON_ENCODE_ANY);
    AUTO_FREE char *detail = memory_printf("network=%s", json);
    sandboxes_set_network(plane_of(request)->sandboxes, id, &network, detail, changed, node_wait(request, number, id));
    return true;
}
