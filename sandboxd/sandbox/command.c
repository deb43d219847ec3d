/* command.c - arguments, variables and their defaults. */
#include "sandboxd/sandbox/command.h"

#include "shared/base/memory.h"
#include "shared/base/text.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <sodium.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static const char *const DEFAULT_VARIABLES[] = {
    "HOME=/workspace", "SHELL=/bin/bash", "PATH=/usr/local/bin:/usr/bin:/bin:/usr/local/sbin:/usr/sbin:/sbin",
    "LANG=C.UTF-8",    "TMPDIR=/tmp",
};
static const char DEFAULT_TERM[] = "TERM=xterm-256color"; /* of a terminal */
/* Of the user that our own templates have; what another is called only its template can say. */
static const char *const USER_VARIABLES[] = {"USER=user", "LOGNAME=user"};
enum { USER_UID = 1000 };
static const char *const ROOT_VARIABLES[] = {"HOME=/root", "USER=root", "LOGNAME=root"};
enum {
    DEFAULT_COUNT = sizeof DEFAULT_VARIABLES / sizeof *DEFAULT_VARIABLES,
    USER_COUNT = sizeof USER_VARIABLES / sizeof *USER_VARIABLES,
    ROOT_COUNT = sizeof ROOT_VARIABLES / sizeof *ROOT_VARIABLES
};
static const char LOGIN_SHELL[] =
    "s=${SHELL:-bash}; command -v \"$s\" >/dev/null || s=sh SHELL=/bin/sh; exec \"$s\" -l";

struct command *command_new(void)
{
    struct command *command = memory_new(sizeof *command);
    command->arguments = memory_array(1, sizeof *command->arguments);
    command->variables = memory_array(1, sizeof *command->variables);
    command->program = -1;
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
    command_free(command->zygote_command);
    if (command->program >= 0)
        close(command->program);
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

bool command_set_login_shell(struct command *command, struct error *err)
{
    return command_add_argument(command, "/bin/sh", err) && command_add_argument(command, "-c", err) &&
           command_add_argument(command, LOGIN_SHELL, err);
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

bool command_set_program(struct command *command, int fd, struct error *err)
{
    if (!front_init_program_check(fd, err))
        return false;
    AUTO_FD int own = fcntl(fd, F_DUPFD_CLOEXEC, 3);
    if (own < 0)
        return error_set_errno(err, errno == EMFILE ? ERROR_NO_CAPACITY : ERROR_INTERNAL, "a program's descriptor");
    if (command->program >= 0)
        close(command->program);
    command->program = TAKE_FD(own);
    return true;
}

bool command_set_zygote(struct command *command, unsigned zygote, struct command *zygote_command, struct error *err)
{
    AUTO(command) *own = zygote_command;
    if (zygote < 1 || zygote > FRONT_INIT_ZYGOTES || !own || own->argument_count == 0)
        return error_set(err, ERROR_INVALID, "a zygote is 1..%d and has a command", FRONT_INIT_ZYGOTES);
    if (command->program < 0 || command->as_root || command->terminal)
        return error_set(err, ERROR_INVALID, "of a zygote come commands with a program, no terminal, and not root's");
    command_free(command->zygote_command);
    command->zygote = zygote;
    command->zygote_command = TAKE(own);
    return true;
}

bool command_check_client_id(const char *id, struct error *err)
{
    if (text_starts_with(id, "kernel.") || text_starts_with(id, "execution."))
        return error_set(err, ERROR_INVALID, "ids that begin with \"kernel.\" or \"execution.\" are given by us");
    return true;
}

static void hash_text(crypto_generichash_state *state, const void *text, size_t size)
{
    uint64_t length = size;
    crypto_generichash_update(state, (const uint8_t *)&length, sizeof length);
    crypto_generichash_update(state, text, size);
}

/* By its file: one that is made once is the same program each time, and its bytes need not be read. */
static void hash_program(crypto_generichash_state *state, const struct command *command)
{
    struct stat status;
    if (command->program < 0 || fstat(command->program, &status) != 0)
        return;
    uint64_t numbers[] = {status.st_dev, status.st_ino, (uint64_t)status.st_size, command->zygote};
    hash_text(state, "program", 7);
    hash_text(state, numbers, sizeof numbers);
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
    if (command->as_root)
        hash_text(&state, "root", 4);
    if (command->merges)
        hash_text(&state, "merges", 6);
    hash_program(&state, command);
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

static size_t count_texts(const char *texts)
{
    size_t count = 0;
    for (; *texts; texts += strlen(texts) + 1)
        count++;
    return count;
}

/* They are only read; the type is execve's. */
static void put_texts(char **variables, size_t *count, const char *texts)
{
    for (; *texts; texts += strlen(texts) + 1)
        put_variable(variables, count, (char *)(uintptr_t)texts);
}

static void put_list(char **variables, size_t *count, const char *const *list, size_t size)
{
    for (size_t i = 0; i < size; i++)
        put_variable(variables, count, (char *)(uintptr_t)list[i]);
}

static const char *find_in(const char *const *list, size_t size, const char *name)
{
    size_t length = strlen(name);
    for (size_t i = 0; i < size; i++)
        if (strncmp(list[i], name, length) == 0 && list[i][length] == '=')
            return list[i] + length + 1;
    return NULL;
}

const char *command_default_variable(const char *name, uint32_t uid)
{
    const char *value = uid == USER_UID ? find_in(USER_VARIABLES, USER_COUNT, name) : NULL;
    return value ? value : find_in(DEFAULT_VARIABLES, DEFAULT_COUNT, name);
}

int command_seal(const struct command *command, const struct command_ground *ground, struct error *err)
{
    size_t room = DEFAULT_COUNT + 1 + USER_COUNT + ROOT_COUNT + count_texts(ground->template_env) +
                  count_texts(ground->sandbox_env) + command->variable_count + 1;
    AUTO_FREE char **variables = memory_array(room, sizeof *variables);
    size_t count = 0;
    put_list(variables, &count, DEFAULT_VARIABLES, DEFAULT_COUNT);
    if (command->terminal)
        put_variable(variables, &count, (char *)(uintptr_t)DEFAULT_TERM);
    if (ground->uid == USER_UID)
        put_list(variables, &count, USER_VARIABLES, USER_COUNT);
    put_texts(variables, &count, ground->template_env);
    if (command->as_root)
        put_list(variables, &count, ROOT_VARIABLES, ROOT_COUNT);
    put_texts(variables, &count, ground->sandbox_env);
    for (size_t i = 0; i < command->variable_count; i++)
        put_variable(variables, &count, command->variables[i]);
    struct front_init_command sealed = {.cwd = command->cwd ? command->cwd : ground->workdir,
                                        .arguments = command->arguments,
                                        .variables = variables,
                                        .is_line = command->is_line};
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

char *command_text(const struct command *command)
{
    struct text text = {0};
    size_t first = command->is_line && command->argument_count > 2 ? 2 : 0;
    for (size_t i = first; i < command->argument_count; i++) {
        if (i > first)
            text_append(&text, " ", 1);
        text_append_string(&text, command->arguments[i]);
    }
    text_append(&text, "", 0);
    return text.data;
}
