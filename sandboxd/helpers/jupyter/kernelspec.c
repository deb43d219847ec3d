#include "sandboxd/helpers/jupyter/kernelspec.h"

#include "shared/base/fd.h"
#include "shared/base/memory.h"
#include "shared/base/text.h"

#include <ctype.h>
#include <dirent.h>
#include <stdlib.h>
#include <string.h>

enum { FOLDERS_MAX = 64, ARGUMENTS_MAX = 256, VALUE_MAX = 65536 };

/* ---- where they may be ---- */

struct folders {
    char *paths[FOLDERS_MAX]; /* the first wins */
    size_t count;
};

static void folders_done(struct folders *folders)
{
    for (size_t i = 0; i < folders->count; i++)
        free(folders->paths[i]);
}

static void add(struct folders *folders, const char *first, const char *rest)
{
    if (first && *first == '/' && folders->count < FOLDERS_MAX)
        folders->paths[folders->count++] = memory_printf("%s%s/kernels", first, rest);
}

static void add_listed(struct folders *folders, const char *list)
{
    AUTO_FREE char *copy = memory_string(list ? list : "");
    char *rest = copy;
    for (char *one = strsep(&rest, ":"); one; one = strsep(&rest, ":"))
        add(folders, one, "");
}

static int by_name(const struct dirent **a, const struct dirent **b)
{
    return strcmp((*a)->d_name, (*b)->d_name);
}

static int is_shown(const struct dirent *entry)
{
    return entry->d_name[0] != '.';
}

/* Each environment unpacked below /opt: /opt/conda, /opt/venv. */
static void add_opt(struct folders *folders)
{
    struct dirent **entries = NULL;
    int count = scandir("/opt", &entries, is_shown, by_name);
    for (int i = 0; i < count; i++) {
        AUTO_FREE char *one = memory_printf("/opt/%s", entries[i]->d_name);
        add(folders, one, "/share/jupyter");
        free(entries[i]);
    }
    free(entries);
}

static void find_folders(struct folders *folders)
{
    add_listed(folders, getenv("JUPYTER_PATH"));
    if (getenv("JUPYTER_DATA_DIR"))
        add(folders, getenv("JUPYTER_DATA_DIR"), "");
    else if (getenv("XDG_DATA_HOME"))
        add(folders, getenv("XDG_DATA_HOME"), "/jupyter");
    else
        add(folders, getenv("HOME"), "/.local/share/jupyter");
    add(folders, getenv("VIRTUAL_ENV"), "/share/jupyter");
    add(folders, getenv("CONDA_PREFIX"), "/share/jupyter");
    add_opt(folders);
    add(folders, "/usr/local/share/jupyter", "");
    add(folders, "/usr/share/jupyter", "");
}

/* ---- one of them ---- */

static bool is_name(const char *name)
{
    return text_is_made_of(name, KERNELSPEC_NAME_BYTES - 1, "._-") && *name != '.' && *name != '-';
}

static bool has_arguments(const json_t *spec)
{
    const json_t *arguments = json_object_get(spec, "argv");
    size_t i;
    json_t *one;
    json_array_foreach (arguments, i, one)
        if (!json_is_string(one))
            return false;
    return json_array_size(arguments) > 0 && json_array_size(arguments) <= ARGUMENTS_MAX;
}

static struct kernelspec *read_spec(const char *folder, const char *name, struct error *err)
{
    AUTO_FREE char *path = memory_printf("%s/%s/kernel.json", folder, name);
    size_t size = 0;
    AUTO_FREE char *text = fd_read_file(path, KERNELSPEC_FILE_MAX, &size, err);
    if (text == NULL)
        return NULL;
    json_error_t why;
    json_t *spec = json_loadb(text, size, 0, &why);
    if (!has_arguments(spec)) {
        error_set(err, ERROR_INVALID, "%s: %s", path, spec ? "no argv of texts" : why.text);
        json_decref(spec);
        return NULL;
    }
    struct kernelspec *made = memory_new(sizeof *made);
    *made = (struct kernelspec){memory_string(name), memory_printf("%s/%s", folder, name), spec};
    return made;
}

