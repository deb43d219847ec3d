#include "sandboxd/templates/tool/packages_file.h"

#include "sandboxd/templates/tool/blob.h"
#include "shared/base/fd.h"
#include "shared/base/memory.h"

#include <string.h>

enum { FILE_MAX_BYTES = 64 * 1024 * 1024 };

void packages_file_init(struct packages_file *file)
{
    *file = (struct packages_file){.packages = json_array()};
}

void packages_file_add(struct packages_file *file, const struct message_package *package)
{
    json_array_append_new(file->packages, json_pack("{s:s, s:s, s:s}", "name", package->name, "version",
                                                    package->version, "architecture", package->architecture));
}

bool packages_file_write(struct packages_file *file, const char *folder, const char *manager, char *digest,
                         struct error *err)
{
    AUTO_FREE char *path = memory_printf("%s/packages.json", folder);
    AUTO_FREE char *list = json_dumps(file->packages, JSON_COMPACT);
    if (list == NULL)
        return error_set(err, ERROR_INTERNAL, "the list of packages cannot be written");
    AUTO_FREE char *text = memory_printf("{\"manager\": \"%s\", \"packages\": %s}\n", manager, list);
    if (digest)
        blob_digest(list, strlen(list), digest);
    return fd_write_file(path, 0600, text, strlen(text), err);
}

void packages_file_done(struct packages_file *file)
{
    json_decref(file->packages);
    *file = (struct packages_file){0};
}

json_t *packages_file_read(const char *folder, struct error *err)
{
    AUTO_FREE char *path = memory_printf("%s/packages.json", folder);
    size_t size = 0;
    AUTO_FREE char *text = fd_read_file(path, FILE_MAX_BYTES, &size, err);
    json_t *value = text ? json_loadb(text, size, JSON_REJECT_DUPLICATES, NULL) : NULL;
    if (text && value == NULL)
        error_set(err, ERROR_INVALID, "%s is damaged", path);
    return value;
}
