/* execd_request.c - one function a field. */
#include "sandboxd/dialects/execd/execd_request.h"

#include "shared/base/memory.h"

#include <string.h>

static const size_t LINE_MAX_BYTES = 131071, PATH_MAX_BYTES = 4095;
static const double MS_MAX = 9007199254740991.0;

/* null is as if it were missing. */
static const json_t *find(const json_t *body, const char *name)
{
    const json_t *value = json_object_get(body, name);
    return json_is_null(value) ? NULL : value;
}

bool execd_request_text(const json_t *body, const char *name, size_t most, const char **text, struct error *err)
{
    const json_t *value = find(body, name);
    if (value && (!json_is_string(value) || json_string_length(value) > most))
        return error_set(err, ERROR_INVALID, "%s: a string of at most %zu bytes", name, most);
    *text = json_string_value(value);
    return true;
}

bool execd_request_ms(const json_t *body, const char *name, uint64_t *ms, struct error *err)
{
    const json_t *value = find(body, name);
    double given = value ? json_number_value(value) : 0;
    if (value && (!json_is_number(value) || !(given >= 0) || given > MS_MAX))
        return error_set(err, ERROR_INVALID, "%s: milliseconds, 0 or more", name);
    *ms = (uint64_t)given;
    return true;
}

static bool read_flag(const json_t *body, const char *name, bool *flag, struct error *err)
{
    const json_t *value = find(body, name);
    if (value && !json_is_boolean(value))
        return error_set(err, ERROR_INVALID, "%s: true or false", name);
    *flag = json_is_true(value);
    return true;
}

static bool read_line(const json_t *body, struct command *command, struct error *err)
{
    const char *line;
    return execd_request_text(body, "command", LINE_MAX_BYTES, &line, err) &&
           execd_request_set_line(command, line ? line : "", err);
}

bool execd_request_set_line(struct command *command, const char *line, struct error *err)
{
    if (!*line || strlen(line) > LINE_MAX_BYTES)
        return error_set(err, ERROR_INVALID, "command: a shell command line, 1 to %zu bytes", LINE_MAX_BYTES);
    command->is_line = true;
    return command_add_argument(command, "/bin/bash", err) && command_add_argument(command, "-c", err) &&
           command_add_argument(command, line, err);
}

static bool read_cwd(const json_t *body, struct command *command, struct error *err)
{
    const char *cwd;
    if (!execd_request_text(body, "cwd", PATH_MAX_BYTES, &cwd, err))
        return false;
    if (cwd && *cwd)
        command->cwd = memory_string(cwd);
    return true;
}

static bool read_variables(const json_t *body, struct command *command, struct error *err)
{
    const json_t *value = find(body, "envs");
    const char *name;
    json_t *item;
    if (value && !json_is_object(value))
        return error_set(err, ERROR_INVALID, "envs: an object of strings");
    json_object_foreach ((json_t *)(uintptr_t)value, name, item) {
        if (!json_is_string(item))
            return error_set(err, ERROR_INVALID, "envs: \"%.64s\" is not a string", name);
        if (!command_add_variable(command, name, json_string_value(item), err))
            return error_prefix(err, "envs");
    }
    return true;
}

/* -1: missing. */
static bool read_id(const json_t *body, const char *name, json_int_t *id, struct error *err)
{
    const json_t *value = find(body, name);
    if (value && (!json_is_integer(value) || json_integer_value(value) < 0))
        return error_set(err, ERROR_INVALID, "%s: a number", name);
    *id = value ? json_integer_value(value) : -1;
    return true;
}

/* Commands are the sandbox's own user's, or root's where it may have that. */
static bool read_user(const json_t *body, uint32_t own_uid, struct command *command, struct error *err)
{
    json_int_t uid, gid;
    if (!read_id(body, "uid", &uid, err) || !read_id(body, "gid", &gid, err))
        return false;
    if (gid >= 0 && uid < 0)
        return error_set(err, ERROR_INVALID, "gid: needs uid");
    if (uid > 0 && uid != (json_int_t)own_uid)
        return error_set(err, ERROR_INVALID, "uid: %u, the sandbox's user, or 0, root", own_uid);
    if (gid >= 0 && gid != uid)
        return error_set(err, ERROR_INVALID, "gid: %d, as uid", (int)uid);
    command->as_root = uid == 0 && own_uid != 0;
    return true;
}

bool execd_request_parse(struct execd_request *request, const json_t *body, uint32_t own_uid, struct error *err)
{
    AUTO(command) *command = command_new();
    struct execd_request read = {0};
    if (!read_line(body, command, err) || !read_cwd(body, command, err) || !read_variables(body, command, err) ||
        !read_user(body, own_uid, command, err) || !execd_request_ms(body, "timeout", &command->timeout_ms, err) ||
        !read_flag(body, "background", &read.is_background, err))
        return false;
    command->merges = read.is_background; /* one log */
    read.command = TAKE(command);
    *request = read;
    return true;
}
