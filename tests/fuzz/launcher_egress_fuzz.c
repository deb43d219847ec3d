/* launcher_egress_fuzz.c - hostile packets of parley-egress against the launcher, and of anybody against parley-egress.
 */
#include "sandboxd/launcher_egress/launcher_egress.h"

#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(bool holds)
{
    if (!holds)
        __builtin_trap();
}

/* What the launcher relies on. */
static void check_pin(const struct eg_pin *pin)
{
    require(pin->number != 0 && pin->count >= 1 && pin->count <= LAUNCHER_EGRESS_PINS);
    require(pin->ttl_s >= 1 && pin->ttl_s <= 86400 && pin->ports[0] != 0);
    for (uint32_t i = 0; i < pin->count; i++)
        require(pin->addresses[i] != 0);
}

/* What parley-egress relies on. */
static void check_sandbox(const struct eg_sandbox *sandbox, size_t fds)
{
    require(sandbox->number != 0 && (fds == 0 || fds == EG_FDS));
    require(strnlen(sandbox->id, sizeof sandbox->id) < sizeof sandbox->id && sandbox->id[0] != '\0');
    const char *const lists[] = {sandbox->allow, sandbox->deny};
    for (size_t i = 0; i < sizeof lists / sizeof lists[0]; i++) {
        size_t length = strnlen(lists[i], sizeof sandbox->allow);
        require(length < sizeof sandbox->allow);
        for (size_t j = 0; j < length; j++)
            require(lists[i][j] >= ' ' && lists[i][j] < 0x7f);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct launcher_egress_message message = {0};
    struct error err = {0};
    if (size < 2)
        return 0;
    enum launcher_egress_end sender = data[0] & 1 ? EG_FROM_EGRESS : EG_FROM_LAUNCHER;
    size_t fds = data[1] % 8;
    size_t told = size - 2;
    memcpy(&message, data + 2, told < sizeof message ? told : sizeof message);
    if (!launcher_egress_check(&message, told, fds, sender, &err)) {
        require(err.kind == ERROR_INVALID && strnlen(err.message, sizeof err.message) < sizeof err.message);
        return 0;
    }
    require(told == launcher_egress_size(message.type) && told <= sizeof message);
    require((message.type < EG_READY) == (sender == EG_FROM_LAUNCHER));
    if (message.type == EG_PIN)
        check_pin(&message.as.pin);
    else if (message.type == EG_SANDBOX)
        check_sandbox(&message.as.sandbox, fds);
    if (message.type != EG_SANDBOX)
        require(fds == 0);
    if (message.type == EG_CONFIG)
        require(message.as.config.uid != 0 && message.as.config.server_count <= LAUNCHER_EGRESS_SERVERS);
    return 0;
}
