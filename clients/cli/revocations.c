/** revocations.c - `parley revocations`: those made so far, and how far one has come. */
#include "clients/cli/cli.h"
#include "clients/cli/revocation_view.h"

#include "shared/base/memory.h"

#include <stdio.h>
#include <string.h>

static const char HELP[] =
    "usage: parley revocations [ID] [--all] [-n N]\n\n"
    "Lists revocations, the newest first; with ID shows one. They are kept until a day after the last token that they\n"
    "match has ended.\n\n"
    "  --all              everybody's (admin)\n"
    "  -n N               at most N (default 50)\n" CLI_COMMON_HELP
    "\nExit status with ID: 0 in force on every node, 3 pending on some.\n";

static int show_list(const struct cli_common *common, const struct place *place, bool all, uint64_t most)
{
    struct error err = {0};
    const struct negotiator_list wanted = {
        .path = all ? "/revocations?all=1" : "/revocations", .member = "revocations", .next = "next", .most = most};
    json_t *list = negotiator_list(place, &wanted, &err);
    if (!list)
        return cli_fail_usual(&err, CLI_FAILED);
    if (common->json) {
        cli_print_json(list);
        return CLI_OK;
    }
    revocation_print_head();
    size_t index;
    json_t *one;
    json_array_foreach (list, index, one) {
        revocation_print_row(one);
    }
    json_decref(list);
    return CLI_OK;
}

static int show_one(const struct cli_common *common, const struct place *place, const char *id)
{
    struct error err = {0};
    AUTO_FREE char *path = negotiator_path("/revocations", id, NULL);
    json_t *reply = NULL;
    if (!negotiator_call(place, "GET", path, NULL, &reply, &err))
        return cli_fail_usual(&err, CLI_FAILED);
    return revocation_show(reply, common->json);
}

int revocations_main(int argc, char *argv[])
{
    static const struct option LONG[] = {{"all", no_argument, NULL, 'a'}, CLI_COMMON_OPTIONS};
    struct cli_common common = {0};
    bool all = false;
    uint64_t most = 50;
    int option;
    while ((option = getopt_long(argc, argv, "n:", LONG, NULL)) != -1) {
        if (cli_common(&common, option, HELP))
            continue;
        if (option == 'a')
            all = true;
        else if (!text_parse_u64(optarg, strlen(optarg), 100000, &most) || most == 0)
            return cli_usage("revocations", "-n wants 1 to 100000, not \"%s\"", optarg);
    }
    if (optind + 1 < argc)
        return cli_usage("revocations", "unexpected word \"%s\"", argv[optind + 1]);
    AUTO_PLACE place = {0};
    if (!cli_place(&place, &common))
        return CLI_FAILED;
    return optind < argc ? show_one(&common, &place, argv[optind]) : show_list(&common, &place, all, most);
}
