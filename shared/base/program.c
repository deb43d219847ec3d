#include "shared/base/program.h"

#include "shared/base/memory.h"

#include <limits.h>
#include <string.h>
#include <unistd.h>

char *program_folder(void)
{
    char self[PATH_MAX];
    ssize_t length = readlink("/proc/self/exe", self, sizeof self - 1);
    self[length > 0 ? length : 0] = '\0';
    const char *slash = strrchr(self, '/');
    return memory_copy(self, slash ? (size_t)(slash - self) : 0);
}

char *program_beside(const char *name)
{
    AUTO_FREE char *folder = program_folder();
    return memory_printf("%s/%s", folder, name);
}
