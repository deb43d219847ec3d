/** tls_fixture.h - gives a test's server a certificate when the test runs over TLS. */
#pragma once

#include "client.h"
#include "shared/http/server.h"
#include "shared/http/tls.h"

UNUSED_HELPER static struct http_tls *tls_fixture_made(const struct tls_made *made)
{
    struct error err = {0};
    const struct http_tls_pem pem = {made->cert, made->key, made->cert_size, made->key_size};
    struct http_tls *tls = http_tls_new(&pem, &err);
    if (tls == NULL) {
        fprintf(stderr, "no TLS: %s\n", err.message);
        exit(1);
    }
    return tls;
}

/* The same one for all servers of the program; it stays. */
UNUSED_HELPER static struct http_tls *tls_fixture(void)
{
    static struct http_tls *tls;
    struct tls_made made;
    if (tls == NULL && client_is_tls()) {
        tls_make(&made, "localhost", 0);
        tls = tls_fixture_made(&made);
    }
    return tls;
}
