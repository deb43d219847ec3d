#include "negotiator/leasing/retention.h"

#include "negotiator/leasing/leasing_internal.h"
#include "shared/base/log.h"

#include <inttypes.h>

static const int64_t DAY_MS = 24LL * 3600 * 1000;
static const int64_t FIRST_MS = 60000; /* after the start: nodes and clients first */

static enum kv_outcome step_rule(struct kv *kv, void *argument, struct error *err)
{
    struct leasing *leasing = argument;
    struct retention *retention = &leasing->retention;
    retention->keep =
        (struct audit_keep){.keep_ms = leasing->options.audit_keep_days * DAY_MS, .now_ms = leasing->options.wall_ms()};
    retention->after = retention->state;
    return audit_retain(kv, &leasing->audit_key, &retention->keep, &retention->after, err);
}

static void step_done(void *argument, const struct error *err)
{
    struct leasing *leasing = argument;
    struct retention *retention = &leasing->retention;
    const struct audit_seal *newest = &retention->after.newest;
    retention->state = retention->after;
    if (err->kind != ERROR_NONE)
        log_error("audit", "old records stay: %s", err->message);
    if (err->kind == ERROR_NONE && retention->state.sealed) {
        retention->sealed++;
        log_info("audit", "sealed records %" PRIu64 " to %" PRIu64 ", older than audit_keep_days", newest->first,
                 newest->last);
    }
    if (err->kind == ERROR_NONE && retention->state.more && !atomic_load(&leasing->stopping)) {
        ledger_submit(leasing->options.ledger, step_rule, step_done, leasing);
        return;
    }
    retention->state = (struct audit_retention){.more = false};
    retention->running = false;
}

void retention_round(struct leasing *leasing)
{
    if (leasing->retention.running || atomic_load(&leasing->stopping))
        return;
    leasing->retention.running = true;
    ledger_submit(leasing->options.ledger, step_rule, step_done, leasing);
}

static void on_alarm(void *argument, int64_t now_ms)
{
    struct leasing *leasing = argument;
    retention_round(leasing);
    ledger_alarm(leasing->options.ledger, now_ms + RETENTION_EVERY_MS, on_alarm, leasing);
}

void retention_start(struct leasing *leasing)
{
    if (leasing->options.audit_keep_days > 0)
        ledger_alarm(leasing->options.ledger, leasing->options.wall_ms() + FIRST_MS, on_alarm, leasing);
}

const struct key *leasing_audit_key(const struct leasing *leasing)
{
    return &leasing->audit_key;
}
