/** attach.c - `parley attach`: back to a process of the sandbox; `parley watch`: looks at a terminal. */
#include "clients/cli/cli.h"
#include "clients/cli/session_view.h"

#include "clients/c/grant.h"

#include <string.h>

static const char ATTACH_HELP[] =
    "usage: parley attach [options] [ID]\n\n"
    "Comes back to a process of the thread's sandbox: `parley ps` lists them. A terminal is as `parley shell` left it, "
    "with\n"
    "what it showed; of any other process the output comes from the first byte kept, stdin is passed on while it is "
    "open,\n"
    "and so are signals; the third Ctrl-C leaves. Without ID: the newest terminal.\n\n"
    "  --watch            only look; Ctrl-C leaves\n"
    "  -n, --no-stdin     pass no stdin on; Ctrl-C leaves\n"
    "  --sandbox NAME     auto (default), or a sandbox's name or id as a hint\n"
    "  --thread T         the conversation (default: the current folder's own)\n"
    "  -v, --verbose      tell of lost connections\n" CLI_COMMON_HELP
    "\n--url may be a capability URL (`parley share`): whatever its token allows, without a key; one that may only "
    "look\n"
    "watches. `--url -` reads it from stdin, PARLEY_URL is the other way past the process list.\n"
    "\nExit status: the process's own, 128 + n when signal n ended it, 0 when left, 125 parley failed, 2 wrong use.\n";

static const char WATCH_HELP[] =
    "usage: parley watch [options] [ID]\n\n"
    "Looks at a terminal of the thread's sandbox while somebody or nobody drives it, with a token that cannot type.\n"
    "Without ID: the newest terminal. Ctrl-C leaves.\n\n"
    "  --sandbox NAME     auto (default), or a sandbox's name or id as a hint\n"
    "  --thread T         the conversation (default: the current folder's own)\n"
    "  -v, --verbose      tell of lost connections\n" CLI_COMMON_HELP;

struct attach_options {
    struct cli_common common;
    const char *sandbox, *thread;
    bool watch, no_stdin, verbose;
};

static void read_options(struct attach_options *options, int argc, char *argv[], const struct option *names,
                         const char *help)
{
    int option;
    while ((option = getopt_long(argc, argv, names[0].val == 'w' ? "nv" : "v", names, NULL)) != -1) {
        if (cli_common(&options->common, option, help))
            continue;
        if (option == 's')
            options->sandbox = optarg;
        else if (option == 't')
            options->thread = optarg;
        else if (option == 'w')
            options->watch = true;
        else if (option == 'n')
            options->no_stdin = true;
        else
            options->verbose = true;
    }
}

static int attach(const struct attach_options *options, const char *id, enum session_view_use use)
{
    AUTO_PLACE place = {0};
    if (!cli_place(&place, &options->common))
        return CLI_NO_SANDBOX;
    AUTO_FREE char *thread = cli_thread(options->thread);
    const struct grant_request request = {.thread = thread, .sandbox = options->sandbox, .mode = "attach_only"};
    AUTO_GRANT grant = {0};
    struct error err = {0};
    if (!grant_get(&grant, &place, &request, &err))
        return cli_fail_usual(&err, CLI_NO_SANDBOX);
    return session_view_attach(&place, &request, &grant, id, use, options->verbose);
}

int attach_main(int argc, char *argv[])
{
    static const struct option LONG[] = {
        {"watch", no_argument, NULL, 'w'},         {"no-stdin", no_argument, NULL, 'n'},
        {"sandbox", required_argument, NULL, 's'}, {"thread", required_argument, NULL, 't'},
        {"verbose", no_argument, NULL, 'v'},       CLI_COMMON_OPTIONS};
    struct attach_options options = {0};
    read_options(&options, argc, argv, LONG, ATTACH_HELP);
    if (optind + 1 < argc)
        return cli_usage("attach", "unexpected word \"%s\"", argv[optind + 1]);
    enum session_view_use use = options.watch      ? SESSION_VIEW_WATCHES
                                : options.no_stdin ? SESSION_VIEW_LISTENS
                                                   : SESSION_VIEW_TYPES;
    return attach(&options, argv[optind], use);
}

int watch_main(int argc, char *argv[])
{
    static const struct option LONG[] = {{"sandbox", required_argument, NULL, 's'},
                                         {"thread", required_argument, NULL, 't'},
                                         {"verbose", no_argument, NULL, 'v'},
                                         CLI_COMMON_OPTIONS};
    struct attach_options options = {0};
    read_options(&options, argc, argv, LONG, WATCH_HELP);
    if (optind + 1 < argc)
        return cli_usage("watch", "unexpected word \"%s\"", argv[optind + 1]);
    return attach(&options, argv[optind], SESSION_VIEW_WATCHES_TERMINAL);
}