void kernelspec_free(struct kernelspec *spec)
{
    if (spec == NULL)
        return;
    free(spec->name);
    free(spec->folder);
    json_decref(spec->spec);
    free(spec);
}

static void list_names(struct error *err, const char *name)
{
    AUTO_TEXT names = {0};
    json_t *list = kernelspec_list();
    size_t i;
    json_t *one;
    json_array_foreach (json_object_get(list, "kernelspecs"), i, one)
        text_append_format(&names, "%s%s", names.length ? ", " : "", json_string_value(json_object_get(one, "name")));
    json_decref(list);
    error_set(err, ERROR_NOT_FOUND, "no kernelspec of the name or language %.54s in this template; there %s%s", name,
              names.length ? "are: " : "are none", names.length ? names.data : "");
}

/* One of another name. */
static struct kernelspec *find_by_language(const char *language)
{
    struct kernelspec *found = NULL;
    json_t *list = kernelspec_list(), *one;
    size_t i;
    json_array_foreach (json_object_get(list, "kernelspecs"), i, one) {
        const char *folder = json_string_value(json_object_get(one, "resource_dir"));
        const char *name = json_string_value(json_object_get(one, "name"));
        if (found == NULL && strcasecmp(json_string_value(json_object_get(one, "language")), language) == 0) {
            AUTO_FREE char *above = memory_copy(folder, strlen(folder) - strlen(name) - 1);
            found = read_spec(above, name, NULL);
        }
    }
    json_decref(list);
    return found;
}

struct kernelspec *kernelspec_find(const char *name, struct error *err)
{
    struct folders folders = {.count = 0};
    struct kernelspec *found = NULL;
    struct error why = {.kind = ERROR_NOT_FOUND};
    if (is_name(name)) {
        find_folders(&folders);
        for (size_t i = 0; i < folders.count && found == NULL && why.kind == ERROR_NOT_FOUND; i++)
            found = read_spec(folders.paths[i], name, &why);
        folders_done(&folders);
    }
    if (found == NULL && why.kind == ERROR_NOT_FOUND && is_name(name))
        found = find_by_language(name);
    if (found == NULL && why.kind == ERROR_NOT_FOUND)
        list_names(err, name);
    else if (found == NULL && err)
        *err = why;
    return found;
}

/* ---- all of them ---- */

static bool is_listed(const json_t *list, const char *name)
{
    size_t i;
    json_t *one;
    json_array_foreach (list, i, one)
        if (text_equal(json_string_value(json_object_get(one, "name")), name))
            return true;
    return false;
}

static void list_one(const char *folder, const char *name, json_t *to)
{
    bool is_wanted = is_name(name) && !is_listed(to, name) && json_array_size(to) < KERNELSPECS_MAX;
    AUTO(kernelspec) *spec = is_wanted ? read_spec(folder, name, NULL) : NULL;
    if (spec == NULL)
        return;
    const char *language = json_string_value(json_object_get(spec->spec, "language"));
    (void)json_array_append_new(to,
                                json_pack("{s:s, s:s, s:s, s:s}", "name", name, "display_name", kernelspec_title(spec),
                                          "language", language ? language : "", "resource_dir", spec->folder));
}

static void list_folder(const char *folder, json_t *to)
{
    struct dirent **entries = NULL;
    int count = scandir(folder, &entries, is_shown, by_name);
    for (int i = 0; i < count; i++) {
        list_one(folder, entries[i]->d_name, to);
        free(entries[i]);
    }
    free(entries);
}

json_t *kernelspec_list(void)
{
    struct folders folders = {.count = 0};
    json_t *all = json_array();
    find_folders(&folders);
    for (size_t i = 0; i < folders.count; i++)
        list_folder(folders.paths[i], all);
    folders_done(&folders);
    return json_pack("{s:o}", "kernelspecs", all);
}

