/* execution_languages.c - what a client calls a language, and how its programs are started. */
#include "sandboxd/sandbox/executions_internal.h"

#include "shared/base/memory.h"

#include <string.h>

static const struct execution_language LANGUAGES[] = {
    {"python", " python py python3 ", "main.py", "python3"},
    {"bash", " bash sh shell ", "main.sh", "bash"},
    {"node", " node javascript js nodejs ", "main.js", "node"},
};

const struct execution_language *execution_language_find(const char *given, struct error *err)
{
    char word[24];
    int length = snprintf(word, sizeof word, " %s ", given);
    bool is_word = length > 2 && (size_t)length < sizeof word && !strchr(given, ' ');
    for (size_t i = 0; is_word && i < sizeof LANGUAGES / sizeof *LANGUAGES; i++)
        if (strstr(LANGUAGES[i].aliases, word))
            return &LANGUAGES[i];
    error_set(err, ERROR_INVALID, "Unsupported language: %.64s (" EXECUTION_LANGUAGES ")", given);
    return NULL;
}

static bool add_all(struct command *command, const char *const *texts, struct error *err)
{
    for (; *texts; texts++)
        if (!command_add_argument(command, *texts, err))
            return false;
    return true;
}

/* Variables were checked when they came into the order. */
static bool add_variables(struct command *command, const struct command *from, struct error *err)
{
    for (size_t i = 0; i < from->variable_count; i++) {
        AUTO_FREE char *name = memory_string(from->variables[i]);
        char *value = strchr(name, '=');
        *value++ = 0;
        if (!command_add_variable(command, name, value, err))
            return false;
    }
    return true;
}

struct command *execution_command(const struct execution_order *order, const char *id, const char *folder,
                                  struct error *err)
{
    AUTO(command) *command = command_new();
    const char *const head[] = {"/usr/bin/env", order->language->program, order->language->file, NULL};
    (void)snprintf(command->id, sizeof command->id, EXECUTION_COMMAND "%s", id);
    command->cwd = memory_string(folder);
    command->origin = memory_string(order->program->origin);
    if (!add_all(command, head, err) || !add_all(command, (const char *const *)order->program->arguments, err) ||
        !add_variables(command, order->program, err))
        return NULL;
    return TAKE(command);
}
