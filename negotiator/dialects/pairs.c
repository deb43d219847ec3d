#include "negotiator/dialects/pairs.h"

#include "shared/base/memory.h"
#include "shared/http/head.h"

#include <stdlib.h>
#include <string.h>

/* [at, at + length) is one "name=value". */
static bool add(json_t *pairs, const char *at, size_t length)
{
    const char *equals = memchr(at, '=', length);
    size_t name_length = equals ? (size_t)(equals - at) : 0;
    if (name_length == 0 || json_object_size(pairs) == PAIRS_MAX)
        return false;
    AUTO_FREE char *name = memory_array(length + 1, 1), *value = memory_array(length + 1, 1);
    return http_percent_decode(name, at, name_length, true) &&
           http_percent_decode(value, equals + 1, length - name_length - 1, true) && name[0] &&
           json_object_set_new(pairs, name, json_string(value)) == 0; /* and refuses what is no UTF-8 */
}

json_t *pairs_read(const char *text, struct error *err)
{
    json_t *pairs = json_object();
    bool good = text[0] != '\0';
    while (good && *text) {
        size_t length = strcspn(text, "&");
        good = add(pairs, text, length);
        text += length + (text[length] == '&');
    }
    if (good)
        return pairs;
    json_decref(pairs);
    (void)error_set(err, ERROR_INVALID, "metadata must be 1 to %d pairs name=value with & between, percent-encoded",
                    PAIRS_MAX);
    return NULL;
}
