/** accounts.h - /etc/passwd and /etc/group of the tree. */
#pragma once

#include "sandboxd/templates/tool/tree.h"

/** Looks "name", "1000", "name:group", "1000:100" up. uid 0 and "" become 1000:1000; a gid 0 or none becomes the uid's.
 *  INVALID: nobody has that name; an id beyond 65535. */
bool accounts_find(const struct tree *tree, const char *user, uint32_t *uid, uint32_t *gid, struct error *err) MUST_USE;

/** Appends rows for uid and gid where there are none; makes the files when missing. */
bool accounts_ensure(struct tree *tree, uint32_t uid, uint32_t gid, struct error *err) MUST_USE;
