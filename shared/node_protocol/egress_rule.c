#include "shared/node_protocol/egress_rule.h"

#include "shared/base/text.h"

#include <ctype.h>
#include <netinet/in.h>
#include <string.h>
#include <strings.h>

enum { LABEL_MAX = 63, NAME_MAX_BYTES = 253, PORT_MAX = 65535 };

/* One table for the check, for what the firewall is given and for what the specification says. */
static const struct blocked {
    uint32_t address;
    uint8_t prefix;
} BLOCKED[] = {
    {0x00000000, 8},  /* "this host", RFC 1122, 3.2.1.3 */
    {0x0A000000, 8},  /* RFC 1918 */
    {0x64400000, 10}, /* carriers' NAT, RFC 6598; sandboxes are there themselves */
    {0x7F000000, 8},  /* loopback */
    {0xA9FE0000, 16}, /* link-local, RFC 3927: clouds tell secrets there */
    {0xAC100000, 12}, /* RFC 1918 */
    {0xC0A80000, 16}, /* RFC 1918 */
    {0xE0000000, 4},  /* multicast */
    {0xF0000000, 4},  /* reserved, and broadcast */
};
enum { BLOCKED_COUNT = sizeof BLOCKED / sizeof BLOCKED[0] };

static uint32_t mask_of(uint8_t prefix)
{
    return prefix == 0 ? 0 : UINT32_MAX << (32 - prefix);
}

bool egress_meets_blocked(uint32_t address, uint8_t prefix)
{
    for (size_t i = 0; i < BLOCKED_COUNT; i++) {
        uint32_t wider = mask_of(prefix < BLOCKED[i].prefix ? prefix : BLOCKED[i].prefix);
        if ((address & wider) == (BLOCKED[i].address & wider))
            return true;
    }
    return false;
}

bool egress_is_blocked(uint32_t address)
{
    return egress_meets_blocked(address, 32);
}

const char *egress_blocked_elements(void)
{
    return "0.0.0.0/8, 10.0.0.0/8, 100.64.0.0/10, 127.0.0.0/8, 169.254.0.0/16, 172.16.0.0/12, 192.168.0.0/16, "
           "224.0.0.0/4, 240.0.0.0/4";
}

const char *egress_mode_name(enum egress_mode mode)
{
    static const char *const NAMES[] = {"none", "public", "allow"};
    return NAMES[mode];
}

/* ---- one entry ---- */

static bool refuse(const char *text, const char *why, struct error *err)
{
    return error_set(err, ERROR_INVALID, "network.allow: \"%.80s\": %s", text, why);
}

/* Cuts "/tcp" or "/udp" off, of an entry with a port; what is not one of these stays. */
static bool cut_protocol(char *text, struct egress_rule *rule)
{
    char *slash = strrchr(text, '/');
    rule->protocol = 0;
    if (!slash || !strchr(text, ':'))
        return true;
    if (strcmp(slash, "/tcp") == 0)
        rule->protocol = IPPROTO_TCP;
    else if (strcmp(slash, "/udp") == 0)
        rule->protocol = IPPROTO_UDP;
    else
        return strchr(slash, ':') != NULL; /* a prefix, and the port behind it */
    *slash = '\0';
    return true;
}

static bool cut_port(char *text, struct egress_rule *rule)
{
    char *colon = strchr(text, ':');
    uint64_t port = 0;
    if (!colon)
        return true;
    if (!text_parse_u64(colon + 1, strlen(colon + 1), PORT_MAX, &port) || port == 0)
        return false;
    rule->port = (uint16_t)port;
    *colon = '\0';
    return true;
}

/* "203.0.113.7", four numbers without leading zeros: inet_aton(3) would take "0xCB.7" too. */
static bool parse_address(const char *text, size_t length, uint32_t *address)
{
    const char *end = text + length;
    *address = 0;
    for (int i = 0; i < 4; i++) {
        const char *stop = i < 3 ? memchr(text, '.', (size_t)(end - text)) : end;
        uint64_t part;
        if (!stop || !text_parse_u64(text, (size_t)(stop - text), UINT8_MAX, &part))
            return false;
        *address = *address << 8 | (uint32_t)part;
        text = stop + 1;
    }
    return true;
}

static bool parse_network(const char *text, struct egress_rule *rule)
{
    const char *slash = strchr(text, '/');
    uint64_t prefix = 32;
    if (slash && !text_parse_u64(slash + 1, strlen(slash + 1), 32, &prefix))
        return false;
    rule->prefix = (uint8_t)prefix;
    if (!parse_address(text, slash ? (size_t)(slash - text) : strlen(text), &rule->address))
        return false;
    rule->address &= mask_of(rule->prefix);
    return true;
}

