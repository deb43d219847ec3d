/** revocation_view.h - a revocation for people: what it matches, whether it is in force, who is missing. */
#pragma once

#include <jansson.h>

/** CLI_OK in force, CLI_PENDING not yet, CLI_FAILED when it is no revocation. */
int revocation_status(const json_t *revocation) __attribute__((warn_unused_result));

/** Several lines with everything. */
void revocation_print(const json_t *revocation);

/** One line of a table, and its head. */
void revocation_print_row(const json_t *revocation);
void revocation_print_head(void);
