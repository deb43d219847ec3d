#include "clients/c/session_frames.h"

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

char *session_frame_auth(const char *token)
{
    return dump(json_pack("{s:s, s:s}", "type", "auth", "token", token));
}

char *session_frame_start(const struct session_wanted *wanted, unsigned columns, unsigned rows, struct error *err)
{
    json_t *object = remote_command_json(wanted->command, wanted->id, err);
    if (!object)
        return NULL;
    json_object_set_new(object, "type", json_string("start"));
    json_object_set_new(object, "tty", json_boolean(wanted->tty));
    json_object_set_new(object, "bin", json_true());
    json_object_set_new(object, "ack", json_true());
    if (wanted->tty && columns && rows) {
        json_object_set_new(object, "cols", json_integer(columns));
        json_object_set_new(object, "rows", json_integer(rows));
    }
    return dump(object);
}

char *session_frame_attach(const struct session_wanted *wanted, const uint64_t offsets[static 2])
{
    const char *mode = wanted->use == SESSION_WATCH ? "watch" : "drive";
    return dump(json_pack("{s:s, s:s, s:s, s:b, s:b, s:I, s:I}", "type", "attach", "id", wanted->id, "mode", mode,
                          "bin", 1, "ack", 1, "stdout_offset", (json_int_t)offsets[0], "stderr_offset",
                          (json_int_t)offsets[1]));
}

char *session_frame_input(const struct session_piece *piece)
{
    AUTO_FREE char *coded = memory_new((piece->size + 2) / 3 * 4 + 1);
    text_base64_encode(coded, piece->data, piece->size);
    return dump(json_pack("{s:s, s:s, s:I}", "type", "stdin", "data_b64", coded, "offset", (json_int_t)piece->offset));
}

char *session_frame_eof(void)
{
    return memory_string("{\"type\":\"eof\"}");
}

char *session_frame_resize(unsigned columns, unsigned rows)
{
    return memory_printf("{\"type\":\"resize\",\"cols\":%u,\"rows\":%u}", columns, rows);
}

char *session_frame_signal(const char *name)
{
    return dump(json_pack("{s:s, s:s}", "type", "signal", "signal", name));
}

uint64_t session_frame_number(const json_t *frame, const char *name, uint64_t most, uint64_t otherwise)
{
    const json_t *value = json_object_get(frame, name);
    json_int_t number = json_is_integer(value) ? json_integer_value(value) : -1;
    return number >= 0 && (uint64_t)number <= most ? (uint64_t)number : otherwise;
}

bool session_frame_error(const json_t *frame, struct error *err)
{
    const char *code = json_string_value(json_object_get(frame, "code"));
    const char *message = json_string_value(json_object_get(frame, "message"));
    return error_set(err, code ? error_kind_of_code(code) : ERROR_INTERNAL, "%s",
                     message ? message : "the sandbox reported an error without a reason");
}
