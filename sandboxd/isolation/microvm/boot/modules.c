/* modules.c - drivers: see boot.h. */
#include "sandboxd/isolation/microvm/boot/boot.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/syscall.h>

static int is_module(const struct dirent *entry)
{
    return entry->d_name[0] != '.';
}

static bool load(int folder, const char *name, struct error *err)
{
    AUTO_FD int file = openat(folder, name, O_RDONLY | O_CLOEXEC);
    if (file < 0 || (syscall(SYS_finit_module, file, "", 0) < 0 && errno != EEXIST))
        return error_set_errno(err, ERROR_INTERNAL, "load module %s", name);
    return true;
}

bool boot_load_modules(struct error *err)
{
    struct dirent **entries = NULL;
    AUTO_FD int folder = open("/" BOOT_MODULES, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    int count = folder >= 0 ? scandir("/" BOOT_MODULES, &entries, is_module, alphasort) : -1;
    bool loaded = count >= 0 || error_set_errno(err, ERROR_INTERNAL, "read /" BOOT_MODULES);
    for (int i = 0; i < count; i++) {
        loaded = loaded && load(folder, entries[i]->d_name, err);
        free(entries[i]);
    }
    free(entries);
    return loaded;
}
