/** ls.c - `parley ls`: the sandboxes that the key may see. */
#include "clients/cli/cli.h"

#include "shared/base/memory.h"

#include <stdio.h>
#include <string.h>

static const char HELP[] = "usage: parley ls [-a]\n\n"
                           "  -a                 ended ones too\n" CLI_COMMON_HELP;

static const size_t MOST = 100000;

static void print_row(const json_t *sandbox)
{
    char age[16], left[16];
    cli_print_age(age, json_string_value(json_object_get(sandbox, "created_at")));
    cli_print_age(left, json_string_value(json_object_get(sandbox, "max_expires_at")));
    AUTO_FREE char *name = cli_member(sandbox, "name");
    AUTO_FREE char *id = cli_member(sandbox, "id");
    AUTO_FREE char *state = cli_member(sandbox, "state");
    AUTO_FREE char *template = cli_member(sandbox, "template");
    AUTO_FREE char *storage = cli_member(sandbox, "storage");
    AUTO_FREE char *node = cli_member(sandbox, "node");
    AUTO_FREE char *reason = cli_member(sandbox, "reason");
    bool is_over = strcmp(state, "terminated") == 0 || strcmp(state, "failed") == 0;
    printf("%-20s %-26s %-12s %-16s %-8s %-10s %-6s %-6s %s\n", name, id, state, template, storage, node, age,
           is_over ? "-" : left, is_over ? reason : "");
}

int ls_main(int argc, char *argv[])
{
    static const struct option LONG[] = {{"all", no_argument, NULL, 'a'}, CLI_COMMON_OPTIONS};
    struct cli_common common = {0};
    bool all = false;
    int option;
    while ((option = getopt_long(argc, argv, "a", LONG, NULL)) != -1) {
        if (!cli_common(&common, option, HELP) && option == 'a')
            all = true;
    }
    if (optind < argc)
        return cli_usage("ls", "unexpected word \"%s\"", argv[optind]);
    AUTO_PLACE place = {0};
    if (!cli_place(&place, &common))
        return CLI_FAILED;
    struct error err = {0};
    const struct negotiator_list wanted = {.path = all ? "/sandboxes?state=all" : "/sandboxes",
                                           .member = "sandboxes",
                                           .next = "next_cursor",
                                           .most = MOST};
    json_t *sandboxes = negotiator_list(&place, &wanted, &err);
    if (!sandboxes)
        return cli_fail_usual(&err, CLI_FAILED);
    if (common.json) {
        cli_print_json(sandboxes);
        return CLI_OK;
    }
    printf("%-20s %-26s %-12s %-16s %-8s %-10s %-6s %-6s\n", "NAME", "ID", "STATE", "TEMPLATE", "STORAGE", "NODE",
           "AGE", "LEFT");
    size_t index;
    json_t *sandbox;
    json_array_foreach (sandboxes, index, sandbox) {
        print_row(sandbox);
    }
    json_decref(sandboxes);
    return CLI_OK;
}
