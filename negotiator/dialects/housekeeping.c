#include "negotiator/dialects/housekeeping.h"

#include "negotiator/dialects/plane.h"
#include "shared/base/clock.h"
#include "shared/base/log.h"
#include "shared/base/memory.h"

#include <stdlib.h>

static const uint64_t SECOND_NS = 1000000000;

struct housekeeping {
    struct plane *plane;
    struct loop *loop;
    struct loop_timer *timer;
};

/* One round on the ledger thread. */
struct round {
    struct leasing_sweep sweep;
    unsigned percent;
};

static enum kv_outcome round_rule(struct kv *kv, void *argument, struct error *err)
{
    struct round *round = argument;
    if (!kv_usage(kv, &round->percent, err))
        return KV_FAILED;
    return leasing_sweep_rule(kv, &round->sweep, err);
}

static void round_done(void *argument, const struct error *err)
{
    struct round *round = argument;
    if (err->kind == ERROR_NONE)
        leasing_sweep_act(&round->sweep);
    else
        log_error("negotiator", "housekeeping: %s", err->message);
    if (round->percent >= HOUSEKEEPING_WARN_PERCENT)
        log_warn("negotiator", "the ledger has taken %u %% of map_mb; start with a larger one before it is full",
                 round->percent);
    leasing_sweep_done(&round->sweep);
    free(round);
}

static void on_timer(void *cookie)
{
    struct housekeeping *housekeeping = cookie;
    struct round *round = memory_new(sizeof *round);
    round->sweep.leasing = housekeeping->plane->leasing;
    ledger_submit(housekeeping->plane->ledger, round_rule, round_done, round);
    housekeeping->timer = loop_timer_start(housekeeping->loop, clock_boot_ns() + HOUSEKEEPING_EVERY_S * SECOND_NS,
                                           on_timer, housekeeping);
}

void plane_loop_started(struct loop *loop, void *context)
{
    struct plane *plane = context;
    if (loop_index(loop) != 0)
        return;
    plane->housekeeping = memory_new(sizeof *plane->housekeeping);
    *plane->housekeeping = (struct housekeeping){.plane = plane, .loop = loop};
    on_timer(plane->housekeeping);
}

void plane_loop_ending(struct loop *loop, void *context)
{
    struct plane *plane = context;
    if (loop_index(loop) != 0)
        return;
    loop_timer_cancel(plane->housekeeping->timer);
    free(TAKE(plane->housekeeping));
}
