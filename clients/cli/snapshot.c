/** snapshot.c - `parley snapshot`: keeps the files of a sandbox as they are now. */
#include "clients/cli/amount.h"
#include "clients/cli/cli.h"

#include "clients/c/remote_sandbox.h"

#include "shared/base/memory.h"
#include "shared/capability/capability.h"

#include <sodium.h>
#include <stdio.h>
#include <string.h>

static const char HELP[] =
    "usage: parley snapshot [SANDBOX | --thread T | --token TOKEN|-] [--name NAME]\n\n"
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
    bool has_name = json_is_string(json_object_get(snapshot, "name"));
    fprintf(stderr, "parley: snapshot %s%s%s%s, %s on %s\n", id, has_name ? " (" : "", has_name ? name : "",
            has_name ? ")" : "", size, storage);
    if (running > 0)
        fprintf(stderr, "parley: %lld running command%s not part of it\n", (long long)running,
                running == 1 ? " is" : "s are");
}

struct snapshot_options {
    struct cli_common common;
    const char *sandbox, *name, *thread, *token;
};

/* Who asks, and of which sandbox: the key's owner of any of theirs, the holder of a token of its own. The caller frees;
 * NULL with err. */
static char *find(const struct snapshot_options *options, struct place *place, struct error *err)
{
    if (!options->token)
        return place_load(place, options->common.url, err) ? cli_sandbox(place, options->sandbox, options->thread, err)
                                                           : NULL;
    if (!place_load_keyless(place, options->common.url, err))
        return NULL;
    if (place->api_key)
        sodium_memzero(place->api_key, strlen(place->api_key));
    free(place->api_key);
    place->api_key = cli_token_text(options->token);
    struct capability_claims claims;
    if (!capability_decode(&claims, place->api_key, strlen(place->api_key), err))
        return NULL;
    return memory_string(claims.sandbox_id);
}

static int take(const struct snapshot_options *options)
{
    AUTO_PLACE place = {0};
    struct error err = {0};
    json_t *reply = NULL;
    AUTO_FREE char *id = find(options, &place, &err);
    if (!id || !remote_sandbox_snapshot(&place, id, options->name, &reply, &err))
        return options->token ? cli_fail(&err, NULL, CLI_FAILED) : cli_fail_usual(&err, CLI_FAILED);
    if (options->common.json) {
        cli_print_json(reply);
        return CLI_OK;
    }
    print_made(reply);
    json_decref(reply);
    return CLI_OK;
}

int snapshot_main(int argc, char *argv[])
{
    static const struct option LONG[] = {{"name", required_argument, NULL, 'n'},
                                         {"thread", required_argument, NULL, 't'},
                                         {"token", required_argument, NULL, 'k'},
                                         CLI_COMMON_OPTIONS};
    struct snapshot_options options = {0};
    int option;
    while ((option = getopt_long(argc, argv, "", LONG, NULL)) != -1) {
        if (cli_common(&options.common, option, HELP))
            continue;
        if (option == 'n')
            options.name = optarg;
        else if (option == 't')
            options.thread = optarg;
        else
            options.token = optarg;
    }
    if (optind + 1 < argc)
        return cli_usage("snapshot", "unexpected word \"%s\": one sandbox at a time", argv[optind + 1]);
    options.sandbox = argv[optind];
    int given = (options.sandbox ? 1 : 0) + (options.thread ? 1 : 0) + (options.token ? 1 : 0);
    if (given > 1)
        return cli_usage("snapshot", "give a sandbox, a --thread or a --token, not two of them");
    return take(&options);
}
