/** settle.h - what every rootfs must have before it is a template: a user for commands, folders that mounts go onto, a
 *  workspace. And how much it is. */
#pragma once

#include "sandboxd/templates/templates.h"
#include "sandboxd/templates/tool/tree.h"

/** Makes /proc, /dev, /sys, /tmp, /workspace, /etc and the passwd and group rows of the user where they are missing,
 * and the record's workdir. `user` is the image's: "name", "1000", "1000:100", "name:group", ""; it is looked up in the
 *  tree's own /etc/passwd; root and "" mean 1000. Sets record->uid and ->gid. INVALID: no such user, ids beyond 65535,
 * a file where a folder must be. */
bool settle(struct tree *tree, const char *user, struct template_record *record, struct error *err) MUST_USE;

/** Walks the tree: takes set-uid and set-gid off files, refuses devices (INVALID), counts; TOO_LARGE beyond the
 *  tree's limits. */
bool settle_survey(struct tree *tree, struct template_record *record, struct error *err) MUST_USE;
