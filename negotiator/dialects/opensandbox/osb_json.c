#include "negotiator/dialects/opensandbox/osb_json.h"

#include <string.h>

json_t *osb_given(const json_t *object, const char *name)
{
    json_t *value = json_object_get(object, name);
    return value && !json_is_null(value) ? value : NULL;
}

const char *osb_text_of(const json_t *value)
{
    const char *text = json_string_value(value);
    return text && strlen(text) == json_string_length(value) ? text : NULL;
}
