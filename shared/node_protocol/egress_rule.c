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

/* ---- one entry ---- */

static bool refuse(const char *text, const char *why, struct error *err)
{
    return error_set(err, ERROR_INVALID, "network: \"%.80s\": %s", text, why);
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

static bool parse(const char *text, bool is_denied, struct egress_rule *rule, struct error *err)
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
        if (!is_denied && egress_meets_blocked(rule->address, rule->prefix))
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

bool egress_rule_parse(const char *text, struct egress_rule *rule, struct error *err)
{
    return parse(text, false, rule, err);
}

bool egress_rule_parse_denied(const char *text, struct egress_rule *rule, struct error *err)
{
    return parse(text, true, rule, err);
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

bool egress_rule_holds(const struct egress_rule *outer, const struct egress_rule *inner)
{
    if (outer->is_name != inner->is_name)
        return false;
    if (!outer->is_name)
        return outer->prefix <= inner->prefix && (inner->address & mask_of(outer->prefix)) == outer->address;
    if (strcasecmp(outer->name, inner->name) == 0)
        return outer->is_wildcard == inner->is_wildcard;
    return outer->is_wildcard && egress_rule_has_name(outer, inner->name);
}

/* A name without a port is 80 and 443. */
bool egress_rule_covers(const struct egress_rule *outer, const struct egress_rule *inner)
{
    if (!egress_rule_holds(outer, inner))
        return false;
    if (outer->is_name) {
        bool is_web = inner->port == 0 || inner->port == 80 || inner->port == 443;
        return outer->port == 0 ? is_web : outer->port == inner->port;
    }
    return (outer->port == 0 || outer->port == inner->port) &&
           (outer->protocol == 0 || outer->protocol == inner->protocol);
}

int egress_rule_compare(const struct egress_rule *a, const struct egress_rule *b)
{
    if (a->is_name && a->is_wildcard != b->is_wildcard)
        return a->is_wildcard - b->is_wildcard;
    size_t a_length = a->is_name ? strlen(a->name) : a->prefix;
    size_t b_length = b->is_name ? strlen(b->name) : b->prefix;
    if (a_length != b_length)
        return a_length > b_length ? -1 : 1;
    if ((a->port == 0) != (b->port == 0))
        return a->port == 0 ? 1 : -1;
    if (!a->is_name && (a->protocol == 0) != (b->protocol == 0))
        return a->protocol == 0 ? 1 : -1;
    return 0;
}
