/** new_version.h - how a template comes to be: a folder that nobody takes for one, filled, then made current by one
 *  rename. A kill -9 at any moment leaves the template as it was, and a folder that templates_clean finds. */
#pragma once

#include "sandboxd/templates/templates.h"

/** Embedded; -1 and "" before new_version_begin. Locked while it lives, so that nobody cleans it away. */
struct new_version {
    char path[TEMPLATE_PATH_BYTES];   /* of the folder, ".new-<stamp>" */
    char rootfs[TEMPLATE_PATH_BYTES]; /* path/rootfs: empty, 0755, root's */
    char stamp[17];
    int lock;
};
#define NEW_VERSION_NONE ((struct new_version){.lock = -1})

/** Makes `folder` (0700) when it is not there, and in it a new version's folder with an empty rootfs. */
bool new_version_begin(const char *folder, struct new_version *fresh, struct error *err) MUST_USE;
/** Writes the record (with what record->name says as its name), syncs all to disk and makes it the current version of
 *  that name. The one before stays for templates_clean. */
bool new_version_commit(const char *folder, struct new_version *fresh, struct template_record *record,
                        struct error *err) MUST_USE;
/** Removes what was not committed. */
void new_version_done(struct new_version *fresh);
#define AUTO_NEW_VERSION __attribute__((cleanup(new_version_done))) struct new_version
