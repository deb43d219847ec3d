/* kernel_request.c - one function a field. */
#include "sandboxd/dialects/native/kernels/kernel_request.h"

#include "sandboxd/dialects/fields.h"
#include "shared/base/memory.h"
#include "shared/base/text.h"

#include <string.h>

enum { CWD_MAX = 4095 };
static const double TIMEOUT_MAX_S = 86400, START_MAX_S = 600;

static bool parse_seconds(const json_t *body, double most, uint64_t *ms, struct error *err)
{
    const json_t *value = json_object_get(body, "timeout");
    if (!value)
        return true;
    double seconds = json_is_number(value) ? json_number_value(value) : 0;
    if (!(seconds > 0) || seconds > most)
        return error_set(err, ERROR_INVALID, "timeout: seconds, over 0, at most %g", most);
    *ms = (uint64_t)(seconds * 1000.0);
    *ms = *ms ? *ms : 1;
    return true;
}

/* `id` or `name`: one is what the other is. */
static bool parse_id(struct kernel_create *create, const json_t *body, struct error *err)
{
    const json_t *id = json_object_get(body, "id"), *name = json_object_get(body, "name");
    if (id && name)
        return error_set(err, ERROR_INVALID, "id and name are the same: give one");
    id = id ? id : name;
    if (id && (!json_is_string(id) || !kernel_is_id(json_string_value(id))))
        return error_set(err, ERROR_INVALID, "id: 1 to %d of A-Z a-z 0-9 . _ -, not . or ..", KERNEL_ID_BYTES - 1);
    create->id = json_string_value(id);
    return true;
}

static bool parse_language(struct kernel_create *create, const json_t *body, struct error *err)
{
    const json_t *language = json_object_get(body, "language");
    if (language && !json_is_string(language))
        return error_set(err, ERROR_INVALID, "language: a string");
    create->language = language ? json_string_value(language) : NULL;
    return true;
}

static bool parse_cwd(const char **path, const json_t *body, struct error *err)
{
    const json_t *cwd = json_object_get(body, "cwd");
    if (cwd && (!json_is_string(cwd) || json_string_value(cwd)[0] != '/' || json_string_length(cwd) > CWD_MAX))
        return error_set(err, ERROR_INVALID, "cwd: an absolute path of the sandbox, at most %d bytes", CWD_MAX);
    *path = json_string_value(cwd);
    return true;
}

/* Languages are aliases too; what has no shell that could end is durable by itself or not at all. */
static bool parse_durable(struct kernel_create *create, const json_t *body, struct error *err)
{
    char language[DRIVER_NAME_BYTES] = "";
    struct error ignored = {0};
    if (!fields_flag(body, "durable", &create->is_durable, err))
        return false;
    bool is_bash =
        create->language && driver_language(create->language, language, &ignored) && strcmp(language, "bash") == 0;
    return !create->is_durable || is_bash || error_set(err, ERROR_INVALID, "durable: only with language bash");
}

static bool parse_env(struct command *command, const json_t *body, struct error *err)
{
    json_t *env = json_object_get(body, "env"), *value;
    const char *name;
    if (env && !json_is_object(env))
        return error_set(err, ERROR_INVALID, "env: an object of strings");
    json_object_foreach (env, name, value) {
        if (!json_is_string(value))
            return error_set(err, ERROR_INVALID, "env: \"%.64s\" is not a string", name);
        if (!command_add_variable(command, name, json_string_value(value), err))
            return false;
    }
    return true;
}

bool kernel_request_create(struct kernel_create *create, const json_t *body, struct error *err)
{
    static const char *const NAMES[] = {"language", "id", "name", "cwd", "env", "timeout", "durable", NULL};
    AUTO(command) *command = command_new();
    struct kernel_create parsed = {0};
    const char *cwd = NULL;
    if (!fields_only(body, NAMES, err) || !parse_language(&parsed, body, err) || !parse_id(&parsed, body, err) ||
        !parse_durable(&parsed, body, err) || !parse_cwd(&cwd, body, err) || !parse_env(command, body, err) ||
        !parse_seconds(body, START_MAX_S, &parsed.timeout_ms, err))
        return false;
    command->cwd = memory_string(cwd);
    *create = parsed;
    create->command = TAKE(command);
    return true;
}

static bool parse_stream(struct kernel_ordered *ordered, const json_t *body, struct error *err)
{
    static const char *const NAMES[] = {[KERNEL_NDJSON] = "ndjson", [KERNEL_SSE] = "sse", [KERNEL_ONE_JSON] = "none"};
    const json_t *value = json_object_get(body, "stream");
    ordered->framing_chosen = value != NULL;
    for (size_t i = 0; value && i < sizeof NAMES / sizeof *NAMES; i++)
        if (text_equal(json_string_value(value), NAMES[i])) {
            ordered->framing = (enum kernel_framing)i;
            return true;
        }
    return !value || error_set(err, ERROR_INVALID, "stream: \"ndjson\", \"sse\" or \"none\"");
}

/* Where it goes, what it does with stderr, and whether it waits. */
static bool parse_ways(struct kernel_code *code, const json_t *body, struct error *err)
{
    const json_t *to = json_object_get(body, "stderr");
    bool queue = true;
    if (to && !text_equal(json_string_value(to), "stdout") && !text_equal(json_string_value(to), "stderr"))
        return error_set(err, ERROR_INVALID, "stderr: \"stdout\" or \"stderr\"");
    if (!parse_cwd(&code->cwd, body, err) || !fields_flag(body, "queue", &queue, err) ||
        !fields_flag(body, "restart", &code->restarts, err))
        return false;
    code->merges = to && text_equal(json_string_value(to), "stdout");
    code->at_once = !queue;
    return true;
}

bool kernel_request_run(struct kernel_ordered *ordered, const json_t *body, struct error *err)
{
    static const char *const NAMES[] = {"code",   "timeout", "silent",  "stream", "cwd",
                                        "stderr", "queue",   "restart", NULL};
    struct kernel_ordered parsed = {.framing = KERNEL_NDJSON};
    const json_t *code = json_object_get(body, "code");
    if (!fields_only(body, NAMES, err))
        return false;
    if (!json_is_string(code))
        return error_set(err, ERROR_INVALID, "code: a string");
    if (json_string_length(code) > KERNEL_CODE_MAX)
        return error_set(err, ERROR_TOO_LARGE, "code: at most %d bytes; longer goes into a file", KERNEL_CODE_MAX);
    parsed.code.code = json_string_value(code);
    parsed.code.size = json_string_length(code);
    if (!parse_seconds(body, TIMEOUT_MAX_S, &parsed.code.timeout_ms, err) ||
        !fields_flag(body, "silent", &parsed.code.silent, err) || !parse_ways(&parsed.code, body, err) ||
        !parse_stream(&parsed, body, err))
        return false;
    *ordered = parsed;
    return true;
}

bool kernel_request_restart(uint64_t *timeout_ms, const json_t *body, struct error *err)
{
    static const char *const NAMES[] = {"timeout", NULL};
    return fields_only(body, NAMES, err) && parse_seconds(body, START_MAX_S, timeout_ms, err);
}
