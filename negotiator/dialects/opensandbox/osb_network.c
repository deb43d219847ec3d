#include "negotiator/dialects/opensandbox/osb_network.h"

#include "shared/base/text.h"
#include "shared/node_protocol/egress_rule.h"

#include <string.h>

enum { LISTED_MAX = 4 * EGRESS_RULES_MAX }; /* a list that is asked, and all that may be there */

struct listed {
    bool is_denied;
    struct egress_rule rule;
};

struct list {
    bool is_open; /* the default: allow */
    size_t count;
    struct listed each[LISTED_MAX];
};

/* --- a list --- */

static bool is_same(const struct egress_rule *a, const struct egress_rule *b)
{
    return a->is_name == b->is_name && strcmp(a->name, b->name) == 0 && a->is_wildcard == b->is_wildcard &&
           a->address == b->address && a->prefix == b->prefix && a->protocol == b->protocol && a->port == b->port;
}

static bool has(const struct list *list, const struct egress_rule *rule)
{
    for (size_t i = 0; i < list->count; i++) {
        if (is_same(&list->each[i].rule, rule))
            return true;
    }
    return false;
}

/* Whether the earlier one leaves the later one nothing. What has no port is all of its ports here, or the web's. */
static bool hides(const struct listed *earlier, const struct listed *later)
{
    const struct egress_rule *a = &earlier->rule, *b = &later->rule;
    return egress_rule_holds(a, b) && (a->port == 0 || a->port == b->port) &&
           (a->is_name || a->protocol == 0 || a->protocol == b->protocol);
}

static bool is_hidden(const struct list *list, const struct listed *later)
{
    for (size_t i = 0; i < list->count; i++) {
        if (hides(&list->each[i], later))
            return true;
    }
    return false;
}

static bool add(struct list *list, const struct listed *listed, struct error *err)
{
    if (is_hidden(list, listed))
        return true;
    if (list->count == LISTED_MAX)
        return error_set(err, ERROR_INVALID, "a policy has at most %d rules that allow and %d that deny",
                         EGRESS_RULES_MAX, EGRESS_RULES_MAX);
    list->each[list->count++] = *listed;
    return true;
}

static bool read_target(struct listed *listed, const json_t *target, struct error *err)
{
    const char *text = json_string_value(target);
    if (!text || strlen(text) != json_string_length(target))
        return error_set(err, ERROR_INVALID, "a target must be a text: a name, *.name, or IPv4 addresses");
    return listed->is_denied ? egress_rule_parse_denied(text, &listed->rule, err)
                             : egress_rule_parse(text, &listed->rule, err);
}

static bool read_action(bool *is_denied, const json_t *value, const char *what, struct error *err)
{
    const char *text = json_string_value(value);
    *is_denied = text_equal(text, "deny");
    return *is_denied || text_equal(text, "allow") ||
           error_set(err, ERROR_INVALID, "%s must be \"allow\" or \"deny\"", what);
}

static bool read_rule(struct listed *listed, const json_t *rule, struct error *err)
{
    *listed = (struct listed){0};
    if (!json_is_object(rule) || json_object_size(rule) != 2 || !json_object_get(rule, "action") ||
        !json_object_get(rule, "target"))
        return error_set(err, ERROR_INVALID, "a rule must be {\"action\": \"allow\" or \"deny\", \"target\": ...}");
    return read_action(&listed->is_denied, json_object_get(rule, "action"), "action", err) &&
           read_target(listed, json_object_get(rule, "target"), err);
}

static bool read_rules(struct list *list, const json_t *rules, struct error *err)
{
    size_t i;
    const json_t *each;
    struct listed listed;
    json_array_foreach (rules, i, each) {
        if (!read_rule(&listed, each, err) || !add(list, &listed, err))
            return false;
    }
    return true;
}

/* --- of `network` --- */

/* Stable: what is alike stays in its order. */
static void insert(struct list *list, const struct listed *listed)
{
    size_t at = list->count++;
    while (at > 0 && list->each[at - 1].rule.is_name == listed->rule.is_name &&
           egress_rule_compare(&listed->rule, &list->each[at - 1].rule) < 0) {
        list->each[at] = list->each[at - 1];
        at--;
    }
    list->each[at] = *listed;
}

/* Names, then addresses; what denies before what allows alike, as it decides there. */
static void take_entries(struct list *list, const struct egress_wish *wish, bool are_names, bool is_denied)
{
    struct listed listed = {.is_denied = is_denied};
    const char *at = NULL;
    while (is_denied ? egress_wish_next_denied(wish, &at, &listed.rule) : egress_wish_next(wish, &at, &listed.rule)) {
        if (listed.rule.is_name == are_names && !has(list, &listed.rule) && list->count < LISTED_MAX)
            insert(list, &listed);
    }
}

