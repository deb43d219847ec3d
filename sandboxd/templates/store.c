#include "sandboxd/templates/templates.h"

#include "sandboxd/templates/record.h"
#include "sandboxd/templates/store_lock.h"
#include "shared/base/clock.h"
#include "shared/base/log.h"
#include "shared/base/memory.h"
#include "shared/base/text.h"

#include <dirent.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

static const char BASE[] = "base";
enum { BASE_USER = 1000 };

/* --- finding --- */

bool templates_find_version(const char *folder, const char *version, struct template *found, struct error *err)
{
    struct template read = {0};
    char name[FRONT_LAUNCHER_NAME_BYTES];
    if (!template_is_version(version, name) || !text_copy(read.version, sizeof read.version, version))
        return error_set(err, ERROR_NOT_FOUND, "no template version \"%.64s\"", version);
    if (!text_format(read.rootfs, sizeof read.rootfs, "%s/%s/rootfs", folder, version))
        return error_set(err, ERROR_INVALID, "the path of template version %s is too long", version);
    AUTO_FREE char *path = memory_printf("%s/%s/template", folder, version);
    struct error why = {0};
    if (!template_record_read(path, &read.record, &why)) {
        if (why.kind == ERROR_NOT_FOUND)
            return error_set(err, ERROR_NOT_FOUND, "template version %s is not on this node", version);
        return error_set(err, why.kind, "%s", why.message);
    }
    if (strcmp(read.record.name, name) != 0)
        return error_set(err, ERROR_INVALID, "%s is damaged: it is of template %s", path, read.record.name);
    *found = read;
    return true;
}

/* The version that the link `name` names. */
static bool read_current(const char *folder, const char *name, char version[static FRONT_LAUNCHER_NAME_BYTES],
                         struct error *err)
{
    if (!template_is_name(name))
        return error_set(err, ERROR_NOT_FOUND, "no template \"%.64s\" on this node", name);
    AUTO_FREE char *link = memory_printf("%s/%s", folder, name);
    char target[FRONT_LAUNCHER_NAME_BYTES] = "";
    char of[FRONT_LAUNCHER_NAME_BYTES] = "";
    ssize_t length = readlink(link, target, sizeof target - 1);
    if (length < 0 && errno == ENOENT)
        return error_set(err, ERROR_NOT_FOUND, "no template \"%s\" on this node", name);
    if (length < 0 || !template_is_version(target, of) || strcmp(of, name) != 0)
        return error_set(err, ERROR_INVALID, "%s is damaged: it is no link to a version of it", link);
    memcpy(version, target, sizeof target);
    return true;
}

bool templates_find(const char *folder, const char *name, struct template *found, struct error *err)
{
    char version[FRONT_LAUNCHER_NAME_BYTES];
    return read_current(folder, name, version, err) && templates_find_version(folder, version, found, err);
}

static int by_name(const void *a, const void *b)
{
    const struct template *left = a;
    const struct template *right = b;
    return strcmp(left->record.name, right->record.name);
}

size_t templates_list(const char *folder, size_t max, struct template **list)
{
    size_t count = 0;
    size_t capacity = 0;
    *list = NULL;
    DIR *entries = opendir(folder);
    for (const struct dirent *entry = entries ? readdir(entries) : NULL; entry && count < max;
         entry = readdir(entries)) {
        struct error err = {0};
        struct template found;
        if (!template_is_name(entry->d_name) || (entry->d_type != DT_LNK && entry->d_type != DT_UNKNOWN))
            continue;
        if (!templates_find(folder, entry->d_name, &found, &err)) {
            log_warn("templates", "left out: %s", err.message);
            continue;
        }
        if (count == capacity) {
            capacity = capacity ? capacity * 2 : 8;
            *list = memory_resize(*list, capacity * sizeof **list);
        }
        (*list)[count++] = found;
    }
    if (entries)
        closedir(entries);
    if (count > 0)
        qsort(*list, count, sizeof **list, by_name);
    return count;
}

/* --- changing --- */

bool templates_remove(const char *folder, const char *name, struct error *err)
{
    if (strcmp(name, BASE) == 0)
        return error_set(err, ERROR_FORBIDDEN, "template base is made of this host; it cannot be removed");
    char version[FRONT_LAUNCHER_NAME_BYTES];
    struct error why = {0};
    if (!read_current(folder, name, version, &why) && why.kind == ERROR_NOT_FOUND)
        return error_set(err, ERROR_NOT_FOUND, "%s", why.message);
    AUTO_FD int store = store_lock(folder, STORE_LOCK_WAIT, err);
    AUTO_FREE char *link = memory_printf("%s/%s", folder, name);
    if (store < 0)
        return false;
    if (unlink(link) < 0)
        return error_set_errno(err, errno == ENOENT ? ERROR_NOT_FOUND : ERROR_INTERNAL, "remove %s", link);
    return store_sync(folder, err);
}

bool templates_describe_base(const char *folder, struct error *err)
{
    char version[FRONT_LAUNCHER_NAME_BYTES];
    struct template found;
    struct error why = {0};
    if (!read_current(folder, BASE, version, err))
        return false;
    if (templates_find_version(folder, version, &found, &why))
        return true;
    struct template_record record = {.kind = TEMPLATE_SKELETON,
                                     .uid = BASE_USER,
                                     .gid = BASE_USER,
                                     .created_ms = clock_wall_ms(),
                                     .name = "base",
                                     .source = "this host's /usr",
                                     .workdir = "/workspace"};
    AUTO_FREE char *path = memory_printf("%s/%s", folder, version);
    return template_write(path, &record, err);
}
