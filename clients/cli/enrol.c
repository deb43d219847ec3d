/** enrol.c - `parley enrol`: this machine's node gets its key from the negotiator beside it, as `parley up` sees to.
 * For whoever starts both planes otherwise: systemd. */
#include "clients/cli/cli.h"
#include "clients/cli/enrolment.h"

#include "shared/base/memory.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

static const char HELP[] =
    "usage: parley enrol [--missing] [--port N] [--state DIR]\n\n"
    "Gives sandboxd of this machine its key, with the admin key of the negotiator that runs beside it: what `parley "
    "up`\n"
    "does by itself. Again: harmless. A machine without a negotiator joins by `parley nodes add` there and\n"
    "`parley-sandboxd enrol` here.\n\n"
    "  --missing          nothing, if it has a key: of whatever deployment\n"
    "  --port N           the negotiator's on 127.0.0.1 (default 8700)\n" CLI_COMMON_HELP;

int enrol_main(int argc, char *argv[])
{
    static const struct option LONG[] = {
        {"missing", no_argument, NULL, 'm'}, {"port", required_argument, NULL, 'p'}, CLI_COMMON_OPTIONS};
    struct cli_common common = {0};
    bool only_missing = false;
    uint64_t port = 8700;
    int option;
    while ((option = getopt_long(argc, argv, "", LONG, NULL)) != -1) {
        if (cli_common(&common, option, HELP))
            continue;
        if (option == 'm')
            only_missing = true;
        else if (!text_parse_u64(optarg, strlen(optarg), 65535, &port) || port == 0)
            return cli_usage("enrol", "--port wants 1 to 65535, not \"%s\"", optarg);
    }
    if (optind < argc)
        return cli_usage("enrol", "unexpected word \"%s\"", argv[optind]);
    struct error err = {0};
    AUTO_FREE char *state = cli_state(&common);
    AUTO_FREE char *node = memory_printf("%s/sandboxd/node.json", state);
    AUTO_FREE char *sandboxd = cli_sibling("parley-sandboxd", &err);
    if (!sandboxd)
        return cli_fail(&err, NULL, CLI_FAILED);
    struct supervisor beside = {.state = state, .sandboxd = sandboxd, .port = (uint16_t)port};
    bool is_there = only_missing && access(node, F_OK) == 0;
    if (!is_there && !enrolment_ensure(&beside, &err))
        return cli_fail(&err, NULL, CLI_FAILED);
    if (common.json)
        cli_print_json(json_pack("{s:b}", "was_enrolled", is_there));
    return CLI_OK;
}
