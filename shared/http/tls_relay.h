/** tls_relay.h - one client's TLS, ended on the loop of its connection: ciphertext on the client's socket outside,
 * plain bytes on a socket pair inside, whose other end is the connection's. For this room only; loop thread. */
#pragma once

#include "shared/http/http_internal.h"

struct http_tls_relay;

/** Begins the handshake with a client that was accepted (`fd` is taken) and serves it as a connection. */
void http_tls_relay_start(struct http_worker *worker, int fd);

/** The other way round: TLS as a client over `fd` (taken; connect(2) may be under way) with the server's
 *  options.upstream_tls, to who proves to be `name`. Returns the inner end of a socket pair, the caller's, which ends
 *  without a byte when there is no such proof; -1 (fd closed) when descriptors or memory are out. */
int http_tls_relay_dial(struct http_worker *worker, int fd, const char *name) MUST_USE;

/** Ends all that were dialled: nothing uses them any more. */
void http_tls_relay_drop_dialled(struct http_worker *worker);

/** The connection has closed its end: what it sent still goes out, for as long as the client takes it. */
void http_tls_relay_left(struct http_tls_relay *relay);

/** When the connection closes, the client gets a reset, and nothing that still waits: never an end that looks orderly.
 */
void http_tls_relay_break(struct http_tls_relay *relay);

/** The client's socket; -1 when it is closed. */
int http_tls_relay_fd(const struct http_tls_relay *relay) MUST_USE;

/** Whether bytes of the connection wait here. */
bool http_tls_relay_holds(const struct http_tls_relay *relay) MUST_USE;

/** Ends the oldest of those whose connection has left; false: there is none. */
bool http_tls_relay_drop_oldest(struct http_worker *worker) MUST_USE;
