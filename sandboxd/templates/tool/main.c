/* parley-template: `parley-sandboxd template`, a program of its own so that neither launcher nor front hold an archive
 * reader. */
#include "sandboxd/templates/tool/commands.h"

#include "shared/base/config.h"
#include "shared/base/memory.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static const struct {
    const char *name;
    int (*run)(struct command *command, int argc, char *argv[]);
    const char *help;
} COMMANDS[] = {
    {"import", command_import, "a docker-save archive or an OCI layout becomes a template"},
    {"build", command_build, "a Debian suite becomes a template"},
    {"ls", command_ls, "the templates of this node"},
    {"show", command_show, "all of one; --packages: what is installed in it"},
    {"rm", command_rm, "remove one; sandboxes made of it live on"},
};
enum { COUNT = sizeof COMMANDS / sizeof COMMANDS[0] };

static int print_help(FILE *to, int status)
{
    fputs("usage: parley template COMMAND [options]     as root; see COMMAND --help\n\n", to);
    for (size_t i = 0; i < COUNT; i++)
        fprintf(to, "  %-8s %s\n", COMMANDS[i].name, COMMANDS[i].help);
    return status;
}

int main(int argc, char *argv[])
{
    signal(SIGPIPE, SIG_IGN);
    umask(0077);
    if (argc < 2 || strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "help") == 0)
        return print_help(argc < 2 ? stderr : stdout, argc < 2 ? 2 : 0);
    AUTO_FREE char *state = config_state_folder(argc - 1, argv + 1);
    AUTO_FREE char *folder = memory_printf("%s/sandboxd/templates", state);
    struct command command = {.folder = folder};
    for (size_t i = 0; i < COUNT; i++) {
        if (strcmp(argv[1], COMMANDS[i].name) == 0)
            return COMMANDS[i].run(&command, argc - 1, argv + 1);
    }
    fprintf(stderr, "parley template: no command \"%s\"\n", argv[1]);
    return print_help(stderr, 2);
}
