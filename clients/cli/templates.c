/** templates.c - `parley templates`: what a sandbox may begin with, by the negotiator's word. */
#include "clients/cli/inventory.h"

static const char HELP[] =
    "usage: parley templates [ls]\n\n"
    "Lists the templates that the nodes have and your role may use: `parley run --template NAME`.\n"
    "`sudo parley template` imports, builds and removes those of this machine.\n\n" CLI_COMMON_HELP;

int templates_main(int argc, char *argv[])
{
    static const struct inventory_column COLUMNS[] = {{"NAME", "name", 20, INVENTORY_TEXT},
                                                      {"ALLOWED", "allowed", 7, INVENTORY_TEXT},
                                                      {"SIZE", "size_bytes", 10, INVENTORY_BYTES},
                                                      {"MADE", "created_at", 9, INVENTORY_AGE},
                                                      {"NODES", "nodes", 12, INVENTORY_LIST},
                                                      {"SOURCE", "source", 0, INVENTORY_TEXT},
                                                      {0}};
    static const struct inventory INVENTORY = {
        .command = "templates", .help = HELP, .path = "/templates", .member = "templates", .columns = COLUMNS};
    return inventory_run(&INVENTORY, argc, argv);
}
