/** revocation_view.h - a revocation for people: what it matches, whether it is in force, who is missing. */
#pragma once

#include <jansson.h>

#include <stdbool.h>

/** Prints {"revocation": {...}}, as it is or as several lines, and takes the reference. CLI_OK in force, CLI_PENDING
 * not yet, CLI_FAILED when it is no revocation. */
int revocation_show(json_t *reply, bool json) __attribute__((warn_unused_result));

/** One line of a table, and its head. */
void revocation_print_row(const json_t *revocation);
void revocation_print_head(void);
