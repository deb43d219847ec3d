#include "sandboxd/egress/policy.h"

#include "shared/base/memory.h"
#include "shared/node_protocol/egress_rule.h"

#include <netinet/in.h>
#include <string.h>

_Static_assert(POLICY_PORTS >= EGRESS_RULES_MAX + 1, "a rule opens one port or the two of the web");

enum { PORT_HTTP = 80, PORT_TLS = 443 };

struct rules {
    size_t count;
    struct egress_rule each[EGRESS_RULES_MAX];
};

struct policy {
    bool is_public, denies_names;
    struct rules allow, deny;
};

/* ---- reading ---- */

static bool add_rule(struct rules *rules, bool is_denied, const char *text, size_t length, struct error *err)
{
    char entry[EGRESS_RULE_BYTES];
    if (length >= sizeof entry || rules->count == EGRESS_RULES_MAX)
        return error_set(err, ERROR_INVALID, "egress: an entry of over %zu bytes, or over %d of them", sizeof entry - 1,
                         EGRESS_RULES_MAX);
    memcpy(entry, text, length);
    entry[length] = '\0';
    struct egress_rule *rule = &rules->each[rules->count];
    if (!(is_denied ? egress_rule_parse_denied(entry, rule, err) : egress_rule_parse(entry, rule, err)))
        return false;
    rules->count++;
    return true;
}

static bool read_rules(struct rules *rules, bool is_denied, const char *at, struct error *err)
{
    while (*at != '\0') {
        size_t length = strcspn(at, " ");
        if (length > 0 && !add_rule(rules, is_denied, at, length, err))
            return false;
        at += length + (at[length] == ' ');
    }
    return true;
}

struct policy *policy_new(const struct eg_sandbox *sandbox, struct error *err)
{
    AUTO(policy) *policy = memory_new(sizeof *policy);
    policy->is_public = sandbox->mode == EG_PUBLIC;
    if (!read_rules(&policy->allow, false, sandbox->allow, err) || !read_rules(&policy->deny, true, sandbox->deny, err))
        return NULL;
    for (size_t i = 0; i < policy->deny.count; i++)
        policy->denies_names |= policy->deny.each[i].is_name;
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

bool policy_denies_names(const struct policy *policy)
{
    return policy->denies_names;
}

bool policy_denies_alike(const struct policy *a, const struct policy *b)
{
    char one[EGRESS_RULE_BYTES], other[EGRESS_RULE_BYTES];
    for (size_t i = 0; i < a->deny.count && i < b->deny.count; i++) {
        egress_rule_print(&a->deny.each[i], one);
        egress_rule_print(&b->deny.each[i], other);
        if (strcmp(one, other) != 0)
            return false;
    }
    return a->deny.count == b->deny.count;
}

/* ---- judging ---- */

/* What is asked about: a name, or an address when that is NULL; TCP. Port 0: what goes for all ports. */
struct asked {
    const char *name;
    uint32_t address;
    uint16_t port;
};

static bool has(const struct egress_rule *rule, const struct asked *asked)
{
    const struct egress_rule address = {.address = asked->address, .prefix = 32};
    if (asked->name != NULL)
        return egress_rule_has_name(rule, asked->name);
    return egress_rule_holds(rule, &address) && rule->protocol != IPPROTO_UDP;
}

/* A name's entry without a port opens those of the web; one of a public policy excepts all. */
static bool opens(const struct policy *policy, const struct egress_rule *rule, uint16_t port)
{
    if (rule->port != 0)
        return rule->port == port;
    return !rule->is_name || policy->is_public || port == PORT_HTTP || port == PORT_TLS;
}

static bool closes(const struct egress_rule *rule, uint16_t port)
{
    return rule->port == 0 || rule->port == port;
}

static const struct egress_rule *better(const struct egress_rule *best, const struct egress_rule *rule)
{
    return best == NULL || egress_rule_compare(rule, best) < 0 ? rule : best;
}

enum judgement { UNSAID, ALLOWED, DENIED };

/* The most specific entry decides; of two alike the one that denies. */
static enum judgement judge(const struct policy *policy, const struct asked *asked)
{
    const struct egress_rule *allow = NULL, *deny = NULL;
    for (size_t i = 0; i < policy->allow.count; i++) {
        const struct egress_rule *rule = &policy->allow.each[i];
        if (has(rule, asked) && (opens(policy, rule, asked->port) || asked->port == 0))
            allow = better(allow, rule);
    }
    for (size_t i = 0; i < policy->deny.count; i++) {
        const struct egress_rule *rule = &policy->deny.each[i];
        if (has(rule, asked) && closes(rule, asked->port))
            deny = better(deny, rule);
    }
    if (deny != NULL && (allow == NULL || egress_rule_compare(deny, allow) <= 0))
        return DENIED;
    return allow != NULL ? ALLOWED : UNSAID;
}

bool policy_allows(const struct policy *policy, const char *name, uint16_t port)
{
    enum judgement judgement = judge(policy, &(struct asked){.name = name, .port = port});
    return judgement == ALLOWED || (judgement == UNSAID && policy->is_public);
}

static void add_port(const struct policy *policy, const char *name, uint16_t port, uint16_t ports[static POLICY_PORTS],
                     size_t *count)
{
    for (size_t i = 0; i < *count; i++) {
        if (ports[i] == port)
            return;
    }
    if (*count < POLICY_PORTS && policy_allows(policy, name, port))
        ports[(*count)++] = port;
}

size_t policy_ports(const struct policy *policy, const char *name, uint16_t ports[static POLICY_PORTS])
{
    size_t count = 0;
    for (size_t i = 0; !policy->is_public && i < policy->allow.count; i++) {
        const struct egress_rule *rule = &policy->allow.each[i];
        if (!egress_rule_has_name(rule, name))
            continue;
        add_port(policy, name, rule->port != 0 ? rule->port : PORT_HTTP, ports, &count);
        if (rule->port == 0)
            add_port(policy, name, PORT_TLS, ports, &count);
    }
    return count;
}

bool policy_has_name(const struct policy *policy, const char *name)
{
    uint16_t ports[POLICY_PORTS];
    return policy->is_public ? !policy_denies_name(policy, name) : policy_ports(policy, name, ports) > 0;
}

bool policy_denies_name(const struct policy *policy, const char *name)
{
    return judge(policy, &(struct asked){.name = name}) == DENIED;
}

bool policy_denies_address(const struct policy *policy, uint32_t address, uint16_t port)
{
    return judge(policy, &(struct asked){.address = address, .port = port}) == DENIED;
}
