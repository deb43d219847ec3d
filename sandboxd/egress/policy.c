#include "sandboxd/egress/policy.h"

#include "shared/base/memory.h"
#include "shared/node_protocol/egress_rule.h"

#include <string.h>

_Static_assert(POLICY_PORTS >= EGRESS_RULES_MAX + 1, "a rule opens one port or the two of the web");

struct policy {
    bool is_public;
    size_t count;
    struct egress_rule rules[EGRESS_RULES_MAX];
};

static bool add_rule(struct policy *policy, const char *text, size_t length, struct error *err)
{
    char entry[EGRESS_RULE_BYTES];
    if (length >= sizeof entry || policy->count == EGRESS_RULES_MAX)
        return error_set(err, ERROR_INVALID, "egress: an entry of over %zu bytes, or over %d of them", sizeof entry - 1,
                         EGRESS_RULES_MAX);
    memcpy(entry, text, length);
    entry[length] = '\0';
    struct egress_rule *rule = &policy->rules[policy->count];
    if (!egress_rule_parse(entry, rule, err))
        return false;
    if (!rule->is_name)
        return error_set(err, ERROR_INVALID, "egress: %.100s is no rule of a name", entry);
    policy->count++;
    return true;
}

struct policy *policy_new(const struct eg_sandbox *sandbox, struct error *err)
{
    AUTO(policy) *policy = memory_new(sizeof *policy);
    policy->is_public = sandbox->mode == EG_PUBLIC;
    for (const char *at = sandbox->names; *at != '\0';) {
        size_t length = strcspn(at, " ");
        if (length > 0 && !add_rule(policy, at, length, err))
            return NULL;
        at += length + (at[length] == ' ');
    }
    return TAKE(policy);
}

void policy_free(struct policy *policy)
{
    free(policy);
}

bool policy_is_public(const struct policy *policy)
{
    return policy->is_public;
}

static void add_port(uint16_t port, uint16_t ports[static POLICY_PORTS], size_t *count)
{
    for (size_t i = 0; i < *count; i++) {
        if (ports[i] == port)
            return;
    }
    if (*count < POLICY_PORTS)
        ports[(*count)++] = port;
}

size_t policy_ports(const struct policy *policy, const char *name, uint16_t ports[static POLICY_PORTS])
{
    size_t count = 0;
    for (size_t i = 0; i < policy->count; i++) {
        const struct egress_rule *rule = &policy->rules[i];
        if (!egress_rule_has_name(rule, name))
            continue;
        add_port(rule->port != 0 ? rule->port : 80, ports, &count);
        if (rule->port == 0)
            add_port(443, ports, &count);
    }
    return count;
}

bool policy_allows(const struct policy *policy, const char *name, uint16_t port)
{
    uint16_t ports[POLICY_PORTS];
    size_t count = policy_ports(policy, name, ports);
    for (size_t i = 0; i < count; i++) {
        if (ports[i] == port)
            return true;
    }
    return false;
}
