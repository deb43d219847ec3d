#include "clients/c/attenuate.h"

#include "shared/base/memory.h"
#include "shared/capability/capability.h"

#include <sodium.h>

char *attenuate(const char *token, const struct attenuation *attenuation, struct error *err)
{
    char narrowed[CAPABILITY_TEXT_BYTES];
    const struct capability_link link = {
        .scope = attenuation->scopes, .expires_at = attenuation->expires_at_s, .note = attenuation->note};
    if (!capability_attenuate(narrowed, token, &link, err))
        return NULL;
    char *made = memory_string(narrowed);
    sodium_memzero(narrowed, sizeof narrowed);
    return made;
}
