#include "sandboxd/network/servers.h"

#include "shared/base/fd.h"
#include "shared/node_protocol/egress_rule.h"

#include <arpa/inet.h>
#include <stdio.h>
#include <string.h>

enum { DNS_PORT = 53, NET_PREFIX_MIN = 8, NET_PREFIX_MAX = 20, FILE_MAX_BYTES = 65536, ENTRY_BYTES = 32 };

/* "A.B.C.D[:port]" */
static bool parse_server(const char *text, size_t length, struct rules_server *server)
{
    char address[ENTRY_BYTES];
    struct in_addr parsed;
    uint64_t port = DNS_PORT;
    const char *colon = memchr(text, ':', length);
    size_t address_length = colon ? (size_t)(colon - text) : length;
    if (address_length >= sizeof address)
        return false;
    memcpy(address, text, address_length);
    address[address_length] = '\0';
    bool is_port = !colon || (text_parse_u64(colon + 1, length - address_length - 1, UINT16_MAX, &port) && port > 0);
    if (!is_port || inet_pton(AF_INET, address, &parsed) != 1 || parsed.s_addr == 0)
        return false;
    *server = (struct rules_server){.address = ntohl(parsed.s_addr), .port = (uint16_t)port};
    return true;
}

bool servers_parse(const char *text, struct rules_server servers[static RULES_SERVERS], size_t *count,
                   struct error *err)
{
    struct rules_server parsed[RULES_SERVERS];
    size_t found = 0;
    for (const char *at = text, *comma = NULL; at; at = comma ? comma + 1 : NULL) {
        comma = strchr(at, ',');
        if (found == RULES_SERVERS || !parse_server(at, strcspn(at, ","), &parsed[found]))
            return error_set(err, ERROR_INVALID,
                             "dns_servers: \"%.64s\" is not 1 to %d IPv4 addresses, each with :PORT or without, commas between",
                             text, RULES_SERVERS);
        found++;
    }
    memcpy(servers, parsed, found * sizeof parsed[0]);
    *count = found;
    return true;
}

size_t servers_of_host(const char *path, struct rules_server servers[static RULES_SERVERS])
{
    static const char WORD[] = "nameserver";
    AUTO_FREE char *text = fd_read_file(path, FILE_MAX_BYTES, NULL, NULL);
    size_t count = 0;
    for (const char *line = text; line && *line && count < RULES_SERVERS; line += strcspn(line, "\n"), line += *line == '\n') {
        size_t blanks = strncmp(line, WORD, strlen(WORD)) == 0 ? strspn(line + strlen(WORD), " \t") : 0;
        const char *address = line + strlen(WORD) + blanks;
        if (blanks > 0 && parse_server(address, strspn(address, "0123456789."), &servers[count]))
            count++;
    }
    return count;
}

bool servers_parse_net(const char *text, uint32_t *address, struct error *err)
{
    char part[ENTRY_BYTES];
    struct in_addr parsed = {0};
    uint64_t prefix = 0;
    const char *slash = strchr(text, '/');
    bool is_net = slash && text_format(part, sizeof part, "%.*s", (int)(slash - text), text) &&
                  inet_pton(AF_INET, part, &parsed) == 1 &&
                  text_parse_u64(slash + 1, strlen(slash + 1), NET_PREFIX_MAX, &prefix) && prefix >= NET_PREFIX_MIN;
    uint32_t net = ntohl(parsed.s_addr);
    bool is_whole = is_net && (net & (UINT32_MAX >> prefix)) == 0;
    if (!is_whole || !egress_is_blocked(net) || !egress_is_blocked(net | UINT32_MAX >> prefix) || net >> 24 == 127)
        return error_set(err, ERROR_INVALID,
                         "egress_net: \"%.32s\" is no network of /8 to /20 in a private range, as 100.126.0.0/20", text);
    *address = net;
    return true;
}
