/* socket_frames.c - one function a frame. */
#include "sandboxd/dialects/native/socket/socket_frames.h"

#include "sandboxd/dialects/fields.h"
#include "sandboxd/dialects/native/events.h"
#include "sandboxd/sandbox/sandboxes.h"
#include "shared/base/clock.h"
#include "shared/base/memory.h"

#include <sodium.h>
#include <string.h>

const char *socket_mode_name(enum socket_mode mode)
{
    return mode == SOCKET_DRIVE ? "drive" : "watch";
}

/* ---- fields ---- */

static bool take_offset(const json_t *object, const char *name, uint64_t *offset, struct error *err)
{
    const json_t *value = json_object_get(object, name);
    if (!value)
        return true;
    if (!json_is_integer(value) || json_integer_value(value) < 0)
        return error_set(err, ERROR_INVALID, "%s: a byte offset", name);
    *offset = (uint64_t)json_integer_value(value);
    return true;
}

static bool take_switch(const json_t *object, const char *name, bool *to, struct error *err)
{
    const json_t *value = json_object_get(object, name);
    if (value && !json_is_boolean(value))
        return error_set(err, ERROR_INVALID, "%s: true or false", name);
    *to = json_is_true(value);
    return true;
}

/* ---- frames ---- */

static bool parse_auth(struct socket_frame *frame, const json_t *object, struct error *err)
{
    static const char *const NAMES[] = {"type", "token", NULL};
    const json_t *token = json_object_get(object, "token");
    if (!fields_only(object, NAMES, err))
        return false;
    if (!json_is_string(token) || json_string_length(token) == 0)
        return error_set(err, ERROR_INVALID, "token: a capability");
    frame->token = memory_string(json_string_value(token));
    return true;
}

static bool parse_start(struct socket_frame *frame, const json_t *object, struct error *err)
{
    return exec_request_parse_frame(&frame->start, object, err);
}

static bool take_mode(const json_t *object, enum socket_mode *mode, struct error *err)
{
    const json_t *value = json_object_get(object, "mode");
    const char *text = value ? json_string_value(value) : "drive";
    *mode = text_equal(text, "watch") ? SOCKET_WATCH : SOCKET_DRIVE;
    return text_equal(text, socket_mode_name(*mode)) || error_set(err, ERROR_INVALID, "mode: \"drive\" or \"watch\"");
}

static bool parse_attach(struct socket_frame *frame, const json_t *object, struct error *err)
{
    static const char *const NAMES[] = {"type", "id", "stdout_offset", "stderr_offset", "mode", "bin", "ack", NULL};
    const json_t *id = json_object_get(object, "id");
    if (!fields_only(object, NAMES, err))
        return false;
    if (!json_is_string(id) || !process_is_id(json_string_value(id)) ||
        !text_copy(frame->id, sizeof frame->id, json_string_value(id)))
        return error_set(err, ERROR_INVALID, "id: 1 to 64 of A-Z a-z 0-9 . _ -, not . or ..");
    return take_offset(object, "stdout_offset", &frame->offsets[OUTPUT_STDOUT], err) &&
           take_offset(object, "stderr_offset", &frame->offsets[OUTPUT_STDERR], err) &&
           take_mode(object, &frame->mode, err) && take_switch(object, "bin", &frame->binary, err) &&
           take_switch(object, "ack", &frame->acks, err);
}

static bool take_base64(struct socket_frame *frame, const json_t *value, struct error *err)
{
    size_t length = json_string_length(value), room = length / 4 * 3 + 1;
    AUTO_FREE uint8_t *data = memory_new(room);
    if (!json_is_string(value) || !text_base64_decode(data, room, &frame->size, json_string_value(value), length))
        return error_set(err, ERROR_INVALID, "data_b64: base64 with padding (RFC 4648, 4)");
    frame->data = TAKE(data);
    return true;
}

static bool parse_input(struct socket_frame *frame, const json_t *object, struct error *err)
{
    static const char *const NAMES[] = {"type", "data", "data_b64", "offset", NULL};
    const json_t *data = json_object_get(object, "data"), *encoded = json_object_get(object, "data_b64");
    frame->offset = SOCKET_OFFSET_NONE;
    if (!fields_only(object, NAMES, err) || !take_offset(object, "offset", &frame->offset, err))
        return false;
    if (!data == !encoded)
        return error_set(err, ERROR_INVALID, "exactly one of data and data_b64 is needed");
    if (encoded)
        return take_base64(frame, encoded, err);
    if (!json_is_string(data))
        return error_set(err, ERROR_INVALID, "data: a string");
    frame->size = json_string_length(data);
    frame->data = memory_copy(json_string_value(data), frame->size);
    return true;
}

static bool parse_bare(struct socket_frame *frame UNUSED, const json_t *object, struct error *err)
{
    static const char *const NAMES[] = {"type", NULL};
    return fields_only(object, NAMES, err);
}

static bool parse_resize(struct socket_frame *frame, const json_t *object, struct error *err)
{
    static const char *const NAMES[] = {"type", "cols", "rows", NULL};
    return fields_only(object, NAMES, err) &&
           exec_request_cells(json_object_get(object, "cols"), "cols", &frame->columns, err) &&
           exec_request_cells(json_object_get(object, "rows"), "rows", &frame->rows, err);
}

