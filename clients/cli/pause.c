/** pause.c - `parley pause` and `parley resume`: a sandbox stands still, and goes on. */
#include "clients/cli/each_sandbox.h"

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

/* The cookie is the verb's. */
struct verb {
    pause_verb *call;
};

static bool act(const struct place *place, const char *id, const void *cookie, json_t **sandbox, struct error *err)
{
    const struct verb *verb = cookie;
    return verb->call(place, id, sandbox, err);
}

static void print(const json_t *sandbox)
{
    AUTO_FREE char *name = cli_member(sandbox, "name"), *state = cli_member(sandbox, "state");
    printf("%s %s\n", name, state);
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
    const struct each_sandbox each = {.thread = thread, .act = act, .print = print, .cookie = &(struct verb){verb}};
    return each_sandbox(&common, argv + optind, &each);
}

int pause_main(int argc, char *argv[])
{
    return run(PAUSE_HELP, remote_sandbox_pause, argc, argv);
}

int resume_main(int argc, char *argv[])
{
    return run(RESUME_HELP, remote_sandbox_resume, argc, argv);
}
