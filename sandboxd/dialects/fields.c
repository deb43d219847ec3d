/* fields.c - one function a kind of field. */
#include "sandboxd/dialects/fields.h"

#include "shared/base/text.h"

#include <inttypes.h>
#include <string.h>

bool fields_query_switch(const struct http_request *request, const char *name, bool *value, struct error *err)
{
    const char *text = http_request_query(request, name);
    if (!text)
        return true;
    bool is_set = strcmp(text, "1") == 0 || strcmp(text, "true") == 0;
    if (!is_set && strcmp(text, "0") != 0 && strcmp(text, "false") != 0)
        return error_set(err, ERROR_INVALID, "%s: 1 or 0", name);
    *value = is_set;
    return true;
}

bool fields_query_number(const struct http_request *request, const char *name, uint64_t lowest, uint64_t highest,
                         uint64_t *value, struct error *err)
{
    const char *text = http_request_query(request, name);
    if (!text)
        return true;
    uint64_t number;
    if (!text_parse_u64(text, strlen(text), highest, &number) || number < lowest)
        return error_set(err, ERROR_INVALID, "%s: %" PRIu64 " to %" PRIu64, name, lowest, highest);
    *value = number;
    return true;
}

static bool set_unknown(const char *name, const char *const *names, struct error *err)
{
    AUTO_TEXT list = {0};
    for (size_t i = 0; names[i]; i++)
        text_append_format(&list, "%s%s", i ? ", " : "", names[i]);
    return error_set(err, ERROR_INVALID, "unknown field \"%.64s\"; there are %s", name, list.data ? list.data : "none");
}

bool fields_only(const json_t *object, const char *const *names, struct error *err)
{
    const char *name;
    json_t *value;
    json_object_foreach ((json_t *)(uintptr_t)object, name, value) {
        size_t at = 0;
        while (names[at] && strcmp(names[at], name) != 0)
            at++;
        if (!names[at])
            return set_unknown(name, names, err);
    }
    return true;
}

bool fields_flag(const json_t *object, const char *name, bool *value, struct error *err)
{
    const json_t *given = json_object_get(object, name);
    if (!given)
        return true;
    if (!json_is_boolean(given))
        return error_set(err, ERROR_INVALID, "%s: true or false", name);
    *value = json_is_true(given);
    return true;
}
