/* exec_request.c - one function a field. */
#include "sandboxd/dialects/exec_request.h"

#include "sandboxd/sandbox/sandboxes.h"
#include "shared/base/memory.h"
#include "shared/base/text.h"

#include <string.h>

static const double TIMEOUT_MAX_S = 86400;

/* What the fields give; `cmd` and `argv` exclude each other. */
struct parsing {
    struct command *command;
    enum exec_reply reply;
    bool has_cmd, has_argv, has_stream, detach;
};

static bool parse_cmd(struct parsing *parsing, const json_t *value, struct error *err)
{
    if (!json_is_string(value) || json_string_length(value) == 0)
        return error_set(err, ERROR_INVALID, "cmd: a shell command line, not empty");
    parsing->has_cmd = true;
    return command_add_argument(parsing->command, "/bin/bash", err) &&
           command_add_argument(parsing->command, "-c", err) &&
           command_add_argument(parsing->command, json_string_value(value), err);
}

static bool parse_argv(struct parsing *parsing, const json_t *value, struct error *err)
{
    const char *shape = "argv: an array of strings, the first the program";
    if (!json_is_array(value) || json_array_size(value) == 0 || json_string_length(json_array_get(value, 0)) == 0)
        return error_set(err, ERROR_INVALID, "%s", shape);
    parsing->has_argv = true;
    size_t index;
    const json_t *item;
    json_array_foreach(value, index, item)
    {
        if (!json_is_string(item))
            return error_set(err, ERROR_INVALID, "%s", shape);
        if (!command_add_argument(parsing->command, json_string_value(item), err))
            return error_prefix(err, "argv");
    }
    return true;
}

static bool parse_cwd(struct parsing *parsing, const json_t *value, struct error *err)
{
    if (!json_is_string(value) || json_string_value(value)[0] != '/' || json_string_length(value) > 4095)
        return error_set(err, ERROR_INVALID, "cwd: an absolute path of the sandbox, at most 4095 bytes");
    parsing->command->cwd = memory_string(json_string_value(value));
    return true;
}

static bool parse_env(struct parsing *parsing, const json_t *value, struct error *err)
{
    if (!json_is_object(value))
        return error_set(err, ERROR_INVALID, "env: an object of strings");
    const char *name;
    json_t *item;
    json_object_foreach((json_t *)(uintptr_t)value, name, item)
    {
        if (!json_is_string(item))
            return error_set(err, ERROR_INVALID, "env: \"%.64s\" is not a string", name);
        if (!command_add_variable(parsing->command, name, json_string_value(item), err))
            return false;
    }
    return true;
}

static bool parse_timeout(struct parsing *parsing, const json_t *value, struct error *err)
{
    double seconds = json_is_number(value) ? json_number_value(value) : 0;
    if (!(seconds > 0) || seconds > TIMEOUT_MAX_S)
        return error_set(err, ERROR_INVALID, "timeout: seconds, over 0, at most 86400");
    uint64_t ms = (uint64_t)(seconds * 1000.0);
    parsing->command->timeout_ms = ms ? ms : 1;
    return true;
}

static bool parse_stdin(struct parsing *parsing, const json_t *value, struct error *err)
{
    if (json_is_null(value))
        return true;
    if (!json_is_string(value))
        return error_set(err, ERROR_INVALID, "stdin: a string");
    parsing->command->with_stdin = true;
    free(parsing->command->input);
    parsing->command->input = memory_copy(json_string_value(value), json_string_length(value));
    parsing->command->input_size = json_string_length(value);
    return true;
}

static bool parse_stdin_open(struct parsing *parsing, const json_t *value, struct error *err)
{
    if (!json_is_boolean(value))
        return error_set(err, ERROR_INVALID, "stdin_open: true or false");
    parsing->command->stdin_stays_open = json_is_true(value);
    if (json_is_true(value))
        parsing->command->with_stdin = true;
    return true;
}

static bool parse_detach(struct parsing *parsing, const json_t *value, struct error *err)
{
    if (!json_is_boolean(value))
        return error_set(err, ERROR_INVALID, "detach: true or false");
    parsing->detach = json_is_true(value);
    return true;
}

static bool parse_id(struct parsing *parsing, const json_t *value, struct error *err)
{
    if (!json_is_string(value) || !process_is_id(json_string_value(value)))
        return error_set(err, ERROR_INVALID, "id: 1 to 64 of A-Z a-z 0-9 . _ -");
    return text_copy(parsing->command->id, sizeof parsing->command->id, json_string_value(value));
}

static bool parse_stream(struct parsing *parsing, const json_t *value, struct error *err)
{
    const char *text = json_is_string(value) ? json_string_value(value) : "";
    parsing->has_stream = true;
    if (strcmp(text, "ndjson") == 0)
        parsing->reply = EXEC_NDJSON;
    else if (strcmp(text, "sse") == 0)
        parsing->reply = EXEC_SSE;
    else if (strcmp(text, "none") == 0)
        parsing->reply = EXEC_ONE_JSON;
    else
        return error_set(err, ERROR_INVALID, "stream: \"ndjson\", \"sse\" or \"none\"");
    return true;
}

struct field {
    const char *name;
    bool (*parse)(struct parsing *parsing, const json_t *value, struct error *err); /* NULL: not served yet */
};

static const struct field FIELDS[] = {
    {"cmd", parse_cmd},
    {"argv", parse_argv},
    {"cwd", parse_cwd},
    {"env", parse_env},
    {"stdin", parse_stdin},
    {"stdin_open", parse_stdin_open},
    {"timeout", parse_timeout},
    {"id", parse_id},
    {"detach", parse_detach},
    {"stream", parse_stream},
    {"tty", NULL},
    {"cols", NULL},
    {"rows", NULL},
    {"user", NULL},
};

static bool parse_field(struct parsing *parsing, const char *name, const json_t *value, struct error *err)
{
    for (size_t i = 0; i < sizeof FIELDS / sizeof *FIELDS; i++) {
        if (strcmp(FIELDS[i].name, name) != 0)
            continue;
        if (!FIELDS[i].parse)
            return error_set(err, ERROR_INVALID, "%s: not served yet", name);
        return FIELDS[i].parse(parsing, value, err);
    }
    return error_set(err, ERROR_INVALID, "unknown field \"%.64s\"", name);
}

bool exec_request_parse(struct exec_request *request, const json_t *body, struct error *err)
{
    AUTO(command) *command = command_new();
    struct parsing parsing = {.command = command, .reply = EXEC_NDJSON};
    const char *name;
    json_t *value;
    json_object_foreach((json_t *)(uintptr_t)body, name, value)
    {
        if (!parse_field(&parsing, name, value, err))
            return false;
    }
    if (parsing.has_cmd == parsing.has_argv)
        return error_set(err, ERROR_INVALID, "exactly one of cmd and argv is needed");
    *request = (struct exec_request){.reply = parsing.detach ? EXEC_DETACHED : parsing.reply,
                                     .reply_chosen = parsing.detach || parsing.has_stream};
    request->command = TAKE(command);
    return true;
}
