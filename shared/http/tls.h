/** tls.h - who a server says it is by TLS: a certificate chain and its private key, from two files that may change
 * while it serves. */
#pragma once

#include "shared/base/cleanup.h"
#include "shared/base/error.h"

#include <stdbool.h>
#include <stddef.h>

enum { HTTP_TLS_PEM_MAX_BYTES = 64 * 1024, HTTP_TLS_FINGERPRINT_BYTES = 65 };

struct http_tls;

/** A pair as PEM: the server's certificate and behind it the chain; its key, without a passphrase. */
struct http_tls_pem {
    const char *cert, *key;
    size_t cert_size, key_size;
};

/** TLS 1.2 and 1.3, HTTP/1.1 alone, no tickets, no renegotiation. ERROR_INVALID says what is wrong with the pair, never
 *  quoting it. The caller owns it; it outlives the servers that have it. */
struct http_tls *http_tls_new(const struct http_tls_pem *pem, struct error *err) MUST_USE;

/** The same from files, read now, and a process that goes on reading them with the rights that the caller still has
 *  (tls_keeper.h): before threads start and rights are given up. Whoever replaces the files needs to tell nobody: the
 *  first server that is given this takes what is new within a few seconds, for connections that come from then on. A
 *  pair that does not fit, or files that cannot be read, change nothing and are logged. ERROR_INVALID, ERROR_NOT_FOUND.
 */
struct http_tls *http_tls_open(const char *cert_path, const char *key_path, struct error *err) MUST_USE;

/** Another pair for connections from now on; ERROR_INVALID: the old one stays. Any thread. */
bool http_tls_replace(struct http_tls *tls, const struct http_tls_pem *pem, struct error *err) MUST_USE;

/** SHA-256 of the server's own certificate (DER), 64 hexadecimal digits. Any thread. */
void http_tls_fingerprint(struct http_tls *tls, char to[static HTTP_TLS_FINGERPRINT_BYTES]);

/** Ends the reading process too. NULL is allowed. */
void http_tls_free(struct http_tls *tls);
DEFINE_AUTO(http_tls)
