/** limits.c - `parley limits`: what a sandbox may use, shown or changed while it runs. */
#include "clients/cli/amount.h"
#include "clients/cli/cli.h"
#include "clients/cli/wish_options.h"

#include "clients/c/remote_sandbox.h"

#include "shared/base/memory.h"

#include <stdio.h>
#include <string.h>

static const char HELP[] =
    "usage: parley limits [SANDBOX] [--thread T]            show them\n"
    "       parley limits [SANDBOX] [--thread T] LIMIT...   change those given, while it runs\n\n"
    "Of a sandbox (a name or id; default: the thread's).\n\n" WISH_LIMIT_HELP
    "  --thread T         the conversation (default: the current folder's own)\n" CLI_COMMON_HELP
    "\nLess memory than it uses ends what asks for more; fewer pids than there are end none, and new ones fail.\n\n"
    "Examples:\n"
    "  parley limits\n"
    "  parley limits brisk-otter --memory 2g --cpu 4\n";

/* Of a member of "resources": how it is shown. */
static const struct limits_row {
    const char *member, *title;
    bool is_mib;
} ROWS[] = {{"cpu", "cpu", false},        {"memory_mb", "memory", true},       {"disk_mb", "disk", true},
            {"pids", "pids", false},      {"open_files", "open files", false}, {"processes", "processes", false},
            {"output_mb", "output", true}};

/* The caller frees. */
static char *format_limit(const json_t *resources, const struct limits_row *row)
{
    const json_t *value = json_object_get(resources, row->member);
    char size[16];
    if (!value)
        return memory_string("as its node has");
    if (json_is_real(value))
        return memory_printf("%.6g", json_real_value(value));
    if (!row->is_mib || !json_is_integer(value) || json_integer_value(value) < 0)
        return cli_member(resources, row->member);
    amount_format(size, (uint64_t)json_integer_value(value) << 20);
    return memory_string(size);
}

static void print_limits(const json_t *sandbox)
{
    const json_t *resources = json_object_get(sandbox, "resources");
    for (size_t i = 0; i < sizeof ROWS / sizeof *ROWS; i++) {
        AUTO_FREE char *text = format_limit(resources, &ROWS[i]);
        printf("%-12s %s\n", ROWS[i].title, text);
    }
}

static int show_or_change(const struct cli_common *common, const struct wish_options *wish, const char *given,
                          const char *thread)
{
    AUTO_PLACE place = {0};
    if (!cli_place(&place, common))
        return CLI_FAILED;
    struct error err = {0};
    json_t *sandbox = NULL;
    AUTO_FREE char *id = cli_sandbox(&place, given, thread, &err);
    if (id && !wish->members)
        sandbox = remote_sandbox_show(&place, id, &err);
    else if (id && !remote_sandbox_change(&place, id, wish->members, &sandbox, &err))
        sandbox = NULL;
    if (!sandbox)
        return cli_fail_usual(&err, CLI_FAILED);
    if (common->json) {
        json_t *resources = json_incref(json_object_get(sandbox, "resources"));
        cli_print_json(resources ? resources : json_object());
    } else {
        print_limits(sandbox);
    }
    json_decref(sandbox);
    return CLI_OK;
}

int limits_main(int argc, char *argv[])
{
    static const struct option LONG[] = {
        {"thread", required_argument, NULL, 't'}, WISH_LIMIT_OPTIONS, CLI_COMMON_OPTIONS};
    struct cli_common common = {0};
    AUTO_WISH wish = {0};
    const char *thread = NULL;
    int option, wrong = CLI_OK;
    while (!wrong && (option = getopt_long(argc, argv, "", LONG, NULL)) != -1) {
        if (!cli_common(&common, option, HELP) && !wish_option(&wish, "limits", option, &wrong) && option == 't')
            thread = optarg;
    }
    if (wrong)
        return wrong;
    if (optind + 1 < argc)
        return cli_usage("limits", "unexpected word \"%s\": one sandbox at a time", argv[optind + 1]);
    if (optind < argc && thread)
        return cli_usage("limits", "give a sandbox or a --thread, not both");
    return show_or_change(&common, &wish, argv[optind], thread);
}
