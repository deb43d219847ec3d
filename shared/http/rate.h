/** rate.h - how often each client address may ask: a token bucket an address, in a table of fixed size, so that
 *  strangers cost no memory. Time is passed in, never read. Any thread. */
#pragma once

#include "shared/http/address.h"

struct http_rate;

/** A full bucket has `burst` (0: per_minute) tokens, and gets `per_minute` more a minute; per_minute > 0. The caller
 * owns it. */
struct http_rate *http_rate_new(unsigned per_minute, unsigned burst) MUST_USE;
/** NULL is allowed. */
void http_rate_free(struct http_rate *rate);
DEFINE_AUTO(http_rate)

/** Takes a token of the address (address_counted) at `now_ns`, CLOCK_BOOTTIME: 0, or when there is none the ns until
 *  there is one. Of an address that the table has forgotten the bucket is full: that happens when 8 others of its row
 *  asked, and it is always the fullest of them. */
uint64_t http_rate_take(struct http_rate *rate, const struct address *address, uint64_t now_ns) MUST_USE;

/** The same answer, and takes none. */
uint64_t http_rate_look(struct http_rate *rate, const struct address *address, uint64_t now_ns) MUST_USE;
