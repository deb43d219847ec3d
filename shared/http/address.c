#include "shared/http/address.h"

#include "shared/base/memory.h"
#include "shared/base/text.h"

#include <arpa/inet.h>
#include <string.h>

enum { BITS = 8 * ADDRESS_BYTES, MAPPED_BITS = 96, NETWORKS_MAX = 256, HOP_BYTES = 64 };

static const uint8_t MAPPED[12] = {[10] = 0xFF, [11] = 0xFF};

struct network {
    struct address address;
    unsigned length; /* bits, of the 128 */
};

struct cidrs {
    size_t count;
    struct network each[];
};

/* ---- one address ---- */

static bool is_v4(const struct address *address)
{
    return memcmp(address->bytes, MAPPED, sizeof MAPPED) == 0;
}

static void set_v4(struct address *address, const void *bytes)
{
    memcpy(address->bytes, MAPPED, sizeof MAPPED);
    memcpy(address->bytes + sizeof MAPPED, bytes, 4);
}

bool address_parse(struct address *address, const char *text)
{
    uint8_t bytes[ADDRESS_BYTES];
    if (inet_pton(AF_INET, text, bytes) == 1) {
        set_v4(address, bytes);
        return true;
    }
    if (inet_pton(AF_INET6, text, bytes) != 1)
        return false;
    memcpy(address->bytes, bytes, sizeof bytes);
    return true;
}

/* ":80" or nothing. */
static bool is_port(const char *text)
{
    uint64_t port;
    return *text == '\0' || (*text == ':' && text_parse_u64(text + 1, strlen(text + 1), 65535, &port));
}

bool address_parse_hop(struct address *address, const char *text, size_t length)
{
    char hop[HOP_BYTES];
    if (length == 0 || length >= sizeof hop || memchr(text, '\0', length) != NULL)
        return false;
    memcpy(hop, text, length);
    hop[length] = '\0';
    char *end = hop[0] == '[' ? strchr(hop, ']') : strchr(hop, ':');
    if (hop[0] == '[') {
        if (end == NULL || !is_port(end + 1))
            return false;
        *end = '\0';
        return strchr(hop + 1, ':') != NULL && address_parse(address, hop + 1);
    }
    bool has_port = end != NULL && strchr(end + 1, ':') == NULL; /* with one colon it is no IPv6 */
    if (has_port && !is_port(end))
        return false;
    if (has_port)
        *end = '\0';
    return address_parse(address, hop);
}

bool address_of_socket(struct address *address, const struct sockaddr *from)
{
    if (from->sa_family == AF_INET) {
        struct sockaddr_in in;
        memcpy(&in, from, sizeof in);
        set_v4(address, &in.sin_addr);
        return true;
    }
    if (from->sa_family != AF_INET6)
        return false;
    struct sockaddr_in6 in6;
    memcpy(&in6, from, sizeof in6);
    memcpy(address->bytes, &in6.sin6_addr, sizeof address->bytes);
    return true;
}

void address_format(char to[static ADDRESS_TEXT_BYTES], const struct address *address)
{
    bool v4 = is_v4(address);
    const void *bytes = v4 ? address->bytes + sizeof MAPPED : address->bytes;
    if (inet_ntop(v4 ? AF_INET : AF_INET6, bytes, to, ADDRESS_TEXT_BYTES) == NULL)
        memcpy(to, "?", 2);
}

bool address_is_loopback(const struct address *address)
{
    static const struct address LOOPBACK_6 = {.bytes = {[15] = 1}};
    if (is_v4(address))
        return address->bytes[sizeof MAPPED] == 127;
    return memcmp(address, &LOOPBACK_6, sizeof *address) == 0;
}

struct address address_counted(const struct address *address)
{
    struct address counted = *address;
    if (!is_v4(address))
        memset(counted.bytes + 8, 0, 8);
    return counted;
}

/* ---- networks ---- */

