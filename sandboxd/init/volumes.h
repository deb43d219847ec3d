/** volumes.h - attaches what the launcher opened. */
#pragma once

#include "shared/base/error.h"

/** Puts the detached mount at `path` (absolute, normalised): folders that are missing are made, as their parent's owner
 *  would; no link on the way is followed. ERROR_INVALID for what is in the way, and for /, /proc, /dev, /sys and what
 * is below them. `mount` stays the caller's. */
bool volumes_attach(int mount, const char *path, struct error *err) MUST_USE;
