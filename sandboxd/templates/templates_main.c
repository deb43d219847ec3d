#include "sandboxd/templates/templates.h"

#include "shared/base/memory.h"
#include "shared/base/program.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static const char PROGRAM[] = "parley-template";

int templates_main(int argc, char *const argv[])
{
    AUTO_FREE char *path = program_beside(PROGRAM);
    char **arguments = memory_array((size_t)argc + 2, sizeof *arguments);
    arguments[0] = path;
    for (int i = 0; i < argc; i++)
        arguments[i + 1] = argv[i];
    execv(path, arguments);
    fprintf(stderr, "parley-sandboxd template: %s cannot be started: %s\n", path, strerrordesc_np(errno));
    free(arguments);
    return 1;
}