static void take_network(struct list *list, const json_t *network)
{
    struct egress_wish wish;
    *list = (struct list){0};
    if (!network || !egress_wish_read(network, &wish, NULL))
        return;
    list->is_open = wish.mode == EGRESS_PUBLIC;
    for (int are_names = 1; are_names >= 0; are_names--) {
        take_entries(list, &wish, are_names, true);
        take_entries(list, &wish, are_names, false);
    }
}

static json_t *target_json(const struct listed *listed)
{
    char target[EGRESS_RULE_BYTES];
    egress_rule_print(&listed->rule, target);
    return json_string(target);
}

static json_t *network_of(const struct list *list, struct error *err)
{
    json_t *allow = json_array(), *deny = json_array();
    for (size_t i = 0; i < list->count; i++)
        json_array_append_new(list->each[i].is_denied ? deny : allow, target_json(&list->each[i]));
    bool is_plain = list->is_open && json_array_size(deny) == 0; /* nothing to except from */
    const char *mode = egress_mode_name(list->is_open ? EGRESS_PUBLIC : list->count > 0 ? EGRESS_ALLOW : EGRESS_NONE);
    json_t *network = json_pack("{s:s}", "egress", mode);
    if (list->count > 0 && !is_plain)
        json_object_set(network, "allow", allow);
    if (json_array_size(deny) > 0)
        json_object_set(network, "deny", deny);
    json_decref(allow);
    json_decref(deny);
    struct egress_wish wish;
    bool is_good = egress_wish_read(network, &wish, err);
    json_decref(network);
    return is_good ? egress_wish_json(&wish) : NULL;
}

/* --- the face --- */

json_t *osb_network_read(const json_t *policy, struct error *err)
{
    struct list list = {0};
    const char *name;
    json_t *value;
    bool is_denied = true;
    if (policy && !json_is_null(policy) && !json_is_object(policy)) {
        (void)error_set(err, ERROR_INVALID, "a policy must be {\"defaultAction\", \"egress\": [...]}");
        return NULL;
    }
    json_object_foreach ((json_t *)(uintptr_t)policy, name, value) {
        bool is_default = strcmp(name, "defaultAction") == 0;
        bool is_good = json_is_null(value);
        if (!is_default && strcmp(name, "egress") != 0)
            (void)error_set(err, ERROR_INVALID, "a policy has no field \"%.64s\"", name);
        else if (!is_good && is_default)
            is_good = read_action(&is_denied, value, "defaultAction", err);
        else if (!is_good)
            is_good = json_is_array(value) ? read_rules(&list, value, err)
                                           : error_set(err, ERROR_INVALID, "egress must be a list of rules");
        if (!is_good)
            return NULL;
    }
    list.is_open = !is_denied;
    return network_of(&list, err);
}

json_t *osb_network_shown(const json_t *network)
{
    struct list list;
    take_network(&list, network);
    json_t *rules = json_array();
    for (size_t i = 0; i < list.count; i++)
        json_array_append_new(rules, json_pack("{s:s, s:o}", "action", list.each[i].is_denied ? "deny" : "allow",
                                               "target", target_json(&list.each[i])));
    return json_pack("{s:s, s:o}", "defaultAction", list.is_open ? "allow" : "deny", "egress", rules);
}

const char *osb_network_mode(const json_t *network)
{
    struct list list;
    take_network(&list, network);
    return list.count > 0 ? "enforcing" : list.is_open ? "allow_all" : "deny_all";
}

json_t *osb_network_merge(const json_t *network, const json_t *rules, struct error *err)
{
    struct list before, list = {0};
    take_network(&before, network);
    list.is_open = before.is_open;
    if (json_array_size(rules) == 0) {
        (void)error_set(err, ERROR_INVALID, "the body must be a list of rules, of one at least");
        return NULL;
    }
    if (!read_rules(&list, rules, err))
        return NULL;
    for (size_t i = 0; i < before.count; i++) {
        if (!add(&list, &before.each[i], err))
            return NULL;
    }
    return network_of(&list, err);
}

json_t *osb_network_remove(const json_t *network, const json_t *targets, struct error *err)
{
    struct list list;
    size_t i, kept = 0;
    const json_t *each;
    if (json_array_size(targets) == 0) {
        (void)error_set(err, ERROR_INVALID, "the body must be a list of targets, of one at least");
        return NULL;
    }
    take_network(&list, network);
    json_array_foreach (targets, i, each) {
        struct listed listed = {.is_denied = true}; /* what may be denied may be named */
        if (!read_target(&listed, each, err))
            return NULL;
        kept = 0;
        for (size_t j = 0; j < list.count; j++) {
            if (!is_same(&list.each[j].rule, &listed.rule))
                list.each[kept++] = list.each[j];
        }
        list.count = kept;
    }
    return network_of(&list, err);
}
