/** client_hello.h - the name that a TLS client asks for (RFC 6066, 3), read from its first bytes by OpenSSL. No
 *  handshake is done. */
#pragma once

#include "sandboxd/egress/host_name.h"
#include "shared/base/error.h"

#include <stdint.h>

#define CLIENT_HELLO_BYTES 16384 /* a hello is over by then */

/** What all readers share: OpenSSL reads its settings, so before files are out of reach. ERROR_INTERNAL. */
struct client_hello_maker;
struct client_hello_maker *client_hello_maker_new(struct error *err) MUST_USE;
/** NULL is allowed. */
void client_hello_maker_free(struct client_hello_maker *maker);

struct client_hello;
/** Reads one connection's first message; the caller's, and not longer than the maker. */
struct client_hello *client_hello_new(const struct client_hello_maker *maker) MUST_USE;
/** NULL is allowed. */
void client_hello_free(struct client_hello *hello);
DEFINE_AUTO(client_hello)

enum client_hello_state { CLIENT_HELLO_MORE, CLIENT_HELLO_NAMED, CLIENT_HELLO_WRONG };

/** Reads on. NAMED: client_hello_name is there (host_name_read passed it). WRONG: `err` says why: no TLS, no name, two
 * names, a name that is none, over CLIENT_HELLO_BYTES. MORE wants more. Not called again after the other two. */
enum client_hello_state client_hello_read(struct client_hello *hello, const void *data, size_t size,
                                          struct error *err) MUST_USE;
/** The name, in small letters; after NAMED alone. */
const char *client_hello_name(const struct client_hello *hello) MUST_USE;

#define CLIENT_HELLO_ALERT_BYTES 7
/** What tells a TLS client that its name is refused: the alert unrecognized_name (RFC 8446, 6.2). */
extern const uint8_t CLIENT_HELLO_ALERT[CLIENT_HELLO_ALERT_BYTES];
