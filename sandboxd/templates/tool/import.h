/** import.h - `import`: an archive of an image becomes a template. */
#pragma once

#include "sandboxd/templates/templates.h"
#include "sandboxd/templates/tool/tree.h"

struct import_options {
    const char *file; /* "-": stdin */
    const char *name; /* NULL: what the image calls itself */
    struct tree_limits limits;
    unsigned timeout_s;
    bool is_quiet; /* no progress on stderr */
};

/** Imports into `folder` and sets *made. INVALID names what is wrong with the archive, by layer and entry. */
bool import_run(const char *folder, const struct import_options *options, struct template *made,
                struct error *err) MUST_USE;
