/* egress_wish.c - `network` of a request: a mode, and the two lists. */
#include "shared/base/text.h"
#include "shared/node_protocol/egress_rule.h"

#include <string.h>

const char *egress_mode_name(enum egress_mode mode)
{
    static const char *const NAMES[] = {"none", "public", "allow"};
    return NAMES[mode];
}

static bool parse(const char *text, bool is_denied, struct egress_rule *rule, struct error *err)
{
    return is_denied ? egress_rule_parse_denied(text, rule, err) : egress_rule_parse(text, rule, err);
}

/* One of the two lists. */
struct list {
    const char *name;
    char *text; /* of the wish */
    bool is_denied, without_ports;
};

static bool is_listed(const char *text, const char *entry)
{
    size_t length = strlen(entry);
    for (const char *at = text; (at = strstr(at, entry)); at += length) {
        bool begins = at == text || at[-1] == ' ';
        if (begins && (at[length] == ' ' || at[length] == '\0'))
            return true;
    }
    return false;
}

static bool add_entry(const struct list *list, const json_t *entry, struct error *err)
{
    const char *text = json_string_value(entry);
    struct egress_rule rule;
    char printed[EGRESS_RULE_BYTES];
    if (!text || strlen(text) != json_string_length(entry))
        return error_set(err, ERROR_INVALID, "network.%s must be a list of texts", list->name);
    if (!parse(text, list->is_denied, &rule, err))
        return false;
    if (list->without_ports && rule.port != 0)
        return error_set(err, ERROR_INVALID,
                         "network.allow: \"%.80s\": with egress \"public\" it excepts from deny, and has no port",
                         text);
    egress_rule_print(&rule, printed);
    if (is_listed(list->text, printed))
        return true;
    size_t used = strlen(list->text);
    return text_format(list->text + used, EGRESS_RULES_BYTES - used, "%s%s", used > 0 ? " " : "", printed) ||
           error_set(err, ERROR_INVALID, "network.%s is longer than %d bytes in all", list->name,
                     EGRESS_RULES_BYTES - 1);
}

static bool read_list(const struct list *list, const json_t *value, struct error *err)
{
    size_t i;
    const json_t *each;
    if (!value || json_is_null(value))
        return true;
    size_t count = json_array_size(value), least = list->is_denied ? 1 : 0;
    if (!json_is_array(value) || count < least || count > EGRESS_RULES_MAX)
        return error_set(err, ERROR_INVALID, "network.%s must be a list of %zu to %d names and IPv4 networks",
                         list->name, least, EGRESS_RULES_MAX);
    json_array_foreach (value, i, each) {
        if (!add_entry(list, each, err))
            return false;
    }
    return true;
}

static bool read_lists(struct egress_wish *wish, const json_t *network, struct error *err)
{
    const json_t *given = json_object_get(network, "allow");
    const struct list deny = {.name = "deny", .text = wish->deny, .is_denied = true};
    const struct list allow = {.name = "allow", .text = wish->allow, .without_ports = wish->mode == EGRESS_PUBLIC};
    if (!read_list(&deny, json_object_get(network, "deny"), err))
        return false;
    bool denies = wish->deny[0] != '\0';
    if (denies && wish->mode == EGRESS_NONE)
        return error_set(err, ERROR_INVALID, "network.deny goes with egress \"public\" or \"allow\" only");
    if (given && !json_is_null(given) && wish->mode != EGRESS_ALLOW && !(denies && wish->mode == EGRESS_PUBLIC))
        return error_set(err, ERROR_INVALID,
                         "network.allow goes with egress \"allow\" only, or with \"public\" beside deny");
    if (!read_list(&allow, given, err))
        return false;
    return wish->mode != EGRESS_ALLOW || denies || wish->allow[0] != '\0' ||
           error_set(err, ERROR_INVALID, "network.allow must be a list of 1 to %d names and IPv4 networks",
                     EGRESS_RULES_MAX);
}

static bool read_mode(struct egress_wish *wish, const json_t *value, struct error *err)
{
    for (enum egress_mode mode = EGRESS_NONE; mode <= EGRESS_ALLOW; mode++) {
        if (text_equal(json_string_value(value), egress_mode_name(mode))) {
            wish->mode = mode;
            return true;
        }
    }
    return error_set(err, ERROR_INVALID, "network.egress must be \"none\", \"public\" or \"allow\"");
}

bool egress_wish_read(const json_t *network, struct egress_wish *wish, struct error *err)
{
    const char *name;
    json_t *value;
    *wish = (struct egress_wish){0};
    if (!json_is_object(network))
        return error_set(err, ERROR_INVALID,
                         "network must be {\"egress\": \"none\", \"public\" or \"allow\", \"allow\"?: [...], "
                         "\"deny\"?: [...]}");
    json_object_foreach ((json_t *)(uintptr_t)network, name, value) {
        if (strcmp(name, "egress") != 0 && strcmp(name, "allow") != 0 && strcmp(name, "deny") != 0)
            return error_set(err, ERROR_INVALID, "network: unknown field \"%.64s\"", name);
    }
    return read_mode(wish, json_object_get(network, "egress"), err) && read_lists(wish, network, err);
}

static json_t *list_json(const char *text)
{
    json_t *list = json_array();
    for (const char *at = text; *at;) {
        size_t length = strcspn(at, " ");
        json_array_append_new(list, json_stringn(at, length));
        at += length + (at[length] == ' ');
    }
    return list;
}

json_t *egress_wish_json(const struct egress_wish *wish)
{
    json_t *json = json_pack("{s:s}", "egress", egress_mode_name(wish->mode));
    if (wish->mode == EGRESS_ALLOW || wish->allow[0] != '\0')
        json_object_set_new(json, "allow", list_json(wish->allow));
    if (wish->deny[0] != '\0')
        json_object_set_new(json, "deny", list_json(wish->deny));
    return json;
}

static bool next(const char *text, bool is_denied, const char **at, struct egress_rule *rule)
{
    char entry[EGRESS_RULE_BYTES];
    const char *from = *at ? *at : text;
    while (*from) {
        size_t length = strcspn(from, " ");
        bool fits = length < sizeof entry;
        if (fits) {
            memcpy(entry, from, length);
            entry[length] = '\0';
        }
        from += length + (from[length] == ' ');
        *at = from;
        if (fits && parse(entry, is_denied, rule, NULL))
            return true;
    }
    return false;
}

bool egress_wish_next(const struct egress_wish *wish, const char **at, struct egress_rule *rule)
{
    return next(wish->allow, false, at, rule);
}

bool egress_wish_next_denied(const struct egress_wish *wish, const char **at, struct egress_rule *rule)
{
    return next(wish->deny, true, at, rule);
}
