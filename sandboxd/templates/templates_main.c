#include "sandboxd/templates/templates.h"

#include "shared/base/memory.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static const char PROGRAM[] = "parley-template";

int templates_main(int argc, char *const argv[])
{
    char self[4096];
    ssize_t length = readlink("/proc/self/exe", self, sizeof self - 1);
    self[length > 0 ? length : 0] = '\0';
    char *slash = strrchr(self, '/');
    if (slash)
        *slash = '\0';
    AUTO_FREE char *path = memory_printf("%s/%s", self, PROGRAM);
    char **arguments = memory_array((size_t)argc + 2, sizeof *arguments);
    arguments[0] = path;
    for (int i = 0; i < argc; i++)
        arguments[i + 1] = argv[i];
    execv(path, arguments);
    fprintf(stderr, "parley-sandboxd template: %s cannot be started: %s\n", path, strerrordesc_np(errno));
    free(arguments);
    return 1;
}
