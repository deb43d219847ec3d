/** rm.c - `parley rm`: ends sandboxes. */
#include "clients/cli/cli.h"

#include "clients/c/remote_sandbox.h"

#include "shared/base/memory.h"

#include <stdio.h>

static const char HELP[] =
    "usage: parley rm (NAME | ID)... | --thread T\n\n"
    "Ends sandboxes: SIGTERM, 10 s, SIGKILL; their files are gone. With --thread only that thread's\n"
    "lease ends; the sandbox lives while another thread holds it.\n\n"
    "  --thread T         release this thread's sandbox\n" CLI_COMMON_HELP;

static bool remove_one(const struct place *place, const char *given, struct error *err)
{
    AUTO_FREE char *id = remote_sandbox_find(place, given, err);
    return id && remote_sandbox_end(place, id, err);
}

static bool release(const struct place *place, const char *thread, struct error *err)
{
    AUTO_FREE char *path = negotiator_path("/threads", thread, "sandbox");
    return negotiator_call(place, "DELETE", path, NULL, NULL, err);
}

int rm_main(int argc, char *argv[])
{
    static const struct option LONG[] = {{"thread", required_argument, NULL, 't'}, CLI_COMMON_OPTIONS};
    struct cli_common common = {0};
    const char *thread = NULL;
    int option;
    while ((option = getopt_long(argc, argv, "", LONG, NULL)) != -1) {
        if (!cli_common(&common, option, HELP) && option == 't')
            thread = optarg;
    }
    if (optind == argc && !thread)
        return cli_usage("rm", "which one? Give a name, an id or --thread T");
    AUTO_PLACE place = {0};
    if (!cli_place(&place, &common))
        return CLI_FAILED;
    struct error err = {0};
    int status = CLI_OK;
    json_t *removed = json_array();
    if (thread && !release(&place, thread, &err))
        status = cli_fail_usual(&err, CLI_FAILED);
    else if (thread)
        json_array_append_new(removed, json_string(thread));
    for (int i = optind; i < argc; i++) {
        if (!remove_one(&place, argv[i], &err))
            status = cli_fail_usual(&err, CLI_FAILED);
        else
            json_array_append_new(removed, json_string(argv[i]));
    }
    if (common.json && status == CLI_OK) /* else the first failure was the one value */
        cli_print_json(removed);
    else
        json_decref(removed);
    return status;
}
