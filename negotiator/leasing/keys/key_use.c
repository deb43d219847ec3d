#include "negotiator/leasing/keys/key_use.h"

#include "negotiator/leasing/keys/api_key.h"
#include "negotiator/leasing/leasing_internal.h"
#include "shared/base/log.h"
#include "shared/base/memory.h"
#include "shared/base/text.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { STEP = 256 };
static const int64_t EVERY_MS = 60000;

struct flush {
    struct leasing *leasing;
    struct key_use uses[STEP];
    size_t count;
};

static bool put_use(struct work *work, const struct key_use *use)
{
    AUTO_KV_VALUE index = {0};
    char text[32];
    if (!kv_get(work->kv, store_key("key", use->key_id, NULL).text, &index, work->err))
        return false;
    snprintf(text, sizeof text, "%" PRId64, use->at);
    if (index.revision > 0) /* else it was deleted meanwhile */
        kv_change_put(work->change, store_key("keyuse", use->key_id, NULL).text, text, strlen(text));
    return true;
}

static enum kv_outcome flush_rule(struct kv *kv, void *argument, struct error *err)
{
    struct flush *flush = argument;
    AUTO(kv_change) *change = kv_change_new();
    struct work work = work_begin(flush->leasing, kv, change, err);
    flush->count = principal_table_uses(flush->leasing->options.principals, flush->uses, STEP);
    for (size_t i = 0; i < flush->count; i++) {
        if (!put_use(&work, &flush->uses[i]))
            return KV_FAILED;
    }
    return flush->count > 0 ? store_apply(&work) : KV_APPLIED;
}

static void flush_done(void *argument, const struct error *err)
{
    struct flush *flush = argument;
    struct leasing *leasing = flush->leasing;
    if (err->kind != ERROR_NONE)
        log_error("leasing", "when keys were last used was not recorded: %s", err->message);
    else
        principal_table_stored(leasing->options.principals, flush->uses, flush->count);
    if (err->kind == ERROR_NONE && flush->count == STEP)
        ledger_submit(leasing->options.ledger, flush_rule, flush_done, flush);
    else
        free(flush);
}

void key_use_flush(struct leasing *leasing)
{
    if (leasing->options.principals == NULL)
        return;
    struct flush *flush = memory_new(sizeof *flush);
    flush->leasing = leasing;
    ledger_submit(leasing->options.ledger, flush_rule, flush_done, flush);
}

static void on_minute(void *argument, int64_t now UNUSED)
{
    struct leasing *leasing = argument;
    key_use_flush(leasing);
    ledger_alarm_move(leasing->options.ledger, leasing->options.wall_ms() + EVERY_MS, on_minute, leasing);
}

void key_use_start(struct leasing *leasing)
{
    ledger_alarm_move(leasing->options.ledger, leasing->options.wall_ms() + EVERY_MS, on_minute, leasing);
}
