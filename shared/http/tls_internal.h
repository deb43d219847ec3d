/** tls_internal.h - the inside of TLS, for this room only. */
#pragma once

#include "shared/http/loop.h"
#include "shared/http/tls.h"
#include "shared/http/tls_keeper.h"

#include <openssl/ssl.h>

/** A connection's state by the pair that is in force now; NULL: no memory. The caller frees it. Any thread. */
SSL *http_tls_connection(struct http_tls *tls) MUST_USE;

/** Logs the certificate and, of files, takes their changes from now on; one server does. Loop thread. */
void http_tls_follow(struct http_tls *tls, struct loop *loop);
/** Before that loop ends. */
void http_tls_unfollow(struct http_tls *tls);
