/** ls.c - `parley ls`: the sandboxes that the key may see. */
#include "clients/cli/cli.h"

#include "shared/base/memory.h"

#include <stdio.h>
#include <string.h>

static const char HELP[] = "usage: parley ls [-a]\n\n"
                           "  -a                 ended ones too\n" CLI_COMMON_HELP;

static const char *text_of(const json_t *object, const char *name)
{
    const char *text = json_string_value(json_object_get(object, name));
    return text ? text : "-";
}

static bool is_over(const json_t *sandbox)
{
    const char *state = text_of(sandbox, "state");
    return strcmp(state, "terminated") == 0 || strcmp(state, "failed") == 0;
}

/* Follows the cursor to the end; NULL on failure. */
static json_t *fetch_all(const struct place *place, bool ended_too, struct error *err)
{
    const char *which = ended_too ? "/sandboxes?limit=200&state=all" : "/sandboxes?limit=200";
    json_t *all = json_array();
    AUTO_FREE char *path = memory_string(which);
    while (path) {
        json_t *page = NULL;
        if (!cli_call(place, "GET", path, NULL, &page, err)) {
            json_decref(all);
            return NULL;
        }
        json_array_extend(all, json_object_get(page, "sandboxes"));
        const char *cursor = json_string_value(json_object_get(page, "next_cursor"));
        free(path);
        path = cursor ? memory_printf("%s&cursor=%s", which, cursor) : NULL;
        json_decref(page);
    }
    return all;
}

static void print_row(const json_t *sandbox)
{
    char age[16], left[16];
    cli_print_age(age, json_string_value(json_object_get(sandbox, "created_at")));
    cli_print_age(left, json_string_value(json_object_get(sandbox, "max_expires_at")));
    printf("%-20s %-26s %-12s %-10s %-10s %-6s %-6s %s\n", text_of(sandbox, "name"), text_of(sandbox, "id"),
           text_of(sandbox, "state"), text_of(sandbox, "template"), text_of(sandbox, "node"), age,
           is_over(sandbox) ? "-" : left, is_over(sandbox) ? text_of(sandbox, "reason") : "");
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
    json_t *sandboxes = fetch_all(&place, all, &err);
    if (!sandboxes)
        return cli_fail_usual(&err, CLI_FAILED);
    if (common.json) {
        cli_print_json(sandboxes);
        return CLI_OK;
    }
    printf("%-20s %-26s %-12s %-10s %-10s %-6s %-6s\n", "NAME", "ID", "STATE", "TEMPLATE", "NODE", "AGE", "LEFT");
    size_t index;
    json_t *sandbox;
    json_array_foreach (sandboxes, index, sandbox) {
        print_row(sandbox);
    }
    json_decref(sandboxes);
    return CLI_OK;
}
