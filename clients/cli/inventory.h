/** inventory.h - what `snapshots`, `volumes` and `templates` share: a verb, a list in columns, removal by name. */
#pragma once

#include "clients/cli/cli.h"

/** One column. */
struct inventory_column {
    const char *title, *member;
    int width; /* 0: the last one */
    enum { INVENTORY_TEXT, INVENTORY_BYTES, INVENTORY_AGE, INVENTORY_LIST } kind;
};

/** A kind of things. */
struct inventory {
    const char *command, *help;                                                      /* "snapshots" */
    const char *path, *member;                                                       /* "/snapshots", "snapshots" */
    const struct inventory_column *columns;                                          /* ended by one without a title */
    bool (*remove)(const struct place *place, const char *given, struct error *err); /* NULL: they cannot be */
};

/** `parley COMMAND [ls]` and `parley COMMAND rm NAME...`. */
int inventory_run(const struct inventory *inventory, int argc, char *argv[]);
