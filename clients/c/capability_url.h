/** capability_url.h - a capability URL ("https://host:port/c/<token>/"): all that somebody needs for a sandbox that is
 *  shared with them, in one text. A place that was loaded with one gives its grant for every thread that is asked for.
 */
#pragma once

#include "clients/c/grant.h"

#define CAPABILITY_URL_BYTES 4608 /* the longest that is taken, with NUL */

/** Whether it has the form of one; what its token says is not looked at. NULL: no. */
bool capability_url_is(const char *text) MUST_USE;

/** The URL of a grant: what another needs. A secret; the caller frees. */
char *capability_url_make(const struct grant *grant) MUST_USE;

/** The grant that a URL is, unverified; ERROR_INVALID. One that its holder can refresh (its principal is a name, and
 *  there is an API key) says when that is due; any other never is. */
bool capability_url_grant(struct grant *grant, const struct place *place, struct error *err) MUST_USE;
