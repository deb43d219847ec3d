#include "negotiator/pulse.h"

static void taken(void *cookie)
{
    struct pulse *pulse = cookie;
    atomic_fetch_sub(&pulse->waiting, 1);
}

static enum kv_outcome look(struct kv *kv UNUSED, void *argument UNUSED, struct error *err UNUSED)
{
    return KV_APPLIED; /* no change */
}

/* A store that fails is told by /readyz; its thread lives. */
static void looked(void *argument, const struct error *err UNUSED)
{
    taken(argument);
}

bool pulse_felt(struct pulse *pulse, struct http_server *server, struct ledger *ledger)
{
    if (atomic_load(&pulse->waiting) > 0)
        return false;
    unsigned loops = http_server_loop_count(server);
    atomic_store(&pulse->waiting, loops + 1);
    for (unsigned i = 0; i < loops; i++)
        loop_post(http_server_loop(server, i), taken, pulse);
    ledger_submit(ledger, look, looked, pulse);
    return true;
}
