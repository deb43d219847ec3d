#include "sandboxd/egress/pipe_stock.h"

#include "shared/base/memory.h"

#include <fcntl.h>
#include <string.h>

enum { STOCK_MAX = 64 };

struct pipe_stock {
    size_t count;
    int ends[STOCK_MAX][2];
};

struct pipe_stock *pipe_stock_new(void)
{
    return memory_new(sizeof(struct pipe_stock));
}

static void close_both(const int ends[2])
{
    close(ends[0]);
    close(ends[1]);
}

void pipe_stock_free(struct pipe_stock *stock)
{
    for (size_t i = 0; stock != NULL && i < stock->count; i++)
        close_both(stock->ends[i]);
    free(stock);
}

bool pipe_stock_take(struct pipe_stock *stock, int ends[static 2])
{
    if (stock->count == 0)
        return pipe2(ends, O_CLOEXEC | O_NONBLOCK) == 0;
    memcpy(ends, stock->ends[--stock->count], sizeof stock->ends[0]);
    return true;
}

void pipe_stock_give(struct pipe_stock *stock, int ends[static 2], bool is_spoiled)
{
    if (is_spoiled || stock->count == STOCK_MAX)
        close_both(ends);
    else
        memcpy(stock->ends[stock->count++], ends, sizeof stock->ends[0]);
    ends[0] = ends[1] = -1;
}
