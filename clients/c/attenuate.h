/** attenuate.h - narrowing a capability without asking anybody (specs/capability.md, 4), before it is given away. */
#pragma once

#include "shared/base/error.h"

#include <stdint.h>

/** What the narrower one is to be; NULL or 0 leaves a thing as it is. */
struct attenuation {
    const char *scopes;   /* space-separated; each must be covered by what the token allows */
    int64_t expires_at_s; /* seconds since 1970 UTC; not later than the token's own end */
    const char *note;     /* 1 to 64 of A-Za-z0-9 ._:/-: for the audit; proves nothing */
};

/** The narrowed token, a secret that the caller frees. NULL: ERROR_INVALID when `token` is none, the link would widen
 * it, has nothing in it, or is the ninth. It can be used at once, not be refreshed, and goes when the token it was made
 * of is revoked. Any thread; no call, no key. */
char *attenuate(const char *token, const struct attenuation *attenuation, struct error *err)
    __attribute__((warn_unused_result));
