/** http_guard.h - reads a client's HTTP/1 requests (libhttp-parser) and lets through, byte for byte, only what it
 *  understood and whose host is allowed: every request of a connection, also pipelined ones. Stricter than RFC 9112
 *  where two readers could take a request for two different ones: no folded lines, no bare CR or LF, one Host, no
 *  Content-Length beside Transfer-Encoding, no transfer coding but chunked, no trailers, no Upgrade, no CONNECT. */
#pragma once

#include "sandboxd/egress/host_name.h"
#include "shared/base/error.h"
#include "shared/base/text.h"

#include <stdint.h>

#define HTTP_GUARD_HEAD_BYTES 16384

struct http_guard;

/** is_allowed(cookie, name) is asked for the host of every request (host_name_read passed it). `port`: the one that the
 *  connection goes to; Host may name no other. The caller owns it. */
struct http_guard *http_guard_new(uint16_t port, bool (*is_allowed)(void *cookie, const char *name),
                                  void *cookie) MUST_USE;
/** NULL is allowed. */
void http_guard_free(struct http_guard *guard);
DEFINE_AUTO(http_guard)

/** Reads on, and appends what may go to the server to `out`. false: ERROR_INVALID (no request as above),
 *  ERROR_TOO_LARGE (a head of over HTTP_GUARD_HEAD_BYTES), ERROR_FORBIDDEN (the host); what was appended before that
 *  belongs to earlier requests. Not called again after that. */
bool http_guard_read(struct http_guard *guard, const void *data, size_t size, struct text *out,
                     struct error *err) MUST_USE;

/** Whether a request's head went out yet. */
bool http_guard_has_begun(const struct http_guard *guard) MUST_USE;