/* RFC 1123, 2.1, and the underscore that some names have; the last label is no number, so that no form of an address
 * is a name. */
static bool is_name(const char *name)
{
    size_t length = strlen(name);
    if (length == 0 || length > NAME_MAX_BYTES)
        return false;
    const char *last = name;
    for (const char *label = name;; label = strchr(label, '.') + 1) {
        size_t size = strcspn(label, ".");
        last = label;
        if (size == 0 || size > LABEL_MAX || label[0] == '-' || label[size - 1] == '-')
            return false;
        for (size_t i = 0; i < size; i++) {
            if (!isalnum((unsigned char)label[i]) && label[i] != '-' && label[i] != '_')
                return false;
        }
        if (label[size] == '\0')
            break;
    }
    return isalpha((unsigned char)last[0]);
}

static bool take_name(const char *text, struct egress_rule *rule)
{
    rule->is_wildcard = text_starts_with(text, "*.");
    if (rule->is_wildcard)
        text += 2;
    size_t length = strlen(text);
    if (length > 0 && text[length - 1] == '.')
        length--;
    if (length == 0 || length > NAME_MAX_BYTES)
        return false;
    for (size_t i = 0; i < length; i++)
        rule->name[i] = (char)tolower((unsigned char)text[i]);
    rule->name[length] = '\0';
    return is_name(rule->name);
}

/* Hexadecimal digits and two colons at least. */
static bool looks_like_ipv6(const char *text)
{
    size_t length = strspn(text, "0123456789abcdefABCDEF:.");
    const char *colon = memchr(text, ':', length);
    bool is_whole = text[length] == '\0' || text[length] == '/';
    return is_whole && colon && memchr(colon + 1, ':', (size_t)(text + length - colon - 1));
}

bool egress_rule_parse(const char *text, struct egress_rule *rule, struct error *err)
{
    char rest[EGRESS_RULE_BYTES];
    *rule = (struct egress_rule){0};
    if (!text_copy(rest, sizeof rest, text))
        return refuse(text, "it is too long", err);
    if (strstr(rest, "://"))
        return refuse(text, "a name or addresses alone, without a scheme or a path", err);
    if (rest[0] == '[' || looks_like_ipv6(rest))
        return refuse(text, "IPv6 does not go out, only IPv4 does", err);
    if (!cut_protocol(rest, rule))
        return refuse(text, "what follows the port may be /tcp or /udp", err);
    if (!cut_port(rest, rule))
        return refuse(text, "a port is a number from 1 to 65535", err);
    if (parse_network(rest, rule)) {
        if (egress_meets_blocked(rule->address, rule->prefix))
            return refuse(text, "private, local and reserved addresses are never reached", err);
        return true;
    }
    rule->is_name = true;
    if (rule->protocol == IPPROTO_UDP)
        return refuse(text, "a name is reached by TCP; for UDP give its addresses", err);
    rule->protocol = IPPROTO_TCP;
    return take_name(rest, rule) ||
           refuse(text,
                  "neither a name (pypi.org, *.pythonhosted.org, github.com:22) nor IPv4 addresses (203.0.113.0/24, "
                  "203.0.113.7:5432, 198.51.100.0/24:53/udp)",
                  err);
}

void egress_rule_print(const struct egress_rule *rule, char to[static EGRESS_RULE_BYTES])
{
    char port[16] = "";
    const char *protocol = rule->is_name || rule->protocol == 0 ? "" : rule->protocol == IPPROTO_UDP ? "/udp" : "/tcp";
    bool fits = rule->port == 0 || text_format(port, sizeof port, ":%u%s", rule->port, protocol);
    if (rule->is_name)
        fits = fits && text_format(to, EGRESS_RULE_BYTES, "%s%s%s", rule->is_wildcard ? "*." : "", rule->name, port);
    else if (rule->prefix == 32)
        fits = fits && text_format(to, EGRESS_RULE_BYTES, "%u.%u.%u.%u%s", rule->address >> 24,
                                   rule->address >> 16 & 255, rule->address >> 8 & 255, rule->address & 255, port);
    else
        fits = fits &&
               text_format(to, EGRESS_RULE_BYTES, "%u.%u.%u.%u/%u%s", rule->address >> 24, rule->address >> 16 & 255,
                           rule->address >> 8 & 255, rule->address & 255, rule->prefix, port);
    if (!fits)
        to[0] = '\0';
}

bool egress_rule_has_name(const struct egress_rule *rule, const char *name)
{
    size_t length = strlen(name), own = strlen(rule->name);
    if (length > 0 && name[length - 1] == '.')
        length--;
    if (!rule->is_name || length < own || strncasecmp(name + length - own, rule->name, own) != 0)
        return false;
    if (!rule->is_wildcard)
        return length == own;
    return length > own + 1 && name[length - own - 1] == '.' && name[0] != '.';
}

