#include "clients/c/terminal_frames.h"

#include "shared/base/memory.h"
#include "shared/base/text.h"

#include <sodium.h>
#include <stdlib.h>
#include <string.h>

/* Takes the reference. */
static char *dump(json_t *object)
{
    char *text = json_dumps(object, JSON_COMPACT);
    json_decref(object);
    return text;
}

char *terminal_frame_auth(const char *token)
{
    return dump(json_pack("{s:s, s:s}", "type", "auth", "token", token));
}

/* Both NULL when a text is not UTF-8. */
static json_t *words(const char *const *arguments)
{
    json_t *list = json_array();
    for (size_t i = 0; arguments[i]; i++) {
        if (json_array_append_new(list, json_string(arguments[i])) == 0)
            continue;
        json_decref(list);
        return NULL;
    }
    return list;
}

static json_t *environment(const char *const *variables)
{
    json_t *object = json_object();
    for (size_t i = 0; variables[i]; i++) {
        const char *equals = strchr(variables[i], '=');
        AUTO_FREE char *name = memory_copy(variables[i], equals ? (size_t)(equals - variables[i]) : 0);
        if (equals && json_object_set_new(object, name, json_string(equals + 1)) == 0)
            continue;
        json_decref(object);
        return NULL;
    }
    return object;
}

char *terminal_frame_start(const struct terminal_wanted *wanted, unsigned columns, unsigned rows)
{
    json_t *object =
        json_pack("{s:s, s:s, s:b, s:b, s:b}", "type", "start", "id", wanted->id, "tty", 1, "bin", 1, "ack", 1);
    bool good = true;
    if (wanted->arguments)
        good = json_object_set_new(object, "argv", words(wanted->arguments)) == 0;
    if (good && wanted->variables)
        good = json_object_set_new(object, "env", environment(wanted->variables)) == 0;
    if (good && wanted->cwd)
        good = json_object_set_new(object, "cwd", json_string(wanted->cwd)) == 0;
    if (columns && rows) {
        json_object_set_new(object, "cols", json_integer(columns));
        json_object_set_new(object, "rows", json_integer(rows));
    }
    AUTO_FREE char *text = dump(object);
    return good ? TAKE(text) : NULL;
}

char *terminal_frame_attach(const struct terminal_wanted *wanted, const uint64_t offsets[static 2])
{
    const char *mode = wanted->use == TERMINAL_WATCH ? "watch" : "drive";
    return dump(json_pack("{s:s, s:s, s:s, s:b, s:b, s:I, s:I}", "type", "attach", "id", wanted->id, "mode", mode,
                          "bin", 1, "ack", 1, "stdout_offset", (json_int_t)offsets[0], "stderr_offset",
                          (json_int_t)offsets[1]));
}

char *terminal_frame_input(const struct terminal_piece *piece)
{
    AUTO_FREE char *coded = memory_new((piece->size + 2) / 3 * 4 + 1);
    text_base64_encode(coded, piece->data, piece->size);
    return dump(json_pack("{s:s, s:s, s:I}", "type", "stdin", "data_b64", coded, "offset", (json_int_t)piece->offset));
}

char *terminal_frame_eof(void)
{
    return memory_string("{\"type\":\"eof\"}");
}

char *terminal_frame_resize(unsigned columns, unsigned rows)
{
    return memory_printf("{\"type\":\"resize\",\"cols\":%u,\"rows\":%u}", columns, rows);
}

char *terminal_frame_signal(const char *name)
{
    return dump(json_pack("{s:s, s:s}", "type", "signal", "signal", name));
}

uint64_t terminal_frame_number(const json_t *frame, const char *name, uint64_t most, uint64_t otherwise)
{
    const json_t *value = json_object_get(frame, name);
    json_int_t number = json_is_integer(value) ? json_integer_value(value) : -1;
    return number >= 0 && (uint64_t)number <= most ? (uint64_t)number : otherwise;
}

bool terminal_frame_error(const json_t *frame, struct error *err)
{
    const char *code = json_string_value(json_object_get(frame, "code"));
    const char *message = json_string_value(json_object_get(frame, "message"));
    return error_set(err, code ? error_kind_of_code(code) : ERROR_INTERNAL, "%s",
                     message ? message : "the sandbox reported an error without a reason");
}
