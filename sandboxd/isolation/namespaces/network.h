/** network.h - the sandbox's own network: loopback alone. */
#pragma once

#include "shared/base/cleanup.h"
#include "shared/base/error.h"

#include <stdbool.h>

/** Child's half: brings `lo` up in the current network namespace (netdevice(7)). */
bool network_loopback_up(struct error *err) MUST_USE;
