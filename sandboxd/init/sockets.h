/** sockets.h - no socket is made in a volume: whoever shares it could be given descriptors there.
 *
 *  A descriptor that is passed to another sandbox outlives the one that made it: what it holds (memory of a memfd,
 * blocks of the area, a network namespace) would be nobody's to limit and nobody's to end. */
#pragma once

#include "sandboxd/launcher_init/launcher_init.h"
#include "shared/base/error.h"

/** From here on no process of this sandbox makes a UNIX socket in a folder at the top that is or holds one of the
 * volumes (bind(2), mknod(2): EACCES), nor in / itself. By Landlock, for this process and all it makes; needs
 * no_new_privs. A kernel without it, or one before 5.19 (ABI 2), goes without: doctor tells. ERROR_INTERNAL. */
bool sockets_keep_out_of_volumes(const struct li_become *to, struct error *err) MUST_USE;
