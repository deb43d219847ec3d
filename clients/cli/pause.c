/** pause.c - `parley pause` and `parley resume`: a sandbox stands still, and goes on. */
#include "clients/cli/cli.h"

#include "clients/c/remote_sandbox.h"

#include "shared/base/memory.h"

#include <stdio.h>

static const char PAUSE_HELP[] =
    "usage: parley pause [SANDBOX]... [--thread T]\n\n"
    "Stops everything that runs in sandboxes (names or ids; default: the thread's): it takes no processor then, keeps "
    "its\n"
    "memory, and goes on where it stood with the next use or `parley resume`. Its time to live goes on.\n\n"
    "  --thread T         the conversation (default: the current folder's own)\n" CLI_COMMON_HELP
    "\n`--on-idle pause` of `parley run` does it by itself when nobody uses a sandbox.\n";

static const char RESUME_HELP[] =
    "usage: parley resume [SANDBOX]... [--thread T]\n\n"
    "Lets paused sandboxes (names or ids; default: the thread's) go on. Any use of one does so too.\n\n"
    "  --thread T         the conversation (default: the current folder's own)\n" CLI_COMMON_HELP;

typedef bool pause_verb(const struct place *place, const char *id, json_t **sandbox, struct error *err);

static bool act(const struct place *place, const char *given, const char *thread, pause_verb *verb, json_t *list,
                struct error *err)
{
    AUTO_FREE char *id = cli_sandbox(place, given, thread, err);
    json_t *sandbox = NULL;
    if (!id || !verb(place, id, &sandbox, err))
        return false;
    json_array_append_new(list, sandbox);
    return true;
}

static void print(json_t *list)
{
    size_t index;
    json_t *sandbox;
    json_array_foreach (list, index, sandbox) {
        AUTO_FREE char *name = cli_member(sandbox, "name"), *state = cli_member(sandbox, "state");
        printf("%s %s\n", name, state);
    }
}

static int run(const char *help, pause_verb *verb, int argc, char *argv[])
{
    static const struct option LONG[] = {{"thread", required_argument, NULL, 't'}, CLI_COMMON_OPTIONS};
    struct cli_common common = {0};
    const char *thread = NULL;
    int option;
    while ((option = getopt_long(argc, argv, "", LONG, NULL)) != -1) {
        if (!cli_common(&common, option, help) && option == 't')
            thread = optarg;
    }
    if (optind < argc && thread)
        return cli_usage(argv[0], "give sandboxes or a --thread, not both");
    AUTO_PLACE place = {0};
    if (!cli_place(&place, &common))
        return CLI_FAILED;
    int status = CLI_OK, at = optind;
    json_t *list = json_array();
    do { /* once without any word */
        struct error err = {0};
        if (!act(&place, argv[at], thread, verb, list, &err))
            status = cli_fail_usual(&err, CLI_FAILED);
    } while (argv[at] && argv[++at]);
    if (!common.json)
        print(list);
    else if (status == CLI_OK) /* else the first failure was the one value */
        cli_print_json(json_incref(list));
    json_decref(list);
    return status;
}

int pause_main(int argc, char *argv[])
{
    return run(PAUSE_HELP, remote_sandbox_pause, argc, argv);
}

int resume_main(int argc, char *argv[])
{
    return run(RESUME_HELP, remote_sandbox_resume, argc, argv);
}
