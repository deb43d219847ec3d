/* context_view.c - events on a terminal. */
#include "clients/cli/context_view.h"

#include "clients/cli/cli.h"

#include "shared/base/fd.h"
#include "shared/base/memory.h"
#include "shared/base/text.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

enum { NAMES_TRIED = 10000 };

/* What a type's files are called, and whether its data are base64 of them. */
static const struct kind {
    const char *type, *ending;
    bool is_base64;
} KINDS[] = {{"image/png", "png", true},          {"image/jpeg", "jpg", true},     {"image/gif", "gif", true},
             {"image/webp", "webp", true},        {"image/svg+xml", "svg", false}, {"application/pdf", "pdf", true},
             {"text/html", "html", false},        {"text/markdown", "md", false},  {"text/latex", "tex", false},
             {"application/json", "json", false}, {"text/plain", "txt", false}};

static const struct kind *find_kind(const char *type)
{
    for (size_t i = 0; i < sizeof KINDS / sizeof *KINDS; i++)
        if (strcmp(KINDS[i].type, type) == 0)
            return &KINDS[i];
    return NULL;
}

/* The bytes of a member; the caller frees. */
static char *bytes_of(const struct kind *kind, const json_t *value, size_t *size)
{
    if (!json_is_string(value)) {
        char *text = json_dumps(value, JSON_ENCODE_ANY | JSON_INDENT(2));
        *size = text ? strlen(text) : 0;
        return text;
    }
    size_t length = json_string_length(value);
    char *bytes = memory_new(length + 1);
    AUTO_FREE char *packed = memory_new(length + 1); /* Jupyter's base64 has newlines in it */
    size_t packed_length = 0;
    for (size_t i = 0; i < length; i++)
        if (json_string_value(value)[i] != '\n')
            packed[packed_length++] = json_string_value(value)[i];
    bool is_base64 = (!kind || kind->is_base64) && text_base64_decode(bytes, length, size, packed, packed_length);
    if (!is_base64) {
        memcpy(bytes, json_string_value(value), length);
        *size = length;
    }
    return bytes;
}

static bool save(struct context_view *view, const struct kind *kind, const void *bytes, size_t size, char **path,
                 struct error *err)
{
    if (mkdir(view->save, 0777) != 0 && errno != EEXIST)
        return error_set_errno(err, ERROR_INVALID, "make the folder %.120s", view->save);
    AUTO_FD int file = -1;
    for (unsigned tries = 0; file < 0 && tries < NAMES_TRIED; tries++) {
        free(*path);
        *path = memory_printf("%s/%u.%s", view->save, ++view->saved, kind ? kind->ending : "bin");
        file = open(*path, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0666);
        if (file < 0 && errno != EEXIST)
            return error_set_errno(err, ERROR_INVALID, "make %.120s", *path);
    }
    return file >= 0 ? fd_write_all(file, bytes, size, err) : error_set(err, ERROR_INVALID, "no name is free there");
}

static void print_size(size_t size)
{
    if (size < 1000)
        printf(" %zu B]\n", size);
    else if (size < 1000000)
        printf(" %.0f kB]\n", (double)size / 1e3);
    else
        printf(" %.1f MB]\n", (double)size / 1e6);
}

/* One that is no plain text. */
static bool show_member(struct context_view *view, const char *type, const json_t *value, struct error *err)
{
    const struct kind *kind = find_kind(type);
    size_t size = 0;
    AUTO_FREE char *safe = cli_safe(type);
    AUTO_FREE char *path = NULL;
    AUTO_FREE char *bytes = bytes_of(kind, value, &size);
    if (view->save && !save(view, kind, bytes ? bytes : "", size, &path, err))
        return false;
    printf("[%s%s%s", safe, path ? " " : "", path ? path : "");
    print_size(size);
    return true;
}

static bool show_bundle(struct context_view *view, const json_t *data, struct error *err)
{
    const json_t *plain = json_object_get(data, "text/plain");
    if (json_is_string(plain)) {
        fwrite(json_string_value(plain), 1, json_string_length(plain), stdout);
        putchar('\n');
    }
    const char *type;
    json_t *value;
    json_object_foreach ((json_t *)(uintptr_t)data, type, value) {
        bool is_same = strncmp(type, "text/", 5) == 0 || strcmp(type, "application/json") == 0;
        bool is_text = is_same && plain != NULL; /* the same in other words */
        if (strcmp(type, "text/plain") != 0 && (!is_text || view->save) && !show_member(view, type, value, err))
            return false;
    }
    return true;
}

static void show_error(const json_t *event)
{
    const json_t *traceback = json_object_get(event, "traceback"), *line;
    size_t index;
    json_array_foreach (traceback, index, line)
        fprintf(stderr, "%s\n", json_string_value(line) ? json_string_value(line) : "");
    if (json_array_size(traceback) > 0)
        return;
    AUTO_FREE char *name = cli_member(event, "name");
    AUTO_FREE char *value = cli_member(event, "value");
    fprintf(stderr, "%s: %s\n", name, value);
}

bool context_view_event(struct context_view *view, const json_t *event, struct error *err)
{
    const char *type = json_string_value(json_object_get(event, "type"));
    const json_t *text = json_object_get(event, "text");
    bool is_shown = true;
    if (strcmp(type, "stdout") == 0 || strcmp(type, "stderr") == 0)
        fwrite(json_is_string(text) ? json_string_value(text) : "", 1, json_string_length(text),
               strcmp(type, "stdout") == 0 ? stdout : stderr);
    else if (strcmp(type, "display") == 0 || strcmp(type, "result") == 0)
        is_shown = show_bundle(view, json_object_get(event, "data"), err);
    else if (strcmp(type, "error") == 0)
        show_error(event);
    return is_shown && cli_flush(err);
}
