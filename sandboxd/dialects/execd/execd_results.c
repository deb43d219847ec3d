/* execd_results.c - see execd_results.h. */
#include "sandboxd/dialects/execd/execd_results.h"

#include "shared/base/cleanup.h"
#include "shared/base/memory.h"
#include "shared/base/text.h"

#include <string.h>

enum { TEXT_MAX_BYTES = 192 * 1024 }; /* escaped and told twice, still less than EXECD_RESULTS_MAX */

/* ---- one value ---- */

static json_t *as_text(const json_t *value)
{
    if (json_is_string(value))
        return json_incref((json_t *)(uintptr_t)value);
    AUTO_FREE char *text = json_dumps(value, JSON_COMPACT | JSON_ENCODE_ANY);
    return text ? json_string(text) : NULL;
}

/* About the bytes that it takes as JSON. */
static size_t size_of(const json_t *text)
{
    const char *bytes = json_string_value(text);
    size_t size = json_string_length(text), escaped = 2;
    for (size_t i = 0; i < size; i++)
        escaped += (unsigned char)bytes[i] < 0x20 ? 6 : bytes[i] == '"' || bytes[i] == '\\' ? 2 : 1;
    return escaped;
}

static json_t *cut(json_t *text)
{
    if (json_string_length(text) <= TEXT_MAX_BYTES)
        return text;
    static const char NOTE[] = "... [cut]";
    size_t kept = text_utf8_prefix(json_string_value(text), TEXT_MAX_BYTES);
    AUTO_FREE char *whole = memory_printf("%.*s%s", (int)kept, json_string_value(text), NOTE);
    json_decref(text);
    return json_string(whole);
}

/* ---- all of them ---- */

static size_t put_plain(json_t *results, const json_t *data)
{
    const json_t *value = json_object_get(data, "text/plain");
    json_t *text = value ? as_text(value) : NULL;
    if (!text)
        return 0;
    text = cut(text);
    json_object_set(results, "text", text);
    json_object_set_new(results, "text/plain", text);
    return 2 * size_of(text);
}

json_t *execd_results(const json_t *data)
{
    json_t *results = json_object(), *value;
    size_t size = put_plain(results, data);
    const char *type;
    json_object_foreach ((json_t *)(uintptr_t)data, type, value) {
        if (json_object_get(results, type))
            continue;
        json_t *text = as_text(value);
        size_t more = text ? size_of(text) + strlen(type) + 8 : 0;
        if (text && size + more <= EXECD_RESULTS_MAX && json_object_set(results, type, text) == 0)
            size += more;
        json_decref(text);
    }
    return results;
}

void execd_results_traceback(const json_t *error, const char **texts, size_t most, size_t *count)
{
    const json_t *lines = json_object_get(error, "traceback");
    size_t all = json_array_size(lines), left_out = all > most ? all - most : 0;
    *count = all - left_out;
    for (size_t i = 0; i < *count; i++) {
        const char *text = json_string_value(json_array_get(lines, left_out + i));
        texts[i] = text ? text : "";
    }
}
