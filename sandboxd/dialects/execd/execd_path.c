/* execd_path.c - variables first, then segments. */
#include "sandboxd/dialects/execd/execd_path.h"

#include "sandboxd/dialects/plane.h"
#include "sandboxd/front_files/front_files.h"
#include "sandboxd/sandbox/command.h"
#include "shared/base/memory.h"
#include "shared/base/text.h"

#include <ctype.h>
#include <string.h>

enum { VARIABLE_BYTES = 128, VALUE_BYTES = FRONT_FILES_PATH_MAX + 1 };

/* ---- variables ---- */

/* Bytes of "$NAME" or "${NAME}" at `from`, and the name; 0: it is a plain character. */
static size_t read_variable(const char *from, char name[static VARIABLE_BYTES])
{
    bool is_braced = from[0] == '$' && from[1] == '{';
    const char *start = from + (is_braced ? 2 : 1);
    size_t length = 0;
    if (from[0] != '$' || isdigit((unsigned char)*start))
        return 0;
    while (isalnum((unsigned char)start[length]) || start[length] == '_')
        length++;
    if (length == 0 || length >= VARIABLE_BYTES || (is_braced && start[length] != '}'))
        return 0;
    memcpy(name, start, length);
    name[length] = 0;
    return length + (is_braced ? 3 : 1);
}

static bool put_variable(struct text *to, const char *name, execd_path_find *find, const void *cookie,
                         struct error *err)
{
    char value[VALUE_BYTES];
    if (!find(cookie, name, value, sizeof value))
        return error_set(err, ERROR_INVALID, "path: the sandbox has no variable %s", name);
    text_append_string(to, value);
    return true;
}

static bool put_in(struct text *to, const char *given, execd_path_find *find, const void *cookie, struct error *err)
{
    char name[VARIABLE_BYTES];
    if (given[0] == '~' && (given[1] == 0 || given[1] == '/')) {
        if (!put_variable(to, "HOME", find, cookie, err))
            return false;
        given++;
    }
    while (*given && to->length <= FRONT_FILES_PATH_MAX) {
        size_t length = read_variable(given, name);
        if (length && !put_variable(to, name, find, cookie, err))
            return false;
        if (!length)
            text_append(to, given, 1);
        given += length ? length : 1;
    }
    return true;
}

/* ---- segments ---- */

static void add_segment(struct text *to, const char *segment, size_t length)
{
    if (length == 0 || (length == 1 && segment[0] == '.'))
        return;
    if (length != 2 || segment[0] != '.' || segment[1] != '.') {
        text_append(to, "/", 1);
        text_append(to, segment, length);
        return;
    }
    while (to->length > 0 && to->data[to->length - 1] != '/')
        to->length--;
    to->length -= to->length > 0;
}

static void add_segments(struct text *to, const char *path)
{
    while (*path) {
        size_t length = strcspn(path, "/");
        add_segment(to, path, length);
        path += length + (path[length] == '/');
    }
}

char *execd_path_resolve(const char *given, const char *workdir, execd_path_find *find, const void *cookie,
                         struct error *err)
{
    AUTO_TEXT whole = {0};
    AUTO_TEXT path = {0};
    if (!put_in(&whole, given, find, cookie, err))
        return NULL;
    if (whole.length == 0 || whole.length > FRONT_FILES_PATH_MAX) {
        error_set(err, ERROR_INVALID, "path: 1 to %d bytes", FRONT_FILES_PATH_MAX);
        return NULL;
    }
    if (whole.data[0] != '/')
        add_segments(&path, workdir);
    add_segments(&path, whole.data);
    if (path.length > FRONT_FILES_PATH_MAX) {
        error_set(err, ERROR_INVALID, "path: 1 to %d bytes", FRONT_FILES_PATH_MAX);
        return NULL;
    }
    return path.length ? memory_copy(path.data, path.length) : memory_string("/");
}

/* ---- of a request ---- */

struct place {
    struct registry *registry;
    const char *sandbox_id;
    uint32_t uid;
    bool sees_variables; /* but HOME, which all do */
    bool *was_denied;
};

/* A variable may be a secret, and comes to light in errors and in names that are made of it: whoever may run something
 * could print it. */
static bool sees_variables(const struct http_request *request)
{
    static const char *const VERBS[] = {"process", "code", "shell"};
    for (size_t i = 0; i < sizeof VERBS / sizeof *VERBS; i++)
        if (scope_allows(&caller_of(request)->claims.scopes, VERBS[i]))
            return true;
    return false;
}

static bool find_variable(const void *cookie, const char *name, char *to, size_t size)
{
    const struct place *place = cookie;
    if (!place->sees_variables && strcmp(name, "HOME") != 0) {
        *place->was_denied = true;
        return false;
    }
    if (registry_variable(place->registry, place->sandbox_id, name, to, size))
        return true;
    const char *value = command_default_variable(name, place->uid);
    return value && text_copy(to, size, value);
}

char *execd_path(const struct http_request *request, const char *given, struct error *err)
{
    char workdir[FRONT_LAUNCHER_PATH_BYTES] = "/";
    bool was_denied = false;
    struct place place = {.registry = sandboxes_registry(plane_of(request)->sandboxes),
                          .sandbox_id = caller_of(request)->claims.sandbox_id,
                          .sees_variables = sees_variables(request),
                          .was_denied = &was_denied};
    (void)!registry_start_of(place.registry, place.sandbox_id, workdir, &place.uid);
    char *path = execd_path_resolve(given, workdir, find_variable, &place, err);
    if (was_denied)
        error_set(err, ERROR_CAPABILITY_DENIED,
                  "path: variables of the sandbox other than HOME need scope process, code or shell");
    return path;
}
