/** servers.h - addresses as operators write them: the DNS servers that names are asked at, and the net that sandboxes
 * have their addresses of. IPv4. */
#pragma once

#include "sandboxd/network/rules.h"

/** "9.9.9.9,127.0.0.1:5353": 1..RULES_SERVERS of them. ERROR_INVALID says what is allowed. */
bool servers_parse(const char *text, struct rules_server servers[static RULES_SERVERS], size_t *count,
                   struct error *err) MUST_USE;

/** The IPv4 "nameserver" lines of a resolv.conf(5), as many as there is room for; 0 when there is none. */
size_t servers_of_host(const char *path, struct rules_server servers[static RULES_SERVERS]);

/** "100.126.0.0/20": a network with room for an address for each slot, in a range that nobody may reach, for sandboxes
 *  must not reach each other by it. Host order. */
bool servers_parse_net(const char *text, uint32_t *address, struct error *err) MUST_USE;
