/** forwarding.h - that this host passes on what sandboxes send and are sent. Where it does not (net.ipv4.ip_forward 0),
 * only the interfaces that routes go out by are opened, and the host's tables let nothing through them but what is
 * ours. Which ones were opened stands in a file that all deployments of a machine share, so that the last one closes
 * them again. */
#pragma once

#include "sandboxd/network/netlink.h"

#include <net/if.h>

#define FORWARDING_MAX 16 /* interfaces that can be opened */

struct forwarding {
    size_t count;
    char opened[FORWARDING_MAX][IFNAMSIZ]; /* by us, or by another deployment; not for the host's own use */
};

/** Which are to be opened, those of before too; notes them in the file. None on a host that forwards by itself. Then rules can be made that hold them to what is
 *  ours, before forwarding_open. ERROR_NO_CAPACITY when there are too many interfaces, ERROR_INVALID for a name that is
 *  none that firewalls can be told of. */
bool forwarding_plan(const char *file, struct netlink *netlink, struct forwarding *forwarding,
                     struct error *err) MUST_USE;

/** Opens them. One that is gone meanwhile is left out. */
bool forwarding_open(const struct forwarding *forwarding, struct error *err) MUST_USE;

/** Closes what was opened, if the host does not forward by itself by now, unless a link of any deployment is there still: then who has it will. */
bool forwarding_close(const char *file, struct error *err) MUST_USE;

/** Whether the host forwards by itself; for `parley doctor`. */
bool forwarding_is_on(void) MUST_USE;
