#include "negotiator/leasing/leasing_internal.h"
#include "shared/base/log.h"
#include "shared/base/memory.h"
#include "shared/base/text.h"

#include <inttypes.h>
#include <stdlib.h>

static const int64_t HOUR_MS = 3600000;

struct witness {
    struct leasing *leasing;
    uint64_t seq;
    uint8_t hash[AUDIT_HASH_BYTES];
};

static enum kv_outcome witness_rule(struct kv *kv, void *argument, struct error *err)
{
    struct witness *witness = argument;
    return audit_head(kv, &witness->seq, witness->hash, err) ? KV_APPLIED : KV_FAILED;
}

static void on_hour(void *argument, int64_t now);

static void witness_done(void *argument, const struct error *err)
{
    struct witness *witness = argument;
    struct leasing *leasing = witness->leasing;
    char hash[2 * AUDIT_HASH_BYTES + 1];
    text_hex(hash, witness->hash, sizeof witness->hash);
    if (err->kind == ERROR_NONE)
        log_info("audit", "head seq=%" PRIu64 " hash=%s", witness->seq, hash);
    else
        log_error("audit", "the head cannot be read: %s", err->message);
    ledger_alarm_move(leasing->options.ledger, leasing->options.wall_ms() + HOUR_MS, on_hour, leasing);
    free(witness);
}

static void on_hour(void *argument, int64_t now UNUSED)
{
    struct witness *witness = memory_new(sizeof *witness);
    witness->leasing = argument;
    ledger_submit(witness->leasing->options.ledger, witness_rule, witness_done, witness);
}

void hourly_start(struct leasing *leasing)
{
    on_hour(leasing, 0);
}