static bool parse_signal(struct socket_frame *frame, const json_t *object, struct error *err)
{
    static const char *const NAMES[] = {"type", "signal", NULL};
    if (!fields_only(object, NAMES, err))
        return false;
    return events_signal_parse(json_object_get(object, "signal"), &frame->signal) ||
           error_set(err, ERROR_INVALID, "signal: a name like \"TERM\" or a number from 1 to 64");
}

static const struct {
    const char *name;
    bool (*parse)(struct socket_frame *frame, const json_t *object, struct error *err);
} TYPES[] = {
    [SOCKET_AUTH] = {"auth", parse_auth},       [SOCKET_START] = {"start", parse_start},
    [SOCKET_ATTACH] = {"attach", parse_attach}, [SOCKET_INPUT] = {"stdin", parse_input},
    [SOCKET_EOF] = {"eof", parse_bare},         [SOCKET_RESIZE] = {"resize", parse_resize},
    [SOCKET_SIGNAL] = {"signal", parse_signal}, [SOCKET_PING] = {"ping", parse_bare},
};

static bool parse_object(struct socket_frame *frame, const json_t *object, struct error *err)
{
    const char *type = json_string_value(json_object_get(object, "type"));
    if (!type)
        return error_set(err, ERROR_INVALID, "a frame is a JSON object with a \"type\"");
    for (size_t i = 0; i < sizeof TYPES / sizeof *TYPES; i++) {
        if (strcmp(TYPES[i].name, type) != 0)
            continue;
        frame->type = (enum socket_frame_type)i;
        return TYPES[i].parse(frame, object, err) || error_prefix(err, "%s", type);
    }
    return error_set(err, ERROR_INVALID, "unknown type \"%.32s\"", type);
}

/* A key may well send NUL (Ctrl-Space); nothing else may hold one, as all other texts become C strings. */
static json_t *load_with_nul(const char *text, size_t size)
{
    json_error_t ignored;
    json_t *object = json_loadb(text, size, JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL, &ignored);
    const json_t *type = json_object_get(object, "type");
    if (text_equal(json_string_value(type), "stdin") && json_string_length(type) == strlen("stdin"))
        return object;
    json_decref(object);
    return NULL;
}

bool socket_frame_parse(struct socket_frame *frame, const char *text, size_t size, struct error *err)
{
    json_error_t wrong; /* its text quotes the frame, which may hold a secret */
    json_t *object = json_loadb(text, size, JSON_REJECT_DUPLICATES, &wrong);
    if (!object && json_error_code(&wrong) == json_error_null_character)
        object = load_with_nul(text, size);
    if (!object)
        return error_set(err, ERROR_INVALID, "the frame's JSON %s at column %d",
                         json_error_code(&wrong) == json_error_duplicate_key ? "has a key twice" : "is not valid",
                         wrong.column);
    struct socket_frame parsed = {0};
    bool good = parse_object(&parsed, object, err);
    json_decref(object);
    if (good)
        *frame = parsed;
    else
        socket_frame_done(&parsed);
    return good;
}

void socket_frame_done(struct socket_frame *frame)
{
    if (frame->token)
        sodium_memzero(frame->token, strlen(frame->token));
    free(TAKE(frame->token));
    command_free(TAKE(frame->start.command));
    free(TAKE(frame->data));
}

/* ---- ours ---- */

static void append_object(struct text *to, json_t *object)
{
    AUTO_FREE char *dumped = json_dumps(object, JSON_COMPACT | JSON_PRESERVE_ORDER);
    text_append_string(to, dumped ? dumped : "{}");
    json_decref(object);
}

static json_t *scopes_json(const struct scope_set *set)
{
    char text[SCOPE_TEXT_BYTES];
    scope_format(set, text);
    json_t *list = json_array();
    for (const char *atom = text; *atom;) {
        size_t length = strcspn(atom, " ");
        json_array_append_new(list, json_stringn(atom, length));
        atom += length + (atom[length] == ' ');
    }
    return list;
}

void socket_print_auth_ok(struct text *to, const char *session_id, const struct capability_claims *claims)
{
    char time[CLOCK_TEXT_BYTES];
    clock_format(time, claims->expires_at * 1000);
    append_object(to, json_pack("{s:s,s:s,s:o,s:s}", "type", "auth_ok", "session_id", session_id, "scopes",
                                scopes_json(&claims->scopes), "expires_at", time));
}

void socket_print_started(struct text *to, const struct process_view *view, enum socket_mode mode,
                          const uint64_t offsets[OUTPUT_STREAMS])
{
    json_t *object = json_pack("{s:s,s:s,s:i}", "type", "started", "id", view->id, "pid", view->pid);
    events_put_terminal(object, view);
    json_object_set_new(object, "mode", json_string(socket_mode_name(mode)));
    json_object_set_new(object, "stdout_offset", json_integer((json_int_t)offsets[OUTPUT_STDOUT]));
    json_object_set_new(object, "stderr_offset", json_integer((json_int_t)offsets[OUTPUT_STDERR]));
    append_object(to, object);
}

void socket_print_stdin_ack(struct text *to, uint64_t stdin_offset)
{
    text_append_format(to, "{\"type\":\"stdin_ack\",\"stdin_offset\":%llu}", (unsigned long long)stdin_offset);
}

void socket_print_pong(struct text *to)
{
    text_append_string(to, "{\"type\":\"pong\"}");
}

void socket_print_expiring(struct text *to, unsigned in)
{
    text_append_format(to, "{\"type\":\"expiring\",\"in\":%u}", in);
}
