#include "sandboxd/templates/tool/build.h"
#include "sandboxd/templates/tool/commands.h"

#include <getopt.h>
#include <string.h>

static const char HELP[] =
    "usage: parley template build NAME --suite SUITE [--include a,b,c] [--packages FILE] [options]\n\n"
    "Builds a template of Debian packages by debootstrap (minbase). Packages are fetched and their signatures\n"
    "checked in a throw-away sandbox with the host's network; their scripts run in one without.\n\n"
    "  --suite SUITE      bookworm, trixie, ...\n"
    "  --mirror URL       (default http://deb.debian.org/debian)\n"
    "  --include LIST     packages beside those of minbase\n"
    "  --packages FILE    more of them, one a line, # begins a comment\n"
    "  --max-mb N         MiB that no file of it may pass (default 20480)\n"
    "  --timeout S        seconds that each stage may take (default 1800)\n"
    "  --quiet            no progress on stderr\n" COMMAND_HELP_TEXT;

static void take_option(struct command *command, struct build_options *options, int option)
{
    if (option == 's')
        options->suite = optarg;
    else if (option == 'u')
        options->mirror = optarg;
    else if (option == 'i')
        options->include = optarg;
    else if (option == 'p')
        options->packages_file = optarg;
    else if (option == 'm')
        options->limits.bytes = command_number("max-mb", optarg, 1, 1 << 24) << 20;
    else if (option == 't')
        options->timeout_s = (unsigned)command_number("timeout", optarg, 1, 86400);
    else if (option == 'q')
        options->is_quiet = true;
    else
        command_option(command, option, HELP);
}

int command_build(struct command *command, int argc, char *argv[])
{
    static const struct option OPTIONS[] = {
        {"suite", required_argument, NULL, 's'},   {"mirror", required_argument, NULL, 'u'},
        {"include", required_argument, NULL, 'i'}, {"packages", required_argument, NULL, 'p'},
        {"max-mb", required_argument, NULL, 'm'},  {"timeout", required_argument, NULL, 't'},
        {"quiet", no_argument, NULL, 'q'},         COMMAND_OPTIONS};
    struct build_options options = {.mirror = "http://deb.debian.org/debian",
                                    .limits = {.bytes = 20480ULL << 20, .entries = 2000000},
                                    .timeout_s = 1800};
    for (int option; (option = getopt_long(argc, argv, "", OPTIONS, NULL)) != -1;)
        take_option(command, &options, option);
    if (optind + 1 != argc)
        return command_usage(HELP, "one NAME is wanted");
    options.name = argv[optind];
    if (!template_is_name(options.name) || strcmp(options.name, "base") == 0)
        return command_usage(HELP, "NAME: 1..40 of a-z 0-9 . _ -, beginning with a letter; not auto, base, snapshot");
    if (options.suite == NULL)
        return command_usage(HELP, "--suite is wanted, such as --suite bookworm");
    struct error err = {0};
    struct template made;
    if (!build_run(command->folder, &options, &made, &err))
        return command_fail(command, &err);
    command_print(command, &made);
    return 0;
}
