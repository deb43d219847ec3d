/** shell.c - `parley shell`: a terminal in the thread's sandbox. */
#include "clients/cli/cli.h"
#include "clients/cli/console.h"
#include "clients/cli/session_view.h"
#include "clients/cli/wish_options.h"

#include "clients/c/grant.h"

#include "shared/base/memory.h"
#include "shared/base/random.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char HELP[] =
    "usage: parley shell [options] [--] [CMD [ARG...]]\n"
    "       parley shell --attach ID [options]\n\n"
    "A terminal in the sandbox of a thread: the login shell, or CMD. It outlives connections: one that breaks is made\n"
    "again without a byte lost. ~. at the beginning of a line leaves, and `parley attach ID` comes back; ~? tells "
    "more.\n\n"
    "  --attach ID        come back to a terminal instead of starting one\n"
    "  --sandbox NAME     auto (default), or a sandbox's name or id as a hint\n"
    "  --thread T         the conversation (default: the current folder's own)\n"
    "  --scopes 'A B'     ask for these scopes only (needs at least shell)\n"
    "  --ttl S            let the token live S seconds, 60 to 3600; it is renewed all the time\n"
    "  --cwd DIR          folder inside (default: the template's, /workspace in base)\n"
    "  --env NAME=VALUE   set a variable; repeatable (TERM is set)\n"
    "  --user root        as the root of its user namespace, where policy allows\n"
    "  -v, --verbose      tell which sandbox is used\n" WISH_HELP CLI_COMMON_HELP
    "\nExit status: the shell's own, 128 + n when signal n ended it, 0 after ~., 125 parley failed, 2 wrong use.\n"
    "\nExamples:\n"
    "  parley shell\n"
    "  parley shell --thread try --template snapshot:installed --user root -- apt-get install jq\n";

struct shell_options {
    struct cli_common common;
    const char *attach, *sandbox, *thread, *scopes, *cwd, *user;
    struct cli_variables variables;
    struct wish_options wish;
    unsigned ttl_s;
    bool verbose;
};

static int take_option(struct shell_options *options, int option)
{
    switch (option) {
    case 'a':
        options->attach = optarg;
        return 0;
    case 's':
        options->sandbox = optarg;
        return 0;
    case 't':
        options->thread = optarg;
        return 0;
    case 'S':
        options->scopes = optarg;
        return 0;
    case 'u':
        options->user = optarg;
        return 0;
    case 'C':
        options->cwd = optarg;
        return 0;
    case 'v':
        options->verbose = true;
        return 0;
    case 'L':
        return cli_ttl("shell", optarg, &options->ttl_s);
    case 'e':
        return cli_add_variable(&options->variables, "shell", optarg);
    default:
        return 0;
    }
}

static int read_options(struct shell_options *options, int argc, char *argv[])
{
    static const struct option LONG[] = {{"attach", required_argument, NULL, 'a'},
                                         {"sandbox", required_argument, NULL, 's'},
                                         {"thread", required_argument, NULL, 't'},
                                         {"scopes", required_argument, NULL, 'S'},
                                         {"ttl", required_argument, NULL, 'L'},
                                         {"cwd", required_argument, NULL, 'C'},
                                         {"env", required_argument, NULL, 'e'},
                                         {"verbose", no_argument, NULL, 'v'},
                                         {"user", required_argument, NULL, 'u'},
                                         WISH_OPTIONS,
                                         CLI_COMMON_OPTIONS};
    int option, wrong = 0;
    while (!wrong && (option = getopt_long(argc, argv, "+v", LONG, NULL)) != -1) {
        if (!cli_common(&options->common, option, HELP) && !wish_option(&options->wish, "shell", option, &wrong))
            wrong = take_option(options, option);
    }
    bool is_new =
        optind < argc || options->cwd || options->variables.count > 1 || options->user || options->wish.members;
    if (!wrong && options->attach && is_new)
        return cli_usage("shell", "--attach comes back to what is there: no command and no option on a new one goes "
                                  "with it");
    if (!wrong && (!isatty(STDIN_FILENO) || !isatty(STDOUT_FILENO)))
        return cli_usage("shell", "%s is no terminal; for scripts and pipes there is `parley run -- CMD`",
                         isatty(STDIN_FILENO) ? "stdout" : "stdin");
    return wrong;
}

static int open_shell(struct shell_options *options, char *const *arguments)
{
    const struct remote_command command = {.arguments = arguments[0] ? (const char *const *)arguments : NULL,
                                           .cwd = options->cwd,
                                           .variables = options->variables.list,
                                           .user = options->user,
                                           .has_stdin = true};
    AUTO_PLACE place = {0};
    struct error err = {0};
    if (!remote_command_check(&command, &err))
        return cli_fail(&err, NULL, CLI_USAGE);
    if (!cli_place(&place, &options->common))
        return CLI_NO_SANDBOX;
    AUTO_FREE char *thread = cli_thread(options->thread);
    const struct grant_request request = {.thread = thread,
                                          .sandbox = options->sandbox,
                                          .scopes = options->scopes,
                                          .ttl_s = options->ttl_s,
                                          .more = options->wish.members,
                                          .mode = options->attach ? "attach_only" : NULL};
    AUTO_GRANT grant = {0};
    if (!grant_get(&grant, &place, &request, &err))
        return wish_fail(&options->wish, &err, CLI_NO_SANDBOX);
    if (options->attach)
        return session_view_attach(&place, &request, &grant, options->attach, SESSION_VIEW_TYPES, options->verbose);
    char id[RANDOM_ID_BYTES];
    random_id(id, "trm");
    const struct console_wanted wanted = {.use = SESSION_START,
                                          .input = CONSOLE_KEYS,
                                          .tty = true,
                                          .id = id,
                                          .command = &command,
                                          .thread = thread,
                                          .verbose = options->verbose};
    struct console_end end;
    bool ran = console_run_with_grant(&wanted, &place, &request, &grant, &end, &err);
    return console_status(&wanted, ran, &end, &err);
}

int shell_main(int argc, char *argv[])
{
    struct shell_options options = {0};
    const char *terminal = getenv("TERM");
    AUTO_FREE char *variable = memory_printf("TERM=%s", terminal && *terminal ? terminal : "xterm-256color");
    int wrong = cli_add_variable(&options.variables, "shell", variable);
    if (!wrong)
        wrong = read_options(&options, argc, argv);
    if (!wrong)
        wrong = open_shell(&options, argv + optind);
    free(options.variables.list);
    wish_done(&options.wish);
    return wrong;
}
