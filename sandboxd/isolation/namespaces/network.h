/** network.h - a sandbox is born into a network namespace that was made before: a child has its parent's, so the
 * launcher's only thread goes there for the moment of the clone. */
#pragma once

#include "shared/base/cleanup.h"
#include "shared/base/error.h"

#include <stdbool.h>

/** Goes into `network`; *home gets a descriptor of where the thread was, for network_return. */
bool network_visit(int network, int *home, struct error *err) MUST_USE;

/** Comes back and closes `home`; that it cannot ends the program: all it does next would be in a sandbox's network. */
void network_return(int home);
