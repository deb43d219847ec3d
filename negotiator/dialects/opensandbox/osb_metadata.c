/* osb_metadata.c - metadata by the syntax of Kubernetes' labels. */
#include "negotiator/dialects/opensandbox/osb_codes.h"
#include "negotiator/dialects/opensandbox/osb_wish.h"
#include "shared/base/text.h"

#include <string.h>

enum { NAME_MAX_BYTES = 63, PREFIX_MAX_BYTES = 253 };

static bool is_alnum(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
}

/* 1 to 63 of letters, digits and -_. that begins and ends with a letter or digit. */
static bool is_name(const char *text)
{
    size_t length = strnlen(text, NAME_MAX_BYTES + 1);
    return text_is_made_of(text, NAME_MAX_BYTES, "-_.") && is_alnum(text[0]) && is_alnum(text[length - 1]);
}

/* "example.com": labels of a-z0-9-, with dots between them. */
static bool is_domain(const char *text, size_t length)
{
    if (length == 0 || length > PREFIX_MAX_BYTES)
        return false;
    for (size_t i = 0; i < length; i++) {
        char c = text[i], before = i ? text[i - 1] : '.', behind = i + 1 < length ? text[i + 1] : '.';
        bool is_inner =
            (c == '-' && before != '.' && behind != '.') || (c == '.' && before != '.' && i + 1 < length && i);
        if (!is_inner && (!is_alnum(c) || (c >= 'A' && c <= 'Z')))
            return false;
    }
    return true;
}

static bool is_key(const char *key)
{
    const char *slash = strchr(key, '/');
    return slash ? is_domain(key, (size_t)(slash - key)) && is_name(slash + 1) : is_name(key);
}

static bool check_pair(const char *key, const json_t *value, bool nulls, struct osb_refusal *refusal)
{
    const char *text = json_string_value(value);
    if (text_starts_with(key, "opensandbox.io/"))
        return osb_refusal_set(refusal, OSB_INVALID_LABEL, ERROR_INVALID,
                               "metadata: the prefix opensandbox.io/ is reserved (%.64s)", key);
    if (!is_key(key))
        return osb_refusal_set(refusal, OSB_INVALID_LABEL, ERROR_INVALID,
                               "metadata: \"%.64s\" is no key: 1 to 63 letters, digits and -_., the first and last a "
                               "letter or digit, perhaps behind a domain name and /",
                               key);
    if (nulls && json_is_null(value))
        return true;
    bool is_value = text && strlen(text) == json_string_length(value) && (text[0] == '\0' || is_name(text));
    return is_value || osb_refusal_set(refusal, OSB_INVALID_LABEL, ERROR_INVALID,
                                       "metadata: the value of %.64s must be a text: empty, or 1 to 63 letters, digits "
                                       "and -_., the first and last a letter or digit",
                                       key);
}

bool osb_metadata_check(json_t *metadata, bool nulls, struct osb_refusal *refusal)
{
    const char *key;
    json_t *value;
    if (!json_is_object(metadata))
        return osb_refusal_set(refusal, OSB_INVALID, ERROR_INVALID, "metadata must be an object of texts");
    json_object_foreach (metadata, key, value) {
        if (!check_pair(key, value, nulls, refusal))
            return false;
    }
    return true;
}
