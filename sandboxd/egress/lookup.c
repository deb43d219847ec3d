#include "sandboxd/egress/lookup.h"

#include "shared/base/clock.h"
#include "shared/base/log.h"
#include "shared/base/memory.h"
#include "shared/base/text.h"
#include "shared/node_protocol/egress_rule.h"

#include <arpa/inet.h>
#include <string.h>

static const uint64_t SECOND = 1000000000;

enum {
    TTL_LEAST_S = 30,
    TTL_MOST_S = 3600,
    PIN_BEYOND_S = 300, /* a pin outlives what the sandbox was told */
    PIN_AGAIN_S = 60,   /* one that outlives it only by less is pinned anew */
    LOOKUP_S = 15
};

struct lookup {
    struct lookup *next;
    struct sandbox *sandbox; /* NULL: ended or cancelled, and only the resolver's answer is awaited */
    char name[HOST_NAME_BYTES];
    uint16_t type;
    void (*done)(void *cookie, const struct lookup_result *result);
    void *cookie;
    bool is_asked, is_inside; /* the resolver has it; lookup_start has not returned */
    struct loop_timer *timer;
    struct lookup_result result;
    unsigned pins_open;
    bool was_refused;
    uint64_t pins[POLICY_PORTS / LAUNCHER_EGRESS_PORTS + 1];
    size_t pin_count;
};

/* Takes it out of the sandbox's list; frees it once the resolver does not know it any more. */
static void let_go(struct lookup *lookup)
{
    struct sandbox *sandbox = lookup->sandbox;
    if (sandbox != NULL) {
        struct lookup **at = &sandbox->lookups_first;
        while (*at != lookup)
            at = &(*at)->next;
        *at = lookup->next;
        sandbox->lookups--;
        sandbox->house->lookups--;
        for (size_t i = 0; i < lookup->pin_count; i++)
            launcher_line_cancel(sandbox->house->line, lookup->pins[i]);
    }
    loop_timer_cancel(TAKE(lookup->timer));
    lookup->sandbox = NULL;
    if (!lookup->is_asked && !lookup->is_inside)
        free(lookup);
}

static void finish(struct lookup *lookup)
{
    void (*done)(void *, const struct lookup_result *) = lookup->done;
    void *cookie = lookup->cookie;
    const struct lookup_result result = lookup->result;
    let_go(lookup);
    done(cookie, &result);
}

static void fail(struct lookup *lookup)
{
    lookup->result = (struct lookup_result){.addresses.rcode = DNS_SERVFAIL};
    finish(lookup);
}

static void on_timer(void *cookie)
{
    struct lookup *lookup = cookie;
    lookup->timer = NULL;
    fail(lookup);
}

/* ---- pins ---- */

static void remember(struct lookup *lookup)
{
    const struct dns_addresses *addresses = &lookup->result.addresses;
    uint64_t now_ns = clock_boot_ns();
    uint64_t until_ns = now_ns + (addresses->ttl_s + PIN_BEYOND_S) * SECOND;
    for (size_t i = 0; i < addresses->count; i++)
        pins_add(lookup->sandbox->pins, lookup->name, addresses->addresses[i], until_ns, now_ns);
}

static void on_pinned(void *cookie, bool ok)
{
    struct lookup *lookup = cookie;
    lookup->was_refused |= !ok;
    if (--lookup->pins_open > 0)
        return;
    if (lookup->was_refused) {
        log_warn("egress", "the launcher pins no address of %s sandbox=%s", lookup->name, lookup->sandbox->id);
        fail(lookup);
        return;
    }
    remember(lookup);
    finish(lookup);
}

static bool are_pinned(const struct lookup *lookup)
{
    const struct dns_addresses *addresses = &lookup->result.addresses;
    uint64_t now_ns = clock_boot_ns();
    uint64_t wanted_ns = now_ns + (addresses->ttl_s + PIN_AGAIN_S) * SECOND;
    for (size_t i = 0; i < addresses->count; i++) {
        if (pins_expiry(lookup->sandbox->pins, lookup->name, addresses->addresses[i], now_ns) < wanted_ns)
            return false;
    }
    return true;
}

/* One packet for every LAUNCHER_EGRESS_PORTS ports of the name. done is NULL when nobody waits. */
static size_t ask_for_pins(struct sandbox *sandbox, const char *name, struct eg_pin *pin,
                           void (*done)(void *cookie, bool ok), struct lookup *lookup)
{
    uint16_t ports[POLICY_PORTS];
    size_t count = policy_ports(sandbox->policy, name, ports);
    size_t packets = 0;
    for (size_t from = 0; from < count; from += LAUNCHER_EGRESS_PORTS) {
        size_t some = count - from < LAUNCHER_EGRESS_PORTS ? count - from : LAUNCHER_EGRESS_PORTS;
        memset(pin->ports, 0, sizeof pin->ports);
        memcpy(pin->ports, ports + from, some * sizeof ports[0]);
        uint64_t request = launcher_line_pin(sandbox->house->line, pin, done, lookup);
        if (lookup != NULL)
            lookup->pins[packets] = request;
        packets++;
    }
    return packets;
}

