/* execution_order.c - what is to be run, and which names its files may have. */
#include "sandboxd/sandbox/executions/executions_internal.h"

#include "shared/base/memory.h"

#include <string.h>

/* Takes `path`. */
static void append(struct execution_order *order, char **path, const char *data, size_t size)
{
    size_t count = order->file_count++;
    if ((count & (count - 1)) == 0)
        order->files = memory_resize(order->files, (count ? count * 2 : 1) * sizeof *order->files);
    order->files[count] = (struct execution_file){.path = TAKE(*path), .data = memory_copy(data, size), .size = size};
}

struct execution_order *execution_order_new(const char *sandbox_id, const char *language, const char *code, size_t size,
                                            struct error *err)
{
    const struct execution_language *found = execution_language_find(language, err);
    if (!found)
        return NULL;
    struct execution_order *order = memory_new(sizeof *order);
    if (!text_copy(order->sandbox_id, sizeof order->sandbox_id, sandbox_id))
        order->sandbox_id[0] = 0; /* no sandbox has that name */
    order->language = found;
    order->program = command_new();
    AUTO_FREE char *path = memory_string(found->file);
    append(order, &path, code, size);
    return order;
}

void execution_order_free(struct execution_order *order)
{
    if (!order)
        return;
    for (size_t i = 0; i < order->file_count; i++) {
        free(order->files[i].path);
        free(order->files[i].data);
    }
    free(order->files);
    command_free(order->program);
    free(order);
}

/* Without its `.` segments; NULL when it is no relative path that stays below its folder. */
static char *clean_path(const char *path, size_t size)
{
    if (size == 0 || size > EXECUTION_PATH_MAX || memchr(path, 0, size) || path[0] == '/' || path[size - 1] == '/')
        return NULL;
    AUTO_TEXT clean = {0};
    for (size_t start = 0; start < size;) {
        const char *slash = memchr(path + start, '/', size - start);
        size_t length = slash ? (size_t)(slash - path) - start : size - start;
        bool is_dot = length == 1 && path[start] == '.';
        if (length == 0 || length > FRONT_FILES_NAME_MAX || (length == 2 && memcmp(path + start, "..", 2) == 0))
            return NULL;
        if (!is_dot && clean.length > 0)
            text_append(&clean, "/", 1);
        if (!is_dot)
            text_append(&clean, path + start, length);
        start += length + 1;
    }
    return clean.length > 0 ? TAKE(clean.data) : NULL;
}

bool execution_order_add_file(struct execution_order *order, const char *path, size_t path_size, const char *data,
                              size_t size, struct error *err)
{
    if (order->file_count > EXECUTION_FILES_MAX)
        return error_set(err, ERROR_INVALID, "files: more than %d", EXECUTION_FILES_MAX);
    AUTO_FREE char *clean = clean_path(path, path_size);
    if (!clean || strcmp(clean, order->language->file) == 0)
        return error_set(err, ERROR_INVALID, "Invalid file path: %.128s%s", path, clean ? " (it is the code's)" : "");
    append(order, &clean, data, size);
    return true;
}
