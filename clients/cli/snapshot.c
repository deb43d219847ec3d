/** snapshot.c - `parley snapshot`: keeps the files of a sandbox as they are now. */
#include "clients/cli/amount.h"
#include "clients/cli/cli.h"

#include "clients/c/remote_sandbox.h"

#include "shared/base/memory.h"

#include <stdio.h>
#include <string.h>

static const char HELP[] =
    "usage: parley snapshot [SANDBOX] [--name NAME] [--thread T]\n\n"
    "Keeps the files of a sandbox (a name or id; default: the thread's) as they are at this moment, as something that\n"
    "outlives it. It stands still meanwhile: an instant on btrfs, as long as a copy takes elsewhere. Its processes "
    "are\n"
    "not part of it. `parley restore` and `parley fork` begin new sandboxes with it, `parley snapshots` lists them.\n\n"
    "  --name NAME        what to call it; one name once, of all that are yours\n"
    "  --thread T         the conversation (default: the current folder's own)\n" CLI_COMMON_HELP "\nExamples:\n"
    "  parley snapshot --name installed            # of this folder's sandbox\n"
    "  parley restore installed --thread try-2     # another sandbox with these files\n";

static void print_made(const json_t *reply)
{
    const json_t *snapshot = json_object_get(reply, "snapshot");
    char size[16] = "-";
    const json_t *bytes = json_object_get(snapshot, "size_bytes");
    if (json_is_integer(bytes) && json_integer_value(bytes) >= 0)
        amount_format(size, (uint64_t)json_integer_value(bytes));
    AUTO_FREE char *id = cli_member(snapshot, "id"), *name = cli_member(snapshot, "name");
    AUTO_FREE char *storage = cli_member(snapshot, "storage");
    json_int_t running = json_integer_value(json_object_get(json_object_get(reply, "processes"), "running"));
    printf("%s\n", id);
    fprintf(stderr, "parley: snapshot %s%s%s of %s on %s\n", id, strcmp(name, "-") == 0 ? "" : ", ",
            strcmp(name, "-") == 0 ? "" : name, size, storage);
    if (running > 0)
        fprintf(stderr, "parley: %lld running command%s not part of it\n", (long long)running,
                running == 1 ? " is" : "s are");
}

int snapshot_main(int argc, char *argv[])
{
    static const struct option LONG[] = {
        {"name", required_argument, NULL, 'n'}, {"thread", required_argument, NULL, 't'}, CLI_COMMON_OPTIONS};
    struct cli_common common = {0};
    const char *name = NULL, *thread = NULL;
    int option;
    while ((option = getopt_long(argc, argv, "", LONG, NULL)) != -1) {
        if (cli_common(&common, option, HELP))
            continue;
        if (option == 'n')
            name = optarg;
        else if (option == 't')
            thread = optarg;
    }
    if (optind + 1 < argc)
        return cli_usage("snapshot", "unexpected word \"%s\": one sandbox at a time", argv[optind + 1]);
    if (optind < argc && thread)
        return cli_usage("snapshot", "give a sandbox or a --thread, not both");
    AUTO_PLACE place = {0};
    if (!cli_place(&place, &common))
        return CLI_FAILED;
    struct error err = {0};
    json_t *reply = NULL;
    AUTO_FREE char *id = cli_sandbox(&place, argv[optind], thread, &err);
    if (!id || !remote_sandbox_snapshot(&place, id, name, &reply, &err))
        return cli_fail_usual(&err, CLI_FAILED);
    if (common.json) {
        cli_print_json(reply);
        return CLI_OK;
    }
    print_made(reply);
    json_decref(reply);
    return CLI_OK;
}
