/** import_child.h - the part of an import that reads the archive; runs in a jail of kind JAIL_PARSE. */
#pragma once

#include "sandboxd/templates/tool/jail.h"
#include "sandboxd/templates/tool/tree.h"

struct import_work {
    int archive; /* a regular file; -1 when `folder` is it */
    int spool;   /* an empty regular file for what is compressed as a whole */
    int folder;  /* an OCI layout; -1 */
    struct tree_limits limits;
};

/** How large an archive may be, unpacked, whose files keep to the limits. */
uint64_t import_archive_max(const struct tree_limits *limits) MUST_USE;

/** jail_plan.work of an import; context is the struct import_work. */
void import_child(const struct jail_inside *inside);
/** jail_plan.work that takes the rootfs as it is (build); context is the struct import_work, of which only the limits
 * are used. */
void survey_child(const struct jail_inside *inside);
