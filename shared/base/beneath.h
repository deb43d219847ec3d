/** beneath.h - openat2(2), also where the kernel has none (before Linux 5.6; gVisor): then the path is walked by hand,
 * a component at a time, none of them followed by the kernel. Compiled into the static init: libc only. */
#pragma once

#include "shared/base/cleanup.h"

#include <linux/openat2.h>

/** As openat2(2): a descriptor, or -1 and errno. Of how->resolve: RESOLVE_BENEATH, RESOLVE_IN_ROOT,
 * RESOLVE_NO_SYMLINKS, RESOLVE_NO_MAGICLINKS and RESOLVE_NO_XDEV; one of the first three at least. O_CREAT only with
 * RESOLVE_NO_SYMLINKS. Descriptors are O_CLOEXEC in any case. */
int beneath_open(int folder, const char *path, const struct open_how *how) MUST_USE;

/** The same by hand, for its tests. What differs: the text of a link of /proc is followed as any link's, below the same
 *  folder; what is renamed meanwhile is never an EAGAIN, for ".." is the folder that the walk came through. */
int beneath_walk(int folder, const char *path, const struct open_how *how) MUST_USE;
