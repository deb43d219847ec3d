/* exec_request.c - one function a field. */
#include "sandboxd/dialects/native/exec_request.h"

#include "sandboxd/sandbox/sandboxes.h"
#include "shared/base/memory.h"
#include "shared/base/text.h"

#include <string.h>

enum { COLUMNS_DEFAULT = 80, ROWS_DEFAULT = 24 };
static const double TIMEOUT_MAX_S = 86400;

/* Who takes a field: the body of POST /exec, the frame "start" of a WebSocket. */
enum form { OF_EXEC = 1 << 0, OF_FRAME = 1 << 1 };

/* What the fields give; `cmd` and `argv` exclude each other. */
struct parsing {
    enum form form;
    struct command *command;
    enum exec_reply reply;
    bool has_cmd, has_argv, has_stream, detach;
    bool binary, acks;
};

bool exec_request_cells(const json_t *value, const char *name, unsigned *cells, struct error *err)
{
    json_int_t given = json_is_integer(value) ? json_integer_value(value) : 0;
    if (given < 1 || given > FRONT_INIT_CELLS_MAX)
        return error_set(err, ERROR_INVALID, "%s: 1 to %d", name, FRONT_INIT_CELLS_MAX);
    *cells = (unsigned)given;
    return true;
}

static bool parse_cmd(struct parsing *parsing, const json_t *value, struct error *err)
{
    if (!json_is_string(value) || json_string_length(value) == 0)
        return error_set(err, ERROR_INVALID, "cmd: a shell command line, not empty");
    parsing->has_cmd = parsing->command->is_line = true;
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
    json_array_foreach (value, index, item) {
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
    json_object_foreach ((json_t *)(uintptr_t)value, name, item) {
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

static bool parse_switch(const json_t *value, const char *name, bool *to, struct error *err)
{
    if (!json_is_boolean(value))
        return error_set(err, ERROR_INVALID, "%s: true or false", name);
    *to = json_is_true(value);
    return true;
}

static bool parse_stdin_open(struct parsing *parsing, const json_t *value, struct error *err)
{
    bool stays_open = false;
    if (!parse_switch(value, "stdin_open", &stays_open, err))
        return false;
    parsing->command->stdin_stays_open = stays_open;
    if (stays_open || parsing->form == OF_FRAME) /* which has no `stdin` that could be all of it */
        parsing->command->with_stdin = stays_open;
    return true;
}

static bool parse_tty(struct parsing *parsing, const json_t *value, struct error *err)
{
    return parse_switch(value, "tty", &parsing->command->terminal, err);
}

static bool parse_stderr(struct parsing *parsing, const json_t *value, struct error *err)
{
    parsing->command->merges = json_is_string(value) && strcmp(json_string_value(value), "stdout") == 0;
    return parsing->command->merges || error_set(err, ERROR_INVALID, "stderr: \"stdout\", where it goes then too");
}

static bool parse_columns(struct parsing *parsing, const json_t *value, struct error *err)
{
    return exec_request_cells(value, "cols", &parsing->command->columns, err);
}

static bool parse_rows(struct parsing *parsing, const json_t *value, struct error *err)
{
    return exec_request_cells(value, "rows", &parsing->command->rows, err);
}

static bool parse_binary(struct parsing *parsing, const json_t *value, struct error *err)
{
    return parse_switch(value, "bin", &parsing->binary, err);
}

static bool parse_acks(struct parsing *parsing, const json_t *value, struct error *err)
{
    return parse_switch(value, "ack", &parsing->acks, err);
}

static bool parse_detach(struct parsing *parsing, const json_t *value, struct error *err)
{
    return parse_switch(value, "detach", &parsing->detach, err);
}

static bool parse_id(struct parsing *parsing, const json_t *value, struct error *err)
{
    if (!json_is_string(value) || !process_is_id(json_string_value(value)))
        return error_set(err, ERROR_INVALID, "id: 1 to 64 of A-Z a-z 0-9 . _ -, not . or ..");
    if (!command_check_client_id(json_string_value(value), err))
        return error_prefix(err, "id");
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

/* Whether the sandbox allows it is seen when it is reached. */
static bool parse_user(struct parsing *parsing, const json_t *value, struct error *err)
{
    const char *name = json_is_string(value) ? json_string_value(value) : "";
    parsing->command->as_root = strcmp(name, "root") == 0;
    return parsing->command->as_root || strcmp(name, "user") == 0 ||
           error_set(err, ERROR_INVALID, "user: \"user\" (the sandbox's own, the default) or \"root\"");
}

static bool parse_nothing(struct parsing *parsing UNUSED, const json_t *value UNUSED, struct error *err UNUSED)
{
    return true;
}

struct field {
    const char *name;
    unsigned forms;
    bool (*parse)(struct parsing *parsing, const json_t *value, struct error *err);
};

static const struct field FIELDS[] = {
    {"type", OF_FRAME, parse_nothing},
    {"cmd", OF_EXEC | OF_FRAME, parse_cmd},
    {"argv", OF_EXEC | OF_FRAME, parse_argv},
    {"cwd", OF_EXEC | OF_FRAME, parse_cwd},
    {"env", OF_EXEC | OF_FRAME, parse_env},
    {"stdin", OF_EXEC, parse_stdin},
    {"stdin_open", OF_EXEC | OF_FRAME, parse_stdin_open},
    {"timeout", OF_EXEC | OF_FRAME, parse_timeout},
    {"id", OF_EXEC | OF_FRAME, parse_id},
    {"detach", OF_EXEC, parse_detach},
    {"stream", OF_EXEC, parse_stream},
    {"tty", OF_EXEC | OF_FRAME, parse_tty},
    {"cols", OF_EXEC | OF_FRAME, parse_columns},
    {"rows", OF_EXEC | OF_FRAME, parse_rows},
    {"bin", OF_FRAME, parse_binary},
    {"ack", OF_FRAME, parse_acks},
    {"user", OF_EXEC | OF_FRAME, parse_user},
    {"stderr", OF_EXEC | OF_FRAME, parse_stderr},
};

static bool parse_field(struct parsing *parsing, const char *name, const json_t *value, struct error *err)
{
    for (size_t i = 0; i < sizeof FIELDS / sizeof *FIELDS; i++) {
        if (!(FIELDS[i].forms & parsing->form) || strcmp(FIELDS[i].name, name) != 0)
            continue;
        return FIELDS[i].parse(parsing, value, err);
    }
    return error_set(err, ERROR_INVALID, "unknown field \"%.64s\"", name);
}

/* A terminal's stdin is the terminal: it ends when the terminal does. */
static bool finish_terminal(struct command *command, struct error *err)
{
    if (!command->terminal && (command->columns || command->rows))
        return error_set(err, ERROR_INVALID, "cols and rows are a terminal's: they need tty");
    if (!command->terminal)
        return true;
    command->merges = false; /* it has one stream anyway */
    command->with_stdin = true;
    command->stdin_stays_open = true;
    command->columns = command->columns ? command->columns : COLUMNS_DEFAULT;
    command->rows = command->rows ? command->rows : ROWS_DEFAULT;
    return true;
}

static bool parse_fields(struct parsing *parsing, const json_t *body, struct error *err)
{
    const char *name;
    json_t *value;
    json_object_foreach ((json_t *)(uintptr_t)body, name, value) {
        if (!parse_field(parsing, name, value, err))
            return false;
    }
    return finish_terminal(parsing->command, err);
}

bool exec_request_parse(struct exec_request *request, const json_t *body, struct error *err)
{
    AUTO(command) *command = command_new();
    struct parsing parsing = {.form = OF_EXEC, .command = command, .reply = EXEC_NDJSON};
    if (!parse_fields(&parsing, body, err))
        return false;
    if (parsing.has_cmd == parsing.has_argv)
        return error_set(err, ERROR_INVALID, "exactly one of cmd and argv is needed");
    *request = (struct exec_request){.reply = parsing.detach ? EXEC_DETACHED : parsing.reply,
                                     .reply_chosen = parsing.detach || parsing.has_stream};
    request->command = TAKE(command);
    return true;
}

bool exec_request_parse_frame(struct exec_frame *frame, const json_t *body, struct error *err)
{
    AUTO(command) *command = command_new();
    command->terminal = true;
    command->with_stdin = true;
    command->stdin_stays_open = true;
    struct parsing parsing = {.form = OF_FRAME, .command = command};
    if (!parse_fields(&parsing, body, err))
        return false;
    if (parsing.has_cmd && parsing.has_argv)
        return error_set(err, ERROR_INVALID, "cmd and argv exclude each other");
    if (!parsing.has_cmd && !parsing.has_argv && !command_set_login_shell(command, err))
        return false;
    *frame = (struct exec_frame){.command = TAKE(command), .binary = parsing.binary, .acks = parsing.acks};
    return true;
}
