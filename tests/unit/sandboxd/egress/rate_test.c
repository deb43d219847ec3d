/* So many at once, then so many a second, at the very nanosecond; and never more after a long rest. */
#include "sandboxd/egress/rate.h"

#include "tests/unit/check.h"

static unsigned take_all(struct rate *rate, uint64_t now_ns)
{
    unsigned taken = 0;
    while (taken < 1000 && rate_take(rate, now_ns))
        taken++;
    return taken;
}

int main(void)
{
    static const uint64_t SECOND = 1000000000;
    struct rate rate = RATE_OF(200, 400);
    uint64_t now_ns = 77 * SECOND;
    CHECK(take_all(&rate, now_ns) == 400);
    CHECK(!rate_take(&rate, now_ns + SECOND / 200 - 1) && rate_take(&rate, now_ns + SECOND / 200));
    CHECK(take_all(&rate, now_ns + SECOND / 200 + SECOND) == 200);
    CHECK(take_all(&rate, now_ns) == 0); /* a clock that goes back gives nothing */
    CHECK(take_all(&rate, UINT64_MAX) == 400);
    struct rate one = RATE_OF(1, 1);
    CHECK(take_all(&one, 0) == 1 && take_all(&one, SECOND - 1) == 0 && take_all(&one, SECOND) == 1);
    return check_done();
}
