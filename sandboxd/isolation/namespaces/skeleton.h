/** skeleton.h - what / of template `base` is made of: links into the host's /usr, a synthetic /etc with nothing secret
 * in it, empty folders. The lower layer of every sandbox's root; the host's /usr is a lower layer of its own. */
#pragma once

#include "shared/base/cleanup.h"
#include "shared/base/error.h"

#include <stdbool.h>

/** Makes `folder` (a link to a folder "<folder>-<stamp>" beside it; the skeleton is its `rootfs`) unless the one that
 * is there was made of what the host has now: a new ld.so.cache, for one, makes a new skeleton, and running sandboxes
 * keep theirs. Who keeps the templates removes older ones. ERROR_NOT_FOUND on a host whose /bin is not a link to
 * usr/bin. */
bool skeleton_make(const char *folder, struct error *err) MUST_USE;
