/* execute_result.c - a result as JSON. */
#include "sandboxd/dialects/execute/execute_result.h"

#include "shared/base/memory.h"

#include <string.h>

static json_t *stream_json(const struct text *text)
{
    return json_stringn(text->data ? text->data : "", text->length);
}

static json_t *make(json_t *out, json_t *errors, int exit_code, bool timed_out, const char *error,
                    const char *sandbox_id, json_t *artifacts)
{
    json_t *object = json_object();
    json_object_set_new(object, "stdout", out);
    json_object_set_new(object, "stderr", errors);
    json_object_set_new(object, "exit_code", json_integer(exit_code));
    json_object_set_new(object, "timed_out", json_boolean(timed_out));
    json_object_set_new(object, "error",
                        error ? json_stringn(error, text_utf8_prefix(error, strlen(error))) : json_null());
    json_object_set_new(object, "sandbox_id", sandbox_id ? json_string(sandbox_id) : json_null());
    json_object_set_new(object, "artifacts", artifacts ? artifacts : json_null());
    return object;
}

json_t *execute_result_bare(int exit_code, const char *error, const char *sandbox_id)
{
    return make(json_string(""), json_string(""), exit_code, false, error, sandbox_id, NULL);
}

json_t *execute_result_json(const struct execution_result *result, const char *sandbox_id, json_t *artifacts)
{
    return make(stream_json(&result->streams[OUTPUT_STDOUT]), stream_json(&result->streams[OUTPUT_STDERR]),
                result->exit_code, result->timed_out, result->error, sandbox_id, artifacts);
}

json_t *execute_result_inline(const struct execution_artifact *artifact)
{
    AUTO_FREE char *encoded = memory_new((artifact->size + 2) / 3 * (size_t)4 + 1);
    (void)text_base64_encode(encoded, artifact->data, artifact->size);
    json_t *object = json_object();
    json_object_set_new(object, "base64", json_string(encoded));
    return object;
}

static bool is_plain(unsigned char byte)
{
    return (byte >= 'a' && byte <= 'z') || (byte >= 'A' && byte <= 'Z') || (byte >= '0' && byte <= '9') ||
           (byte != 0 && strchr("-._~/", byte) != NULL);
}

char *execute_result_path(const char *execution_id, const char *name)
{
    struct text path = {0};
    text_append_format(&path, "executions/%s/artifacts/", execution_id);
    for (const char *at = name; *at; at++) {
        if (is_plain((unsigned char)*at))
            text_append(&path, at, 1);
        else
            text_append_format(&path, "%%%02X", (unsigned char)*at);
    }
    return path.data;
}
