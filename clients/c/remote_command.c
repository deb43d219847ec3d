#include "clients/c/remote_command.h"

#include "clients/c/call.h"

#include "shared/base/memory.h"

#include <stdlib.h>
#include <string.h>

static const unsigned END_MS = 3000;

static json_t *words(const char *const *arguments, struct error *err)
{
    json_t *list = json_array();
    for (size_t i = 0; arguments[i]; i++) {
        if (json_array_append_new(list, json_string(arguments[i])) == 0)
            continue;
        json_decref(list);
        error_set(err, ERROR_INVALID, "argument %zu of the command is not UTF-8, and other bytes cannot be passed", i);
        return NULL;
    }
    return list;
}

static json_t *environment(const char *const *variables, struct error *err)
{
    json_t *object = json_object();
    for (size_t i = 0; variables[i]; i++) {
        const char *equals = strchr(variables[i], '=');
        AUTO_FREE char *name = memory_copy(variables[i], equals ? (size_t)(equals - variables[i]) : 0);
        if (equals && json_object_set_new(object, name, json_string(equals + 1)) == 0)
            continue;
        json_decref(object);
        error_set(err, ERROR_INVALID, "environment variable %zu is not NAME=VALUE in UTF-8", i + 1);
        return NULL;
    }
    return object;
}

/* Takes the reference; a member that could not be made is NULL. */
static bool put(json_t *object, const char *name, json_t *member)
{
    return json_object_set_new(object, name, member) == 0;
}

static bool put_all(json_t *object, const struct remote_command *command, struct error *err)
{
    if (command->arguments && !put(object, "argv", words(command->arguments, err)))
        return false;
    if (command->variables && !put(object, "env", environment(command->variables, err)))
        return false;
    if (command->cwd && !put(object, "cwd", json_string(command->cwd)))
        return error_set(err, ERROR_INVALID, "the folder is not UTF-8, and other bytes cannot be passed");
    if (command->user && !put(object, "user", json_string(command->user)))
        return error_set(err, ERROR_INVALID, "the user is not UTF-8, and other bytes cannot be passed");
    return true;
}

json_t *remote_command_json(const struct remote_command *command, const char *id, struct error *err)
{
    json_t *object = json_pack("{s:s, s:b}", "id", id, "stdin_open", command->has_stdin);
    if (command->timeout_s > 0)
        put(object, "timeout", json_real(command->timeout_s));
    if (put_all(object, command, err))
        return object;
    json_decref(object);
    return NULL;
}

bool remote_command_check(const struct remote_command *command, struct error *err)
{
    json_t *object = remote_command_json(command, "", err);
    json_decref(object);
    return object != NULL;
}

bool remote_command_start(const struct grant *grant, const struct remote_command *command, const char *id,
                          struct error *err)
{
    AUTO_FREE char *url = memory_printf("%s/exec", grant->http);
    json_t *body = remote_command_json(command, id, err);
    if (!body)
        return false;
    put(body, "detach", json_true());
    struct call call = {.method = "POST", .url = url, .credential = grant->token, .body = body};
    bool started = call_json(&call, NULL, NULL, err);
    json_decref(body);
    return started;
}

void remote_command_end(const struct grant *grant, const char *id)
{
    AUTO_FREE char *url = memory_printf("%s/processes/%s", grant->http, id);
    struct call call = {.method = "DELETE", .url = url, .credential = grant->token, .timeout_ms = END_MS};
    (void)!call_json(&call, NULL, NULL, NULL);
}
