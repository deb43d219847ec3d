/** packages_file.h - `packages.json` of a version: {"manager": "dpkg", "packages": [{name, version, architecture}]}.
 * Written by us from checked messages, never by who parsed. */
#pragma once

#include "sandboxd/templates/tool/message.h"

#include <jansson.h>

/** Embedded; see packages_file_open. Private fields. */
struct packages_file {
    json_t *packages;
};

void packages_file_init(struct packages_file *file);
void packages_file_add(struct packages_file *file, const struct message_package *package);
/** Writes folder/packages.json. `digest` (NULL: not wanted) gets "sha256:..." of the list. */
bool packages_file_write(struct packages_file *file, const char *folder, const char *manager, char *digest,
                         struct error *err) MUST_USE;
void packages_file_done(struct packages_file *file);
#define AUTO_PACKAGES_FILE __attribute__((cleanup(packages_file_done))) struct packages_file

/** Reads it back; NULL with err. The caller owns it. */
json_t *packages_file_read(const char *folder, struct error *err) MUST_USE;
