/** packages.h - which packages a tree has installed, as its package manager's own list says. For scanners. */
#pragma once

#include "sandboxd/templates/tool/message.h"
#include "sandboxd/templates/tool/tree.h"

/** Tells each package (dpkg: /var/lib/dpkg/status and status.d; apk: /lib/apk/db/installed), in their order, at most
 *  MESSAGE_PACKAGES_MAX. Returns how many; `manager` gets "dpkg", "apk" or "". What is unreadable is no list. */
uint32_t packages_read(struct tree *tree, char manager[static 16],
                       void (*tell)(void *context, const struct message_package *package), void *context);
