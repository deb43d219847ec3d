#include "clients/cli/libs.h"

#include "clients/cli/cli.h"
#include "clients/cli/lines.h"
#include "shared/base/fd.h"
#include "shared/base/memory.h"
#include "shared/base/text.h"

#include <dirent.h>
#include <elf.h>
#include <fcntl.h>
#include <limits.h>
#include <link.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const struct {
    const char *program, *name, *version, *package;
} STATIC_LIBS[] = {
#include "clients/cli/static_libs.inc"
};

/* What is being gathered: "library\npath or version" -> its row. */
struct gathered {
    json_t *rows;
    const char *program;
};

static json_t *row_of(json_t *rows, const char *library, const char *where)
{
    AUTO_FREE char *key = memory_printf("%s\n%s", library, where);
    json_t *row = json_object_get(rows, key);
    if (!row) {
        row = json_pack("{s:s, s:n, s:n, s:s, s:[]}", "library", library, "version", "package", "linked", "shared",
                        "programs");
        json_object_set_new(rows, key, row);
    }
    return row;
}

static void add_program(json_t *row, const char *program)
{
    json_array_append_new(json_object_get(row, "programs"), json_string(program));
}

/* "\tlibcurl.so.4 => /lib/x86_64-linux-gnu/libcurl.so.4 (0x...)"; the loader itself and the vdso have no arrow. */
static void take_library(void *cookie, char *line)
{
    struct gathered *to = cookie;
    char *name = line + strspn(line, " \t"), *arrow = strstr(name, " => /");
    if (!arrow)
        return;
    *arrow = '\0';
    char *path = arrow + strlen(" => ");
    path[strcspn(path, " ")] = '\0';
    char real[PATH_MAX];
    json_t *row = row_of(to->rows, name, realpath(path, real) ? real : path);
    json_object_set_new(row, "path", json_string(path));
    add_program(row, to->program);
}

/* Whether a program names a loader (elf(5)): a static one would confuse it. */
static bool has_loader(const char *path)
{
    AUTO_FD int fd = open(path, O_RDONLY | O_CLOEXEC);
    ElfW(Ehdr) head = {0};
    bool has = false;
    if (fd < 0 || pread(fd, &head, sizeof head, 0) != sizeof head || memcmp(head.e_ident, ELFMAG, SELFMAG) != 0)
        return false;
    for (unsigned i = 0; i < head.e_phnum && !has; i++) {
        ElfW(Phdr) part = {0};
        has = pread(fd, &part, sizeof part, (off_t)(head.e_phoff + i * sizeof part)) == sizeof part &&
              part.p_type == PT_INTERP;
    }
    return has;
}

/* "/lib64/ld-linux-x86-64.so.2" */
static int find_loader(struct dl_phdr_info *info, size_t size, void *cookie)
{
    (void)size;
    const char **loader = cookie, *slash = strrchr(info->dlpi_name, '/');
    bool is_it = slash && text_starts_with(slash, "/ld-");
    if (is_it)
        *loader = info->dlpi_name;
    return is_it;
}

static bool gather_shared(json_t *rows, struct error *err)
{
    AUTO_FREE char *self = cli_sibling("parley", err);
    if (!self)
        return false;
    *strrchr(self, '/') = '\0';
    const char *loader = NULL;
    dl_iterate_phdr(find_loader, &loader);
    if (!loader)
        return error_set(err, ERROR_INTERNAL, "this program has no loader to be asked for its libraries");
    DIR *folder = opendir(self);
    if (!folder)
        return error_set_errno(err, ERROR_INTERNAL, "%s", self);
    bool is_good = true;
    for (const struct dirent *entry; is_good && (entry = readdir(folder)) != NULL;) {
        AUTO_FREE char *path = memory_printf("%s/%s", self, entry->d_name);
        if (!text_starts_with(entry->d_name, "parley") || !has_loader(path))
            continue;
        struct gathered to = {rows, entry->d_name};
        const char *const argv[] = {loader, "--list", path, NULL};
        is_good = lines_of(argv, true, take_library, &to, err);
    }
    closedir(folder);
    return is_good;
}

static void gather_static(json_t *rows)
{
    for (size_t i = 0; i < sizeof STATIC_LIBS / sizeof STATIC_LIBS[0]; i++) {
        json_t *row = row_of(rows, STATIC_LIBS[i].name, STATIC_LIBS[i].version);
        json_object_set_new(row, "version", json_string(STATIC_LIBS[i].version));
        json_object_set_new(row, "package", json_string(STATIC_LIBS[i].package));
        json_object_set_new(row, "linked", json_string("static"));
        add_program(row, STATIC_LIBS[i].program);
    }
}

