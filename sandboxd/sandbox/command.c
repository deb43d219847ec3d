/* command.c - arguments, variables and their defaults. */
#include "sandboxd/sandbox/command.h"

#include "shared/base/memory.h"
#include "shared/base/text.h"

#include <ctype.h>
#include <sodium.h>
#include <stdio.h>
#include <string.h>

static const char *const DEFAULT_VARIABLES[] = {
    "HOME=/workspace",
    "USER=user",
    "LOGNAME=user",
    "SHELL=/bin/bash",
    "PATH=/usr/local/bin:/usr/bin:/bin:/usr/local/sbin:/usr/sbin:/sbin",
    "LANG=C.UTF-8",
    "TMPDIR=/tmp",
};
static const char DEFAULT_TERM[] = "TERM=xterm-256color"; /* of a terminal */
enum { DEFAULT_COUNT = sizeof DEFAULT_VARIABLES / sizeof *DEFAULT_VARIABLES };

struct command *command_new(void)
{
    struct command *command = memory_new(sizeof *command);
    command->arguments = memory_array(1, sizeof *command->arguments);
    command->variables = memory_array(1, sizeof *command->variables);
    return command;
}

static void free_texts(char **texts)
{
    for (size_t i = 0; texts[i]; i++)
        free(texts[i]);
    free(texts);
}

void command_free(struct command *command)
{
    if (!command)
        return;
    free(command->cwd);
    free(command->input);
    free(command->origin);
    free_texts(command->arguments);
    free_texts(command->variables);
    free(command);
}

/* Takes `text`. Room doubles at each power of two. */
static void append(char ***texts, size_t *count, char *text)
{
    size_t used = *count + 2;
    if ((used & (used - 1)) == 0 || *count == 0)
        *texts = memory_resize(*texts, used * 2 * sizeof **texts);
    (*texts)[(*count)++] = text;
    (*texts)[*count] = NULL;
}

bool command_add_argument(struct command *command, const char *text, struct error *err)
{
    if (command->argument_count >= COMMAND_ARGUMENTS_MAX)
        return error_set(err, ERROR_INVALID, "more than %d arguments", COMMAND_ARGUMENTS_MAX);
    append(&command->arguments, &command->argument_count, memory_string(text));
    return true;
}

static bool is_name(const char *name)
{
    if (!text_is_made_of(name, 256, "_"))
        return false;
    return !isdigit((unsigned char)*name);
}

bool command_add_variable(struct command *command, const char *name, const char *value, struct error *err)
{
    if (!is_name(name))
        return error_set(err, ERROR_INVALID, "env: \"%.64s\" is not a variable's name (A-Z a-z 0-9 _)", name);
    if (command->variable_count >= COMMAND_VARIABLES_MAX)
        return error_set(err, ERROR_INVALID, "more than %d variables", COMMAND_VARIABLES_MAX);
    append(&command->variables, &command->variable_count, memory_printf("%s=%s", name, value));
    return true;
}

static void hash_text(crypto_generichash_state *state, const void *text, size_t size)
{
    uint64_t length = size;
    crypto_generichash_update(state, (const uint8_t *)&length, sizeof length);
    crypto_generichash_update(state, text, size);
}

void command_hash(const struct command *command, uint8_t hash[static COMMAND_HASH_BYTES])
{
    crypto_generichash_state state;
    crypto_generichash_init(&state, NULL, 0, COMMAND_HASH_BYTES);
    uint64_t numbers[] = {command->argument_count, command->variable_count, command->timeout_ms,
                          command->with_stdin,     command->cwd != NULL,    command->stdin_stays_open};
    hash_text(&state, numbers, sizeof numbers);
    hash_text(&state, command->cwd ? command->cwd : "", command->cwd ? strlen(command->cwd) : 0);
    unsigned cells[] = {command->columns, command->rows};
    if (command->terminal) /* else the hash is as it was before there were terminals */
        hash_text(&state, cells, sizeof cells);
    for (size_t i = 0; i < command->argument_count; i++)
        hash_text(&state, command->arguments[i], strlen(command->arguments[i]));
    for (size_t i = 0; i < command->variable_count; i++)
        hash_text(&state, command->variables[i], strlen(command->variables[i]));
    hash_text(&state, command->input ? command->input : "", command->input_size);
    crypto_generichash_final(&state, hash, COMMAND_HASH_BYTES);
}

static bool same_name(const char *a, const char *b)
{
    size_t length = strcspn(a, "=");
    return strncmp(a, b, length) == 0 && b[length] == '=';
}

/* Puts `variable` where one of its name stands, or at the end. */
static void put_variable(char **variables, size_t *count, char *variable)
{
    for (size_t i = 0; i < *count; i++)
        if (same_name(variable, variables[i])) {
            variables[i] = variable;
            return;
        }
    variables[(*count)++] = variable;
}

int command_seal(const struct command *command, const char *sandbox_env, struct error *err)
{
    size_t sandbox_count = 0;
    for (const char *text = sandbox_env; *text; text += strlen(text) + 1)
        sandbox_count++;
    AUTO_FREE char **variables =
        memory_array(DEFAULT_COUNT + 1 + sandbox_count + command->variable_count + 1, sizeof *variables);
    size_t count = 0;
    for (size_t i = 0; i < DEFAULT_COUNT; i++)
        variables[count++] = (char *)(uintptr_t)DEFAULT_VARIABLES[i]; /* only read; the type is execve's */
    if (command->terminal)
        variables[count++] = (char *)(uintptr_t)DEFAULT_TERM;
    for (const char *text = sandbox_env; *text; text += strlen(text) + 1)
        put_variable(variables, &count, (char *)(uintptr_t)text);
    for (size_t i = 0; i < command->variable_count; i++)
        put_variable(variables, &count, command->variables[i]);
    struct front_init_command sealed = {
        .cwd = command->cwd ? command->cwd : "/workspace", .arguments = command->arguments, .variables = variables};
    return front_init_command_seal(&sealed, err);
}

void command_title(const struct command *command, char *to, size_t size)
{
    size_t used = 0;
    to[0] = 0;
    for (size_t i = 0; i < command->argument_count && used + 1 < size; i++) {
        int written = snprintf(to + used, size - used, "%s%s", i ? " " : "", command->arguments[i]);
        used += written > 0 ? (size_t)written : 0;
    }
    if (used >= size)
        to[text_utf8_prefix(to, size - 1)] = 0;
}
