#include "sandboxd/egress/rate.h"

static const uint64_t SECOND = 1000000000;

bool rate_take(struct rate *rate, uint64_t now_boot_ns)
{
    uint64_t most = rate->at_once * SECOND;
    uint64_t elapsed_ns = now_boot_ns > rate->filled_ns ? now_boot_ns - rate->filled_ns : 0;
    bool is_full = elapsed_ns >= most / rate->per_second; /* else the product below is less than `most` */
    rate->tokens = is_full ? most : rate->tokens + elapsed_ns * rate->per_second;
    rate->tokens = rate->tokens > most ? most : rate->tokens;
    rate->filled_ns = now_boot_ns;
    if (rate->tokens < SECOND)
        return false;
    rate->tokens -= SECOND;
    return true;
}