/* ---- versions ---- */

/* Runs dpkg-query with `options` and then each key of `keys`. */
static void ask_dpkg(const char *const *options, size_t option_count, json_t *keys, void (*take)(void *, char *),
                     void *cookie)
{
    const char **argv = memory_array(option_count + json_object_size(keys) + 1, sizeof *argv), *key;
    json_t *value;
    struct error err;
    memcpy(argv, options, option_count * sizeof *argv);
    size_t count = option_count;
    json_object_foreach (keys, key, value)
        argv[count++] = key;
    argv[count] = NULL;
    (void)!lines_of(argv, true, take, cookie, &err); /* no dpkg here: then nobody owns anything */
    free(argv);
}

/* dpkg knows a file by the name under which it was unpacked, with /usr or without. */
static void add_names(json_t *rows_by_path, const char *path, json_t *row)
{
    const char *bare = text_starts_with(path, "/usr/") ? path + strlen("/usr") : path;
    AUTO_FREE char *longer = memory_printf("/usr%s", bare);
    json_object_set(rows_by_path, bare, row);
    json_object_set(rows_by_path, longer, row);
}

/* "libcurl4:amd64: /usr/lib/x86_64-linux-gnu/libcurl.so.4.8.0" */
static void take_owner(void *rows_by_path, char *line)
{
    char *colon = strstr(line, ": ");
    if (!colon)
        return;
    *colon = '\0';
    json_t *row = json_object_get(rows_by_path, colon + strlen(": "));
    if (row && !strchr(line, ','))
        json_object_set_new(row, "package", json_string(line));
}

static void take_version(void *versions, char *line)
{
    char *tab = strchr(line, '\t');
    if (!tab)
        return;
    *tab = '\0';
    json_object_set_new(versions, line, json_string(tab + 1));
}

/* The digits in "libcurl.so.4.8.0". */
static json_t *version_in_name(const char *path)
{
    const char *so = strstr(strrchr(path, '/'), ".so.");
    return so ? json_string(so + strlen(".so.")) : json_null();
}

/* Of rows that are all shared: whose they are, and of which version. */
static void tell_versions(json_t *rows)
{
    static const char *const OWNERS[] = {"dpkg-query", "-S"}, *const VERSIONS[] = {"dpkg-query", "-W", "-f",
                                                                                   "${binary:Package}\t${Version}\n"};
    json_t *by_path = json_object(), *versions = json_object(), *row;
    const char *key;
    json_object_foreach (rows, key, row) {
        add_names(by_path, strchr(key, '\n') + 1, row);
        add_names(by_path, json_string_value(json_object_get(row, "path")), row);
    }
    ask_dpkg(OWNERS, 2, by_path, take_owner, by_path);
    json_object_foreach (rows, key, row)
        if (json_is_string(json_object_get(row, "package")))
            json_object_set_new(versions, json_string_value(json_object_get(row, "package")), json_null());
    if (json_object_size(versions))
        ask_dpkg(VERSIONS, 4, versions, take_version, versions);
    json_object_foreach (rows, key, row) {
        const char *package = json_string_value(json_object_get(row, "package"));
        json_t *version = package ? json_object_get(versions, package) : NULL;
        json_object_del(row, "path");
        json_object_set_new(row, "version", version ? json_incref(version) : version_in_name(strchr(key, '\n') + 1));
    }
    json_decref(by_path);
    json_decref(versions);
}

static int compare_keys(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

static json_t *sorted(json_t *rows)
{
    const char **keys = memory_array(json_object_size(rows), sizeof *keys), *key;
    json_t *list = json_array(), *row;
    size_t count = 0;
    json_object_foreach (rows, key, row)
        keys[count++] = key;
    qsort(keys, count, sizeof *keys, compare_keys);
    for (size_t i = 0; i < count; i++)
        json_array_append(list, json_object_get(rows, keys[i]));
    free(keys);
    return list;
}

json_t *libs_list(struct error *err)
{
    json_t *rows = json_object(), *list = NULL;
    if (gather_shared(rows, err)) {
        tell_versions(rows);
        gather_static(rows);
        list = sorted(rows);
    }
    json_decref(rows);
    return list;
}
