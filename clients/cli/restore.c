/** restore.c - `parley restore`: a new sandbox that begins with a snapshot's files. */
#include "clients/cli/cli.h"
#include "clients/cli/wish_options.h"

#include "clients/c/remote_fork.h"

#include "shared/base/memory.h"

#include <stdio.h>

static const char HELP[] =
    "usage: parley restore SNAPSHOT [--thread T] [--name NAME] [options]\n\n"
    "Makes a new sandbox with the files of a snapshot (its name or id), for a thread that has none. The snapshot "
    "stays.\n\n"
    "  --thread T         the conversation (default: the current folder's own)\n"
    "  --name NAME        what to call the sandbox\n" WISH_BEGIN_HELP CLI_COMMON_HELP "\nExamples:\n"
    "  parley restore installed --thread try-2 --memory 1g\n"
    "  parley shell --thread try-2\n";

static int print_made(const struct remote_fork *fork, const char *snapshot, bool json)
{
    const struct grant *grant = &fork->grant;
    if (json) {
        cli_print_json(json_pack("{s:s, s:s, s:s, s:s}", "sandbox", grant->sandbox_id, "sandbox_name",
                                 grant->sandbox_name, "thread", fork->thread, "snapshot", snapshot));
        return CLI_OK;
    }
    AUTO_FREE char *name = cli_safe(grant->sandbox_name), *id = cli_safe(grant->sandbox_id);
    printf("%s\n", id);
    fprintf(stderr, "parley: sandbox %s (%s), thread %s\n", name, id, fork->thread);
    return CLI_OK;
}

static int failure(const struct error *err, const char *thread)
{
    if (err->kind != ERROR_CONFLICT)
        return cli_fail_usual(err, CLI_FAILED);
    AUTO_FREE char *hint = memory_printf("if thread %s has a sandbox: --thread NAME takes another thread, `parley rm` "
                                         "ends the sandbox",
                                         thread);
    return cli_fail(err, hint, CLI_FAILED);
}

static int restore(const struct cli_common *common, const struct wish_options *wish, const char *snapshot,
                   const char *given_thread)
{
    AUTO_PLACE place = {0};
    if (!cli_place(&place, common))
        return CLI_FAILED;
    AUTO_FREE char *thread = cli_thread(given_thread);
    const char *threads[] = {thread};
    const struct remote_fork_wanted wanted = {
        .snapshot = snapshot, .threads = threads, .count = 1, .more = wish->members};
    struct remote_fork fork = {0};
    bool made = remote_fork_all(&place, &wanted, &fork) == 1;
    int status = made ? print_made(&fork, snapshot, common->json) : failure(&fork.error, thread);
    remote_forks_done(&fork, 1);
    return status;
}

int restore_main(int argc, char *argv[])
{
    static const struct option LONG[] = {{"thread", required_argument, NULL, 't'},
                                         {"name", required_argument, NULL, 'n'},
                                         WISH_BEGIN_OPTIONS,
                                         CLI_COMMON_OPTIONS};
    struct cli_common common = {0};
    AUTO_WISH wish = {0};
    const char *thread = NULL;
    int option, wrong = CLI_OK;
    while (!wrong && (option = getopt_long(argc, argv, "", LONG, NULL)) != -1) {
        if (cli_common(&common, option, HELP) || wish_option(&wish, "restore", option, &wrong))
            continue;
        if (option == 't')
            thread = optarg;
        else
            wish_put(&wish, "name", json_string(optarg));
    }
    if (wrong)
        return wrong;
    if (optind + 1 != argc)
        return cli_usage("restore", optind < argc ? "one snapshot at a time" : "which snapshot? Give its name or id");
    return restore(&common, &wish, argv[optind], thread);
}
