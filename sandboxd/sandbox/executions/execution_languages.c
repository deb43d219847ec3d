/* execution_languages.c - what a client calls a language, and how its programs are started. */
#include "sandboxd/sandbox/executions/executions_internal.h"

#include "sandboxd/helpers/drivers/drivers.h"
#include "shared/base/memory.h"

#include <string.h>

static const struct execution_language LANGUAGES[] = {
    {"python", " python py python3 ", "main.py", "python3", true},
    {"bash", " bash sh shell ", "main.sh", "bash", false},
    {"node", " node javascript js nodejs ", "main.js", "node", false},
    {"typescript", " typescript ts ", "main.ts", NULL, false},
};

static bool has_driver(const struct execution_language *language)
{
    struct driver_start start;
    return driver_script(language->name, &start, NULL);
}

const struct execution_language *execution_language_find(const char *given, struct error *err)
{
    char word[24];
    int length = snprintf(word, sizeof word, " %s ", given);
    bool is_word = length > 2 && (size_t)length < sizeof word && !strchr(given, ' ');
    for (size_t i = 0; is_word && i < sizeof LANGUAGES / sizeof *LANGUAGES; i++)
        if (strstr(LANGUAGES[i].aliases, word) && (LANGUAGES[i].program || has_driver(&LANGUAGES[i])))
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

/* What is read before an interpreter: one that is forked has it behind itself (what it reads itself the driver minds).
 */
static bool is_for_start(const char *variable)
{
    static const char *const PREFIXES[] = {"LD_", "MALLOC_", "GLIBC_"};
    for (size_t i = 0; i < sizeof PREFIXES / sizeof *PREFIXES; i++)
        if (text_starts_with(variable, PREFIXES[i]))
            return true;
    return false;
}

bool execution_can_fork(const struct execution_order *order)
{
    const struct command *program = order->program;
    for (size_t i = 0; i < program->variable_count; i++)
        if (is_for_start(program->variables[i]))
            return false;
    return order->language->forks;
}

/* The driver's way: forked from the process that has the interpreter ready, or by the driver alone. */
static bool set_driver(struct command *command, const struct execution_order *order, struct error *err)
{
    struct driver_start start;
    int program = driver_program(order->language->name, err);
    if (program < 0 || !driver_script(order->language->name, &start, err) || !add_all(command, start.arguments, err) ||
        !command_set_program(command, program, err))
        return false;
    if (start.zygote == DRIVER_ZYGOTE_NONE)
        return true;
    AUTO(command) *zygote = command_new();
    return add_all(zygote, start.zygote_arguments, err) && command_set_zygote(command, start.zygote, TAKE(zygote), err);
}

static bool set_program(struct command *command, const struct execution_order *order, bool forks, struct error *err)
{
    const char *const head[] = {"/usr/bin/env", order->language->program, NULL};
    return forks || !order->language->program ? set_driver(command, order, err) : add_all(command, head, err);
}

struct command *execution_command(const struct execution_order *order, const char *id, const char *folder, bool forks,
                                  struct error *err)
{
    AUTO(command) *command = command_new();
    (void)snprintf(command->id, sizeof command->id, EXECUTION_COMMAND "%s", id);
    command->cwd = memory_string(folder);
    command->origin = memory_string(order->program->origin);
    if (!set_program(command, order, forks, err) || !command_add_argument(command, order->language->file, err) ||
        !add_all(command, (const char *const *)order->program->arguments, err) ||
        !add_variables(command, order->program, err))
        return NULL;
    return TAKE(command);
}
