/** egress_rule.h - where a sandbox may go: the entries of network.allow and network.deny as text and as what they mean,
 * for both planes and the command line. IPv4 alone.
 *
 *   pypi.org  *.pythonhosted.org      TCP 80 and 443, the name checked in TLS and HTTP
 *   github.com:22                     that TCP port of that name's addresses
 *   203.0.113.0/24  203.0.113.7       all TCP and UDP ports
 *   203.0.113.7:5432  198.51.100.0/24:53/udp
 *
 *  An entry of `deny` without a port is all ports, of a name too; it may be in a range that nobody reaches anyway.
 *
 *  Of the entries of both lists that have a name (or an address) the most specific one decides: the name itself before
 *  "*.x", a longer x before a shorter one, a longer prefix before a shorter one, one with a port before one without;
 *  of two alike the one of `deny`. Where both a name and its address are asked about, both must be let through.
 *
 *  "*.x" is every name below x, at any depth, not x itself. Names are case-insensitive and kept in lower case, without
 *  a dot at the end; other than letters, digits, - and _ in labels: as IDNA's xn-- form. */
#pragma once

#include "shared/base/error.h"

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define EGRESS_RULES_MAX   64   /* of `allow`, and as many of `deny` */
#define EGRESS_RULE_BYTES  270  /* an entry with NUL */
#define EGRESS_RULES_BYTES 8192 /* all entries as one text, a blank between them, with NUL */

enum egress_mode { EGRESS_NONE, EGRESS_PUBLIC, EGRESS_ALLOW };

/** "none", "public", "allow". */
const char *egress_mode_name(enum egress_mode mode) MUST_USE;

struct egress_rule {
    bool is_name;
    char name[254];   /* lower case; of "*.x" only "x" */
    bool is_wildcard; /* names below it, not itself */
    uint32_t address; /* host order, its host bits 0 */
    uint8_t prefix;   /* 0..32 */
    uint8_t protocol; /* IPPROTO_TCP, IPPROTO_UDP, 0 both; of a name TCP */
    uint16_t port;    /* 0: all; of a name: 80 and 443 */
};

/** Reads one entry of `allow`. INVALID names it and what is allowed; a network that meets a blocked range is INVALID
 * too. */
bool egress_rule_parse(const char *text, struct egress_rule *rule, struct error *err) MUST_USE;
/** The same of `deny`, where a blocked range is allowed. */
bool egress_rule_parse_denied(const char *text, struct egress_rule *rule, struct error *err) MUST_USE;

/** Its one spelling: "PyPI.org." -> "pypi.org", "203.0.113.9/24" -> "203.0.113.0/24". */
void egress_rule_print(const struct egress_rule *rule, char to[static EGRESS_RULE_BYTES]);

/** Whether the name (any case, perhaps with a dot at its end) is one of the rule's. */
bool egress_rule_has_name(const struct egress_rule *rule, const char *name) MUST_USE;

/** Whether everything that `inner` lets through is let through by `outer`. */
bool egress_rule_covers(const struct egress_rule *outer, const struct egress_rule *inner) MUST_USE;

/** The same but for ports and protocols: whether all names, or all addresses, of `inner` are ones of `outer`. */
bool egress_rule_holds(const struct egress_rule *outer, const struct egress_rule *inner) MUST_USE;

/** Orders entries of one kind for a list where the first that has a name or an address decides: below 0 when `a` is
 *  more specific than `b`, 0 when that does not say it. */
int egress_rule_compare(const struct egress_rule *a, const struct egress_rule *b) MUST_USE;

/** Whether an address (host order) is in a range that nobody may reach: 0/8, 10/8, 100.64/10, 127/8, 169.254/16,
 *  172.16/12, 192.168/16, 224/4, 240/4. */
bool egress_is_blocked(uint32_t address) MUST_USE;
/** Whether any address of that network is. */
bool egress_meets_blocked(uint32_t address, uint8_t prefix) MUST_USE;
/** The blocked ranges as nftables writes a set's elements: "0.0.0.0/8, 10.0.0.0/8, ..."; static. */
const char *egress_blocked_elements(void) MUST_USE;

/** What `network` of a request says. Entries in their one spelling, in the order given, each once. */
struct egress_wish {
    enum egress_mode mode;
    char allow[EGRESS_RULES_BYTES]; /* EGRESS_ALLOW: what is reached; EGRESS_PUBLIC: what is excepted from `deny`,
                                       without ports */
    char deny[EGRESS_RULES_BYTES];  /* EGRESS_ALLOW, EGRESS_PUBLIC: what of that is not */
};

/** {"egress": "none"|"public"|"allow", "allow": [...], "deny": [...]}. INVALID names what is wrong. */
bool egress_wish_read(const json_t *network, struct egress_wish *wish, struct error *err) MUST_USE;
/** The same back; the caller owns it. */
json_t *egress_wish_json(const struct egress_wish *wish) MUST_USE;

/** Walks the entries of `allow`: *at starts as NULL, false at the end. */
bool egress_wish_next(const struct egress_wish *wish, const char **at, struct egress_rule *rule) MUST_USE;
/** The same of `deny`. */
bool egress_wish_next_denied(const struct egress_wish *wish, const char **at, struct egress_rule *rule) MUST_USE;
