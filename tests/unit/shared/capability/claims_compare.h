/** claims_compare.h - what the claims reader read, against jansson on the same bytes; for its test and its fuzzer. */
#pragma once

#include "shared/capability/claims.h"

#include <jansson.h>
#include <string.h>

static inline bool claims_same_text(const json_t *object, const char *name, const char *read, size_t *seen)
{
    const char *text = json_string_value(json_object_get(object, name));
    ++*seen;
    return text && strcmp(text, read) == 0;
}

static inline bool claims_same_time(const json_t *object, const char *name, int64_t read, size_t *seen)
{
    const json_t *value = json_object_get(object, name);
    ++*seen;
    return json_is_integer(value) && json_integer_value(value) == read;
}

static inline bool claims_same_scope(const json_t *object, const struct scope_set *read, size_t *seen)
{
    const char *text = json_string_value(json_object_get(object, "scope"));
    struct scope_set set;
    char one[SCOPE_TEXT_BYTES], other[SCOPE_TEXT_BYTES];
    ++*seen;
    if (!text || !scope_parse(&set, text, strlen(text), SCOPE_UNKNOWN_DROPPED, NULL))
        return false;
    scope_format(&set, one);
    scope_format(read, other);
    return strcmp(one, other) == 0;
}

/** Whether jansson takes the bytes too, with these values and no others. */
static inline bool claims_agree(const struct capability_claims *read, const char *json, size_t length)
{
    json_t *object = json_loadb(json, length, JSON_REJECT_DUPLICATES, NULL);
    size_t seen = 0;
    const json_t *forever = json_object_get(object, "long");
    bool agree =
        claims_same_text(object, "iss", read->issuer, &seen) &&
        claims_same_text(object, "aud", read->sandbox_id, &seen) &&
        claims_same_text(object, "sub", read->principal, &seen) && claims_same_text(object, "jti", read->jti, &seen) &&
        claims_same_text(object, "fam", read->family, &seen) &&
        claims_same_text(object, "thread_id", read->thread_id, &seen) &&
        claims_same_text(object, "lease", read->lease, &seen) && claims_same_text(object, "act", read->actor, &seen) &&
        claims_same_time(object, "iat", read->issued_at, &seen) &&
        claims_same_time(object, "exp", read->expires_at, &seen) && claims_same_scope(object, &read->scopes, &seen) &&
        (forever ? json_is_true(forever) && read->long_lived : !read->long_lived) &&
        json_object_size(object) == seen + (forever ? 1 : 0);
    json_decref(object);
    return agree;
}