/* The answer goes out only when the addresses can be reached. */
static void pin(struct lookup *lookup)
{
    const struct dns_addresses *addresses = &lookup->result.addresses;
    struct eg_pin pin = {.number = lookup->sandbox->number,
                         .rules = lookup->sandbox->rules,
                         .count = (uint32_t)addresses->count,
                         .ttl_s = addresses->ttl_s + PIN_BEYOND_S};
    if (addresses->count == 0 || are_pinned(lookup)) {
        finish(lookup);
        return;
    }
    memcpy(pin.addresses, addresses->addresses, addresses->count * sizeof pin.addresses[0]);
    lookup->pin_count = ask_for_pins(lookup->sandbox, lookup->name, &pin, on_pinned, lookup);
    lookup->pins_open = (unsigned)lookup->pin_count;
    if (lookup->pin_count == 0)
        fail(lookup); /* the rules changed meanwhile */
}

_Static_assert(sizeof((struct eg_pin *)0)->addresses >= sizeof((struct dns_addresses *)0)->addresses,
               "the addresses of an answer fit one packet");

/* ---- the answer ---- */

static void leave_out_blocked(struct lookup *lookup)
{
    struct dns_addresses *addresses = &lookup->result.addresses;
    const struct policy *policy = lookup->sandbox->policy;
    size_t kept = 0;
    for (size_t i = 0; i < addresses->count; i++) {
        uint32_t address = ntohl(addresses->addresses[i]);
        if (!egress_is_blocked(address) && !policy_denies_address(policy, address, 0))
            addresses->addresses[kept++] = addresses->addresses[i];
    }
    if (kept < addresses->count)
        sandbox_refused(lookup->sandbox, "%zu of %zu addresses of %s are in a range that nobody may reach, or denied",
                        addresses->count - kept, addresses->count, lookup->name);
    addresses->count = kept;
    addresses->ttl_s = addresses->ttl_s < TTL_LEAST_S ? TTL_LEAST_S : addresses->ttl_s;
    addresses->ttl_s = addresses->ttl_s > TTL_MOST_S ? TTL_MOST_S : addresses->ttl_s;
}

static bool is_denied(void *cookie, const char *name)
{
    const struct lookup *lookup = cookie;
    bool is_so = policy_denies_name(lookup->sandbox->policy, name);
    if (is_so)
        sandbox_refused(lookup->sandbox, "%s stands for %s, which is denied", lookup->name, name);
    return is_so;
}

static void on_answer(void *cookie, const void *answer, size_t size)
{
    struct lookup *lookup = cookie;
    lookup->is_asked = false;
    if (lookup->sandbox == NULL) {
        let_go(lookup);
        return;
    }
    if (answer != NULL && lookup->type != DNS_A) {
        lookup->result = (struct lookup_result){.answer = answer, .answer_size = size};
        finish(lookup);
        return;
    }
    if (answer == NULL ||
        !dns_addresses_read(&lookup->result.addresses, lookup->name, answer, size, is_denied, lookup)) {
        fail(lookup);
        return;
    }
    leave_out_blocked(lookup);
    if (!policy_is_public(lookup->sandbox->policy)) {
        pin(lookup);
        return;
    }
    if (policy_denies_names(lookup->sandbox->policy))
        remember(lookup); /* the proxy asks */
    finish(lookup);
}

/* ---- the question ---- */

/* Whether the name is `zone` or below it. */
static bool is_in(const char *name, const char *zone)
{
    size_t name_length = strlen(name);
    size_t length = strlen(zone);
    return name_length >= length && strcmp(name + name_length - length, zone) == 0 &&
           (name_length == length || name[name_length - length - 1] == '.');
}

/* Names that the host's own network may know and that say something about it (RFC 6303, RFC 6761, RFC 6762). */
static bool is_internal(const char *name)
{
    static const char *const ZONES[] = {"local",
                                        "localdomain",
                                        "internal",
                                        "intranet",
                                        "private",
                                        "corp",
                                        "home",
                                        "lan",
                                        "home.arpa",
                                        "invalid",
                                        "onion",
                                        "0.in-addr.arpa",
                                        "10.in-addr.arpa",
                                        "127.in-addr.arpa",
                                        "254.169.in-addr.arpa",
                                        "168.192.in-addr.arpa",
                                        "ip6.arpa"};
    if (strchr(name, '.') == NULL)
        return true;
    for (size_t i = 0; i < sizeof ZONES / sizeof ZONES[0]; i++) {
        if (is_in(name, ZONES[i]))
            return true;
    }
    for (unsigned number = 16; number < 128; number++) { /* 172.16/12 and 100.64/10 */
        char zone[32];
        if ((number < 32 || number >= 64) &&
            text_format(zone, sizeof zone, "%u.%u.in-addr.arpa", number, number < 32 ? 172U : 100U) &&
            is_in(name, zone))
            return true;
    }
    return false;
}

