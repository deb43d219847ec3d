/** host_name.h - the one spelling of a host's name that all of the egress process compares. */
#pragma once

#include "shared/base/cleanup.h"

#include <stdbool.h>
#include <stddef.h>

#define HOST_NAME_BYTES 254 /* RFC 1035, 2.3.4: 253 characters without the dot at the end */

/** Writes the name in lower case and without a dot at its end. False (`to` untouched) for what is no name of a host:
 *  another character than a letter, a digit, - or _ in a label (so also a NUL), an empty label or one of over 63, no
 *  label, over 253 in all, or an IPv4 address (a last label of digits). */
bool host_name_read(char to[static HOST_NAME_BYTES], const char *from, size_t length) MUST_USE;
