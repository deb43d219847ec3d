#include "negotiator/dialects/housekeeping.h"

#include "negotiator/passing/kept_grants.h"
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

static enum kv_outcome usage_rule(struct kv *kv, void *argument, struct error *err)
{
    return kv_usage(kv, argument, err) ? KV_APPLIED : KV_FAILED;
}

static void usage_done(void *argument, const struct error *err)
{
    AUTO_FREE unsigned *percent = argument;
    if (err->kind != ERROR_NONE)
        log_error("negotiator", "how full the ledger is cannot be told: %s", err->message);
    else if (*percent >= HOUSEKEEPING_WARN_PERCENT)
        log_warn("negotiator", "the ledger has taken %u %% of map_mb; start with a larger one before it is full",
                 *percent);
}

static void on_timer(void *cookie)
{
    struct housekeeping *housekeeping = cookie;
    ledger_submit(housekeeping->plane->ledger, usage_rule, usage_done, memory_new(sizeof(unsigned)));
    housekeeping->timer = loop_timer_start(housekeeping->loop, clock_boot_ns() + HOUSEKEEPING_EVERY_S * SECOND_NS,
                                           on_timer, housekeeping);
}

void plane_loop_started(struct loop *loop, void *context)
{
    struct plane *plane = context;
    plane->kept_grants[loop_index(loop)] = kept_grants_new();
    if (loop_index(loop) != 0)
        return;
    plane->housekeeping = memory_new(sizeof *plane->housekeeping);
    *plane->housekeeping = (struct housekeeping){.plane = plane, .loop = loop};
    on_timer(plane->housekeeping);
}

void plane_loop_ending(struct loop *loop, void *context)
{
    struct plane *plane = context;
    kept_grants_free(TAKE(plane->kept_grants[loop_index(loop)]));
    if (loop_index(loop) != 0)
        return;
    loop_timer_cancel(plane->housekeeping->timer);
    free(TAKE(plane->housekeeping));
}
