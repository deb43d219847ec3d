/** osb_quantity.h - amounts of resources as Kubernetes writes them: "500m", "1.5", "512Mi", "2G". Private to this
 *  folder. */
#pragma once

#include "shared/base/error.h"

#include <stdint.h>

/** The amount in thousandths, rounded up. False when it is not one, is negative, or is over INT64_MAX / 1000 wholes. */
bool osb_quantity_parse(const char *text, int64_t *thousandths) MUST_USE;

/** A number of bytes as MiB, rounded up; 0 bytes is none and false. */
bool osb_quantity_mib(const char *text, int64_t *mib) MUST_USE;