/* A name without a port is 80 and 443. */
static bool covers_name(const struct egress_rule *outer, const struct egress_rule *inner)
{
    bool is_web = inner->port == 0 || inner->port == 80 || inner->port == 443;
    if (outer->port == 0 ? !is_web : outer->port != inner->port)
        return false;
    if (strcasecmp(outer->name, inner->name) == 0)
        return outer->is_wildcard == inner->is_wildcard;
    return outer->is_wildcard && egress_rule_has_name(outer, inner->name);
}

bool egress_rule_covers(const struct egress_rule *outer, const struct egress_rule *inner)
{
    if (outer->is_name != inner->is_name)
        return false;
    if (outer->is_name)
        return covers_name(outer, inner);
    return outer->prefix <= inner->prefix && (inner->address & mask_of(outer->prefix)) == outer->address &&
           (outer->port == 0 || outer->port == inner->port) &&
           (outer->protocol == 0 || outer->protocol == inner->protocol);
}

/* ---- network of a request ---- */

static bool is_listed(const struct egress_wish *wish, const char *entry)
{
    size_t length = strlen(entry);
    for (const char *at = wish->allow; (at = strstr(at, entry)); at += length) {
        bool begins = at == wish->allow || at[-1] == ' ';
        if (begins && (at[length] == ' ' || at[length] == '\0'))
            return true;
    }
    return false;
}

static bool add_entry(struct egress_wish *wish, const json_t *entry, struct error *err)
{
    const char *text = json_string_value(entry);
    struct egress_rule rule;
    char printed[EGRESS_RULE_BYTES];
    if (!text || strlen(text) != json_string_length(entry))
        return error_set(err, ERROR_INVALID, "network.allow must be a list of texts");
    if (!egress_rule_parse(text, &rule, err))
        return false;
    egress_rule_print(&rule, printed);
    if (is_listed(wish, printed))
        return true;
    size_t used = strlen(wish->allow);
    return text_format(wish->allow + used, sizeof wish->allow - used, "%s%s", used > 0 ? " " : "", printed) ||
           error_set(err, ERROR_INVALID, "network.allow is longer than %d bytes in all", EGRESS_RULES_BYTES - 1);
}

static bool read_allow(struct egress_wish *wish, const json_t *list, struct error *err)
{
    size_t count = json_array_size(list), i;
    const json_t *each;
    if (wish->mode != EGRESS_ALLOW)
        return !list || json_is_null(list) ||
               error_set(err, ERROR_INVALID, "network.allow goes with egress \"allow\" only");
    if (count == 0 || count > EGRESS_RULES_MAX)
        return error_set(err, ERROR_INVALID, "network.allow must be a list of 1 to %d names and IPv4 networks",
                         EGRESS_RULES_MAX);
    json_array_foreach (list, i, each) {
        if (!add_entry(wish, each, err))
            return false;
    }
    return true;
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
                         "network must be {\"egress\": \"none\", \"public\" or \"allow\", \"allow\"?: [...]}");
    json_object_foreach ((json_t *)(uintptr_t)network, name, value) {
        if (strcmp(name, "egress") != 0 && strcmp(name, "allow") != 0)
            return error_set(err, ERROR_INVALID, "network: unknown field \"%.64s\"", name);
    }
    return read_mode(wish, json_object_get(network, "egress"), err) &&
           read_allow(wish, json_object_get(network, "allow"), err);
}

json_t *egress_wish_json(const struct egress_wish *wish)
{
    json_t *json = json_pack("{s:s}", "egress", egress_mode_name(wish->mode));
    if (wish->mode != EGRESS_ALLOW)
        return json;
    json_t *list = json_array();
    for (const char *at = wish->allow; *at;) {
        size_t length = strcspn(at, " ");
        json_array_append_new(list, json_stringn(at, length));
        at += length + (at[length] == ' ');
    }
    json_object_set_new(json, "allow", list);
    return json;
}

bool egress_wish_next(const struct egress_wish *wish, const char **at, struct egress_rule *rule)
{
    char entry[EGRESS_RULE_BYTES];
    const char *from = *at ? *at : wish->allow;
    while (*from) {
        size_t length = strcspn(from, " ");
        bool fits = length < sizeof entry;
        if (fits) {
            memcpy(entry, from, length);
            entry[length] = '\0';
        }
        from += length + (from[length] == ' ');
        *at = from;
        if (fits && egress_rule_parse(entry, rule, NULL))
            return true;
    }
    return false;
}
