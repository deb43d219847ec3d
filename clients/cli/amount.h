/** amount.h - amounts as people write and read them: sizes ("512m", "2g"), cores ("1.5"), counts. */
#pragma once

#include "shared/base/cleanup.h"
#include "shared/base/error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/** "512m", "1.5g", "2GiB", "1T": a number and k, m, g or t (powers of 1024, also as MB and MiB, in any case). In MiB,
 * of which it must be a whole number, `least` to `most`. INVALID: err->message is what is wanted, as in "--memory wants
 *  <message>". */
bool amount_parse_mib(const char *text, uint64_t least, uint64_t most, uint64_t *mib, struct error *err) MUST_USE;

/** "2", "0.5": `least` to `most`, with at most three digits after the point. */
bool amount_parse_cores(const char *text, double least, double most, double *cores) MUST_USE;

/** "12 B", "1.5 MiB". */
void amount_format(char to[static 16], uint64_t bytes);