/* What is known without asking anybody. */
static bool answer_here(struct lookup *lookup)
{
    struct dns_addresses *addresses = &lookup->result.addresses;
    const struct policy *policy = lookup->sandbox->policy;
    if (is_in(lookup->name, "localhost")) {
        *addresses = (struct dns_addresses){
            .count = lookup->type == DNS_A, .addresses = {htonl(INADDR_LOOPBACK)}, .ttl_s = TTL_MOST_S};
        return true;
    }
    if (!policy_has_name(policy, lookup->name)) {
        log_debug("egress", "the name %s is not allowed sandbox=%s", lookup->name, lookup->sandbox->id);
        addresses->rcode = DNS_REFUSED;
        return true;
    }
    if (policy_is_public(policy)) {
        addresses->rcode = lookup->type == DNS_ANY ? DNS_REFUSED : is_internal(lookup->name) ? DNS_NXDOMAIN : DNS_OK;
        return addresses->rcode != DNS_OK || lookup->type == DNS_AAAA;
    }
    return lookup->type != DNS_A;
}

static void ask(struct lookup *lookup)
{
    const struct sandbox *sandbox = lookup->sandbox;
    if (house_is_full_for(sandbox->lookups - 1, LOOKUPS_OF_ONE, sandbox->house->lookups - 1, LOOKUPS_OF_ALL)) {
        fail(lookup);
        return;
    }
    lookup->timer = loop_timer_start(sandbox->house->loop, clock_boot_ns() + LOOKUP_S * SECOND, on_timer, lookup);
    lookup->is_asked = true;
    resolver_ask(sandbox->house->resolver, lookup->name, lookup->type, on_answer, lookup);
}

struct lookup *lookup_start(struct sandbox *sandbox, const char *name, uint16_t type,
                            void (*done)(void *cookie, const struct lookup_result *result), void *cookie)
{
    struct lookup *lookup = memory_new(sizeof *lookup);
    *lookup = (struct lookup){.next = sandbox->lookups_first,
                              .sandbox = sandbox,
                              .type = type,
                              .done = done,
                              .cookie = cookie,
                              .is_inside = true};
    sandbox->lookups_first = lookup;
    sandbox->lookups++;
    sandbox->house->lookups++;
    if (!text_copy(lookup->name, sizeof lookup->name, name))
        fail(lookup);
    else if (answer_here(lookup))
        finish(lookup);
    else
        ask(lookup);
    lookup->is_inside = false;
    if (lookup->sandbox == NULL && !lookup->is_asked) {
        free(lookup);
        return NULL;
    }
    return lookup;
}

void lookup_cancel(struct lookup *lookup)
{
    if (lookup != NULL)
        let_go(lookup);
}

/* ---- new rules ---- */

struct again {
    struct sandbox *sandbox;
    bool are_kept;
    uint64_t now_ns;
    char name[HOST_NAME_BYTES];
    struct eg_pin pin;
};

static bool has_rule(void *cookie, const char *name)
{
    const struct again *again = cookie;
    return again->are_kept && policy_has_name(again->sandbox->policy, name);
}

static void send_again(struct again *again)
{
    if (again->pin.count > 0)
        (void)ask_for_pins(again->sandbox, again->name, &again->pin, NULL, NULL);
    again->pin = (struct eg_pin){.number = again->sandbox->number, .rules = again->sandbox->rules};
}

static void pin_again(void *cookie, const char *name, uint32_t address, uint64_t expires_ns)
{
    struct again *again = cookie;
    if (again->pin.count == LAUNCHER_EGRESS_PINS || strcmp(again->name, name) != 0)
        send_again(again);
    uint32_t left_s = (uint32_t)((expires_ns - again->now_ns) / SECOND) + 1;
    memcpy(again->name, name, strlen(name) + 1); /* as long in both */
    again->pin.ttl_s = left_s > again->pin.ttl_s ? left_s : again->pin.ttl_s;
    again->pin.addresses[again->pin.count++] = address;
}

void lookup_pin_again(struct sandbox *sandbox, bool are_kept)
{
    struct again again = {.sandbox = sandbox,
                          .are_kept = are_kept,
                          .now_ns = clock_boot_ns(),
                          .pin.number = sandbox->number,
                          .pin.rules = sandbox->rules};
    pins_keep(sandbox->pins, has_rule, &again, again.now_ns);
    pins_each(sandbox->pins, pin_again, &again);
    send_again(&again);
}
