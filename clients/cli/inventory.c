#include "clients/cli/inventory.h"

#include "clients/cli/amount.h"

#include "shared/base/memory.h"

#include <stdio.h>
#include <string.h>

static const size_t MOST = 100000;

/* A list of texts as one: "n1,n2". The caller frees. */
static char *joined(const json_t *list)
{
    AUTO_TEXT text = {0};
    size_t index;
    json_t *one;
    json_array_foreach (list, index, one) {
        const char *name = json_string_value(one);
        text_append_format(&text, "%s%s", index ? "," : "", name ? name : "?");
    }
    return cli_safe(text.length ? text.data : NULL);
}

static char *cell(const json_t *row, const struct inventory_column *column)
{
    const json_t *value = json_object_get(row, column->member);
    char words[24] = "-";
    if (column->kind == INVENTORY_LIST)
        return joined(value);
    if (column->kind == INVENTORY_TEXT)
        return cli_member(row, column->member);
    if (column->kind == INVENTORY_AGE)
        cli_print_when(words, json_string_value(value));
    else if (json_is_integer(value) && json_integer_value(value) >= 0)
        amount_format(words, (uint64_t)json_integer_value(value));
    return memory_string(words);
}

static void print_row(const struct inventory *inventory, const json_t *row)
{
    for (const struct inventory_column *column = inventory->columns; column->title; column++) {
        AUTO_FREE char *text = row ? cell(row, column) : memory_string(column->title);
        printf("%-*s%c", column->width, text, column[1].title ? ' ' : '\n');
    }
}

static int list(const struct inventory *inventory, const struct cli_common *common, const struct place *place)
{
    struct error err = {0};
    const struct negotiator_list wanted = {
        .path = inventory->path, .member = inventory->member, .next = "next_cursor", .most = MOST};
    json_t *rows = negotiator_list(place, &wanted, &err);
    if (!rows)
        return cli_fail_usual(&err, CLI_FAILED);
    if (common->json) {
        cli_print_json(rows);
        return CLI_OK;
    }
    print_row(inventory, NULL);
    size_t index;
    json_t *row;
    json_array_foreach (rows, index, row)
        print_row(inventory, row);
    json_decref(rows);
    return CLI_OK;
}

static int remove_all(const struct inventory *inventory, const struct cli_common *common, const struct place *place,
                      char *const *names)
{
    int status = CLI_OK;
    json_t *removed = json_array();
    for (; *names; names++) {
        struct error err = {0};
        if (inventory->remove(place, *names, &err))
            json_array_append_new(removed, json_string(*names));
        else
            status = cli_fail_usual(&err, CLI_FAILED);
    }
    if (common->json && status == CLI_OK) /* else the first failure was the one value */
        cli_print_json(removed);
    else
        json_decref(removed);
    return status;
}

int inventory_run(const struct inventory *inventory, int argc, char *argv[])
{
    static const struct option LONG[] = {CLI_COMMON_OPTIONS};
    struct cli_common common = {0};
    int option;
    while ((option = getopt_long(argc, argv, "", LONG, NULL)) != -1)
        (void)cli_common(&common, option, inventory->help);
    const char *verb = optind < argc ? argv[optind++] : "ls";
    bool is_rm = inventory->remove && strcmp(verb, "rm") == 0;
    if (!is_rm && strcmp(verb, "ls") != 0)
        return cli_usage(inventory->command, "what is \"%s\"? Allowed: ls%s", verb, inventory->remove ? ", rm" : "");
    if (!is_rm && optind < argc)
        return cli_usage(inventory->command, "unexpected word \"%s\"", argv[optind]);
    if (is_rm && optind == argc)
        return cli_usage(inventory->command, "rm which one? Give a name or an id");
    AUTO_PLACE place = {0};
    if (!cli_place(&place, &common))
        return CLI_FAILED;
    return is_rm ? remove_all(inventory, &common, &place, argv + optind) : list(inventory, &common, &place);
}
