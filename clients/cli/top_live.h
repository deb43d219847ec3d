/** top_live.h - `parley top` of all sandboxes: a page that is drawn anew, sorted as the keys say. */
#pragma once

#include "clients/c/negotiator.h"

#include <jansson.h>
#include <stdbool.h>

/** What a page is sorted by; TOP_ROWS: as the negotiator lists them. */
enum top_order { TOP_ROWS, TOP_NAME, TOP_CPU, TOP_MEMORY, TOP_DISK, TOP_PIDS, TOP_LEFT, TOP_ORDERS };

/** "cpu"; false when it is no order. */
bool top_order_parse(const char *name, enum top_order *order) MUST_USE;

/** Sorts the list in place, the most first, names and time left from the least; `before` (may be NULL): the list seen
 *  last, for the processor's load. */
void top_sort(json_t *sandboxes, const json_t *before, enum top_order order);

/** One page of them all, to stdout. False with err. *before: the list seen last (NULL: none), replaced by this one. */
bool top_page(const struct place *place, enum top_order order, unsigned rows, json_t **before,
              struct error *err) MUST_USE;

/** Until `q` or Ctrl-C, or a failure, which is told: the exit status. The terminal's modes come back. */
int top_live(const struct place *place, enum top_order order, unsigned interval_s);
