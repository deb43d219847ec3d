/** layer_entry.h - making one entry of a layer. For layer.c. */
#pragma once

#include "sandboxd/templates/tool/tree.h"

#include <archive.h>
#include <archive_entry.h>

/** Makes the entry at `path` of the tree, in place of what is there (a folder over a folder only changes it). */
bool layer_entry_make(struct tree *tree, struct archive *tar, struct archive_entry *entry, const char *path,
                      struct error *err) MUST_USE;
