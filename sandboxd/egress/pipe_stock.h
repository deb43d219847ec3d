/** pipe_stock.h - pipes for splice(2), kept for the next one who needs one: a connection has one only while bytes are
 * in it. One loop. */
#pragma once

#include "shared/base/cleanup.h"

#include <stdbool.h>

struct pipe_stock;

struct pipe_stock *pipe_stock_new(void) MUST_USE;
/** Closes those that are in stock. NULL is allowed. */
void pipe_stock_free(struct pipe_stock *stock);

/** An empty non-blocking pipe, [0] to read from; false when none can be had. */
bool pipe_stock_take(struct pipe_stock *stock, int ends[static 2]) MUST_USE;
/** Gives one back, which is empty, or is closed when it `is_spoiled`. ends become -1. */
void pipe_stock_give(struct pipe_stock *stock, int ends[static 2], bool is_spoiled);
