/** volumes.c - `parley volumes`: named volumes, and removing them. */
#include "clients/cli/inventory.h"

#include "shared/base/memory.h"

static const char HELP[] =
    "usage: parley volumes [ls]        list them\n"
    "       parley volumes rm NAME...  remove them and what is in them; not while a sandbox has one\n\n"
    "`parley run --volume NAME:/inside` makes one where there is none. It outlives every sandbox, and a sandbox that "
    "has\n"
    "it runs on its node.\n\n" CLI_COMMON_HELP;

static bool remove_one(const struct place *place, const char *given, struct error *err)
{
    AUTO_FREE char *path = negotiator_path("/volumes", given, NULL);
    return negotiator_call(place, "DELETE", path, NULL, NULL, err);
}

int volumes_main(int argc, char *argv[])
{
    static const struct inventory_column COLUMNS[] = {
        {"NAME", "name", 24, INVENTORY_TEXT},        {"NODE", "node", 12, INVENTORY_TEXT},
        {"SIZE", "size_bytes", 10, INVENTORY_BYTES}, {"MADE", "created_at", 9, INVENTORY_AGE},
        {"IN", "sandboxes", 0, INVENTORY_LIST},      {0}};
    static const struct inventory INVENTORY = {.command = "volumes",
                                               .help = HELP,
                                               .path = "/volumes",
                                               .member = "volumes",
                                               .columns = COLUMNS,
                                               .remove = remove_one};
    return inventory_run(&INVENTORY, argc, argv);
}
