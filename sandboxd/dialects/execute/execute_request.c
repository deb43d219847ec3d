/* execute_request.c - one function a field. */
#include "sandboxd/dialects/execute/execute_request.h"

#include "sandboxd/dialects/fields.h"
#include "shared/base/memory.h"

#include <string.h>

static const char *const FIELDS[] = {"code", "language", "files", "environment", "arguments", "timeout_s", NULL};

double execute_request_margin(double timeout_s)
{
    double margin = timeout_s * 0.05 < 0.25 ? 0.25 : timeout_s * 0.05;
    margin = margin > 5 ? 5 : margin;
    return margin > timeout_s / 2 ? timeout_s / 2 : margin;
}

static bool read_text(const json_t *body, const char *name, const json_t **value, struct error *err)
{
    *value = json_object_get(body, name);
    return json_is_string(*value) || error_set(err, ERROR_INVALID, "%s: a string, which must be there", name);
}

/* An optional field; null is as if it were missing. */
static const json_t *find(const json_t *body, const char *name)
{
    const json_t *value = json_object_get(body, name);
    return json_is_null(value) ? NULL : value;
}

static bool read_timeout(const json_t *body, double *timeout_s, struct error *err)
{
    const json_t *value = find(body, "timeout_s");
    *timeout_s = value ? json_number_value(value) : EXECUTE_TIMEOUT_DEFAULT_S;
    return (*timeout_s > 0 && *timeout_s <= EXECUTE_TIMEOUT_MAX_S) ||
           error_set(err, ERROR_INVALID, "timeout_s: seconds, over 0, at most %d", EXECUTE_TIMEOUT_MAX_S);
}

static bool read_environment(const json_t *value, struct command *program, struct error *err)
{
    const char *name;
    const json_t *item;
    if (value && !json_is_object(value))
        return error_set(err, ERROR_INVALID, "environment: an object of strings");
    json_object_foreach ((json_t *)(uintptr_t)value, name, item) {
        if (!json_is_string(item))
            return error_set(err, ERROR_INVALID, "environment: \"%.64s\" is not a string", name);
        if (!command_add_variable(program, name, json_string_value(item), err))
            return error_prefix(err, "environment");
    }
    return true;
}

static bool read_arguments(const json_t *value, struct command *program, struct error *err)
{
    size_t index;
    const json_t *item;
    if (value && !json_is_array(value))
        return error_set(err, ERROR_INVALID, "arguments: an array of strings");
    json_array_foreach (value, index, item) {
        if (!json_is_string(item))
            return error_set(err, ERROR_INVALID, "arguments: an array of strings");
        if (!command_add_argument(program, json_string_value(item), err))
            return error_prefix(err, "arguments");
    }
    return true;
}

static bool check_files(const json_t *value, struct error *err)
{
    const char *name;
    const json_t *item;
    if (value && !json_is_object(value))
        return error_set(err, ERROR_INVALID, "files: an object of strings");
    if (json_object_size(value) > EXECUTION_FILES_MAX)
        return error_set(err, ERROR_INVALID, "files: at most %d", EXECUTION_FILES_MAX);
    json_object_foreach ((json_t *)(uintptr_t)value, name, item)
        if (!json_is_string(item))
            return error_set(err, ERROR_INVALID, "files: \"%.64s\" is not a string", name);
    return true;
}

static bool add_files(const json_t *value, struct execution_order *order, struct error *err)
{
    const char *name;
    const json_t *item;
    json_object_foreach ((json_t *)(uintptr_t)value, name, item)
        if (!execution_order_add_file(order, name, strlen(name), json_string_value(item), json_string_length(item),
                                      err))
            return false;
    return true;
}

bool execute_request_parse(struct execute_request *request, const char *sandbox_id, const json_t *body,
                           struct error *err)
{
    const json_t *code, *language, *files = find(body, "files");
    AUTO(command) *program = command_new();
    struct execute_request read = {0};
    if (!fields_only(body, FIELDS, err) || !read_text(body, "code", &code, err) ||
        !read_text(body, "language", &language, err) || !check_files(files, err) ||
        !read_environment(find(body, "environment"), program, err) ||
        !read_arguments(find(body, "arguments"), program, err) || !read_timeout(body, &read.timeout_s, err))
        return false;
    AUTO(execution_order) *order = execution_order_new(sandbox_id, json_string_value(language), json_string_value(code),
                                                       json_string_length(code), &read.refusal);
    if (order && add_files(files, order, &read.refusal)) {
        command_free(order->program);
        order->program = TAKE(program);
        read.order = TAKE(order);
    }
    *request = read;
    return true;
}
