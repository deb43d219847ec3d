/** layer.h - one layer's tar, applied to the tree (OCI image specification, "Image Layer Filesystem Changeset"). */
#pragma once

#include "sandboxd/templates/tool/tree.h"

#include <archive.h>

/** Applies all entries of `tar`, an open tar reader, over what the tree has. INVALID names the entry: a device or
 *  socket, an id beyond 65535, a name or link that leaves the tree, a damaged archive; TOO_LARGE, DISK_FULL. No file
 * gets set-uid or set-gid, none an extended attribute but of user.* (and of these not overlayfs's own). */
bool layer_apply(struct tree *tree, struct archive *tar, struct error *err) MUST_USE;
