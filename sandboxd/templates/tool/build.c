#include "sandboxd/templates/tool/commands.h"
int command_build(struct command *command, int argc, char *argv[])
{
    (void)argc;
    (void)argv;
    return command_fail(command, &(struct error){.kind = ERROR_INTERNAL, .message = "build comes next"});
}
