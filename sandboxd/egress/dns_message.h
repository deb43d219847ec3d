/** dns_message.h - DNS messages (RFC 1035) read and written by libldns: hostile queries of a sandbox, answers of the
 *  upstream servers, and our replies, which are made anew. */
#pragma once

#include "sandboxd/egress/host_name.h"

#include <stdint.h>

#define DNS_MESSAGE_BYTES  65535
#define DNS_QUERY_BYTES    1232 /* a longer query is none */
#define DNS_ADDRESSES      16   /* of one name; more are left out */
#define DNS_UDP_BYTES      512  /* to one who says no more (RFC 6891) */
#define DNS_UDP_BYTES_MOST 1232

enum dns_rcode { DNS_OK, DNS_FORMERR, DNS_SERVFAIL, DNS_NXDOMAIN, DNS_NOTIMP, DNS_REFUSED };
enum dns_type { DNS_A = 1, DNS_AAAA = 28, DNS_ANY = 255 };

struct ldns_struct_rr;

struct dns_query {
    uint16_t id, type;
    bool wants_recursion, has_edns;
    uint16_t udp_bytes;              /* how long a reply by UDP may be: DNS_UDP_BYTES..DNS_UDP_BYTES_MOST */
    char name[HOST_NAME_BYTES];      /* host_name_read's spelling */
    struct ldns_struct_rr *question; /* as it was sent, for the reply; NULL when there is none; owned */
};

/** Reads a query. DNS_OK, or what to reply with (the question may then be missing); -1: nothing that may be replied to.
 *  dns_query_done in every case. */
int dns_query_read(struct dns_query *query, const void *data, size_t size) MUST_USE;
void dns_query_done(struct dns_query *query);

struct dns_addresses {
    enum dns_rcode rcode; /* DNS_OK (also with no address), DNS_NXDOMAIN, DNS_SERVFAIL or DNS_REFUSED */
    size_t count;
    uint32_t addresses[DNS_ADDRESSES]; /* network order */
    uint32_t ttl_s;                    /* the smallest on the way to them */
};

/** The A records of a name in an upstream answer, over its CNAMEs. False when it is no answer about that name. What
 *  denies(cookie, name) says of a name that it stands for ends the way there: DNS_REFUSED. */
bool dns_addresses_read(struct dns_addresses *to, const char *name, const void *data, size_t size,
                        bool (*denies)(void *cookie, const char *name), void *cookie) MUST_USE;

/** Writes the reply: rcode, and for DNS_OK the addresses (NULL: none) as A records of the name asked for. Into
 *  `to` of `room` bytes; cut (TC) when it does not fit. Returns the size; 0 when not even the header fits. */
size_t dns_reply_write(uint8_t *to, size_t room, const struct dns_query *query, enum dns_rcode rcode,
                       const struct dns_addresses *addresses) MUST_USE;

/** Writes what an upstream server answered as the reply, without addresses that keep(address, network order) is false
 *  for and without any IPv6 address. 0 when the answer cannot be read. */
size_t dns_reply_pass(uint8_t *to, size_t room, const struct dns_query *query, const void *data, size_t size,
                      bool (*keep)(uint32_t address)) MUST_USE;
