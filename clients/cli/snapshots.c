/** snapshots.c - `parley snapshots`: those that are kept, and removing them. */
#include "clients/cli/inventory.h"

#include "clients/c/remote_sandbox.h"

#include "shared/base/memory.h"

static const char HELP[] =
    "usage: parley snapshots [ls]               list them\n"
    "       parley snapshots rm (NAME | ID)...  remove them; what began with one lives on\n\n"
    "`parley snapshot` makes one, `parley restore` and `parley fork` use it.\n\n" CLI_COMMON_HELP;

static bool remove_one(const struct place *place, const char *given, struct error *err)
{
    AUTO_FREE char *id = remote_snapshot_find(place, given, err);
    return id && remote_snapshot_drop(place, id, err);
}

int snapshots_main(int argc, char *argv[])
{
    static const struct inventory_column COLUMNS[] = {
        {"NAME", "name", 20, INVENTORY_TEXT},         {"ID", "id", 24, INVENTORY_TEXT},
        {"STATE", "state", 8, INVENTORY_TEXT},        {"SIZE", "size_bytes", 10, INVENTORY_BYTES},
        {"TEMPLATE", "template", 12, INVENTORY_TEXT}, {"NODE", "node", 10, INVENTORY_TEXT},
        {"STORAGE", "storage", 8, INVENTORY_TEXT},    {"MADE", "created_at", 9, INVENTORY_AGE},
        {"OF", "sandbox_id", 0, INVENTORY_TEXT},      {0}};
    static const struct inventory INVENTORY = {.command = "snapshots",
                                               .help = HELP,
                                               .path = "/snapshots",
                                               .member = "snapshots",
                                               .columns = COLUMNS,
                                               .remove = remove_one};
    return inventory_run(&INVENTORY, argc, argv);
}