static bool is_equal(const struct address *a, const struct address *b, unsigned bits)
{
    unsigned whole = bits / 8, rest = bits % 8;
    if (memcmp(a->bytes, b->bytes, whole) != 0)
        return false;
    return rest == 0 || ((a->bytes[whole] ^ b->bytes[whole]) >> (8 - rest)) == 0;
}

/* Whether nothing is set behind the first bits. */
static bool is_network(const struct network *network)
{
    struct address masked = network->address;
    for (unsigned bit = network->length; bit < BITS; bit++)
        masked.bytes[bit / 8] = (uint8_t)(masked.bytes[bit / 8] & ~(0x80U >> bit % 8));
    return memcmp(&masked, &network->address, sizeof masked) == 0;
}

static bool parse_network(struct network *network, char *text, struct error *err)
{
    char *slash = strchr(text, '/');
    uint64_t length = 0;
    if (slash != NULL)
        *slash = '\0';
    bool is_sound = address_parse(&network->address, text);
    bool as_v4 = is_sound && strchr(text, ':') == NULL;
    unsigned most = as_v4 ? BITS - MAPPED_BITS : BITS;
    if (slash == NULL)
        length = most;
    else
        is_sound = is_sound && text_parse_u64(slash + 1, strlen(slash + 1), most, &length);
    network->length = (unsigned)length + (as_v4 ? MAPPED_BITS : 0);
    if (slash != NULL)
        *slash = '/';
    if (!is_sound)
        return error_set(err, ERROR_INVALID, "\"%.64s\" is no network such as 10.0.0.0/8 or 2001:db8::/32", text);
    return is_network(network) ||
           error_set(err, ERROR_INVALID, "\"%.64s\" has bits behind its first %u", text, (unsigned)length);
}

struct cidrs *cidrs_parse(const char *text, struct error *err)
{
    AUTO(cidrs) *networks = memory_new(sizeof *networks + NETWORKS_MAX * sizeof networks->each[0]);
    AUTO_FREE char *copy = memory_string(text != NULL ? text : "");
    char *rest = NULL;
    for (char *word = strtok_r(copy, ", ", &rest); word != NULL; word = strtok_r(NULL, ", ", &rest)) {
        if (networks->count == NETWORKS_MAX) {
            error_set(err, ERROR_INVALID, "more than %d networks", NETWORKS_MAX);
            return NULL;
        }
        if (!parse_network(&networks->each[networks->count], word, err))
            return NULL;
        networks->count++;
    }
    return TAKE(networks);
}

void cidrs_free(struct cidrs *networks)
{
    free(networks);
}

bool cidrs_hold(const struct cidrs *networks, const struct address *address)
{
    for (size_t i = 0; networks != NULL && i < networks->count; i++) {
        if (is_equal(&networks->each[i].address, address, networks->each[i].length))
            return true;
    }
    return false;
}

/* ---- who asks ---- */

/* The hop that ends at `end`, without the blanks around it; returns where it begins. */
static const char *last_hop(const char *begin, const char *end, const char **hop, size_t *length)
{
    const char *from = end;
    while (from > begin && from[-1] != ',')
        from--;
    const char *first = from, *behind = end;
    while (first < behind && (*first == ' ' || *first == '\t'))
        first++;
    while (behind > first && (behind[-1] == ' ' || behind[-1] == '\t'))
        behind--;
    *hop = first;
    *length = (size_t)(behind - first);
    return from;
}

struct address address_forwarded(const struct cidrs *trusted, const struct address *peer, const char *const *values,
                                 size_t count)
{
    struct address found = *peer;
    if (!cidrs_hold(trusted, peer))
        return *peer;
    for (size_t i = count; i > 0; i--) {
        const char *begin = values[i - 1], *end = begin + strlen(begin), *from;
        do {
            const char *hop;
            size_t length;
            from = last_hop(begin, end, &hop, &length);
            if (!address_parse_hop(&found, hop, length))
                return *peer;
            if (!cidrs_hold(trusted, &found))
                return found;
            end = from - 1; /* the comma */
        } while (from > begin);
    }
    return found;
}
