/** address.h - IP addresses as values, networks in CIDR form, and whom a request is from when proxies stand between
 *  (protocol.md, 6). Knows no sockets' owner and no server. */
#pragma once

#include "shared/base/error.h"

#include <netinet/in.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>

#define ADDRESS_TEXT_BYTES INET6_ADDRSTRLEN
#define ADDRESS_BYTES      16

/** IPv6, or IPv4 as ::ffff:a.b.c.d: one address has one form. All zero: none. */
struct address {
    uint8_t bytes[ADDRESS_BYTES];
};

/** "192.0.2.1", "2001:db8::1"; no port, no zone, no blanks. */
bool address_parse(struct address *address, const char *text) MUST_USE;
/** What such a header's hop may look like: also "192.0.2.1:80", "[2001:db8::1]", "[2001:db8::1]:80". */
bool address_parse_hop(struct address *address, const char *text, size_t length) MUST_USE;
/** Of a socket; false for one that is neither IPv4 nor IPv6. */
bool address_of_socket(struct address *address, const struct sockaddr *from) MUST_USE;
/** IPv4 in its own form. */
void address_format(char to[static ADDRESS_TEXT_BYTES], const struct address *address);
/** 127.0.0.0/8 or ::1. */
bool address_is_loopback(const struct address *address) MUST_USE;
/** Whom limits count as one: an IPv4 address; of IPv6 the /64, which is what one customer has. */
struct address address_counted(const struct address *address) MUST_USE;

/** A list of networks. */
struct cidrs;

/** "10.0.0.0/8, 2001:db8::/32, 192.0.2.7"; NULL or "" is none. The caller owns it. ERROR_INVALID names what is no
 *  network, or has bits behind its length. */
struct cidrs *cidrs_parse(const char *text, struct error *err) MUST_USE;
/** NULL is allowed. */
void cidrs_free(struct cidrs *networks);
DEFINE_AUTO(cidrs)
/** Whether one of them has it. NULL: none does. */
bool cidrs_hold(const struct cidrs *networks, const struct address *address) MUST_USE;

/** Whom the request is from: the right-most hop of X-Forwarded-For that is not of `trusted`, as each proxy adds to its
 *  right whom it was asked by; the left-most one when all are trusted; `peer` when that is not trusted itself, and when
 *  a hop that was asked for is none. `values`: the header's fields in their order. */
struct address address_forwarded(const struct cidrs *trusted, const struct address *peer, const char *const *values,
                                 size_t count) MUST_USE;