/* ---- what it says ---- */

const char *kernelspec_title(const struct kernelspec *spec)
{
    const char *title = json_string_value(json_object_get(spec->spec, "display_name"));
    return title && *title ? title : spec->name;
}

bool kernelspec_interrupts_by_message(const struct kernelspec *spec)
{
    return text_equal(json_string_value(json_object_get(spec->spec, "interrupt_mode")), "message");
}

bool kernelspec_wants_tcp(const struct kernelspec *spec)
{
    const json_t *ours = json_object_get(json_object_get(spec->spec, "metadata"), "parley");
    return text_equal(json_string_value(json_object_get(ours, "transport")), "tcp");
}

/* /opt/conda of /opt/conda/share/jupyter/kernels/x; "/usr" for a folder of another shape. */
static char *prefix_of(const char *folder)
{
    const char *end = strstr(folder, "/share/jupyter/");
    return end && end > folder ? memory_copy(folder, (size_t)(end - folder)) : memory_string("/usr");
}

/* `from` with {name} replaced by its value; another brace stays as it is. */
static char *put_in(const char *from, const char *const names[], const char *const values[], size_t count)
{
    AUTO_TEXT made = {0};
    text_append(&made, "", 0);
    while (*from) {
        size_t found = 0;
        while (found < count && !text_starts_with(from, names[found]))
            found++;
        text_append(&made, found < count ? values[found] : from, found < count ? strlen(values[found]) : 1);
        from += found < count ? strlen(names[found]) : 1;
    }
    return TAKE(made.data);
}

char **kernelspec_arguments(const struct kernelspec *spec, const char *connection_file)
{
    const json_t *given = json_object_get(spec->spec, "argv");
    char **arguments = memory_array(json_array_size(given) + 1, sizeof *arguments);
    AUTO_FREE char *prefix = prefix_of(spec->folder);
    const char *const names[] = {"{connection_file}", "{resource_dir}", "{prefix}"};
    const char *const values[] = {connection_file, spec->folder, prefix};
    size_t i;
    json_t *one;
    json_array_foreach (given, i, one)
        arguments[i] = put_in(json_string_value(one), names, values, sizeof names / sizeof *names);
    return arguments;
}

void kernelspec_arguments_free(char **arguments)
{
    for (size_t i = 0; arguments && arguments[i]; i++)
        free(arguments[i]);
    free(arguments);
}

/* ---- its variables ---- */

/* Bytes of "${NAME}" or "$NAME" at `from`, and the name; 0: it is a plain character. */
static size_t read_variable(const char *from, char *name, size_t size)
{
    bool is_braced = from[0] == '$' && from[1] == '{';
    const char *start = from + (is_braced ? 2 : 1);
    size_t length = 0;
    if (from[0] != '$' || isdigit((unsigned char)*start))
        return 0;
    while (isalnum((unsigned char)start[length]) || start[length] == '_')
        length++;
    if (length == 0 || length >= size || (is_braced && start[length] != '}'))
        return 0;
    memcpy(name, start, length);
    name[length] = '\0';
    return length + (is_braced ? 3 : 1);
}

static char *expand(const char *from)
{
    AUTO_TEXT made = {0};
    char name[128];
    text_append(&made, "", 0);
    while (*from && made.length < VALUE_MAX) {
        size_t length = read_variable(from, name, sizeof name);
        const char *value = length ? getenv(name) : NULL;
        if (value)
            text_append_string(&made, value);
        else
            text_append(&made, from, length ? length : 1);
        from += length ? length : 1;
    }
    return TAKE(made.data);
}

void kernelspec_set_environment(const struct kernelspec *spec)
{
    const char *name;
    json_t *value;
    json_object_foreach (json_object_get(spec->spec, "env"), name, value) {
        AUTO_FREE char *text = json_is_string(value) ? expand(json_string_value(value)) : NULL;
        if (text)
            (void)setenv(name, text, 1);
    }
}
