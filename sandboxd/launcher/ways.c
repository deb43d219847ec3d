/* ways.c - where sandboxes may go: put in force, kept for the next launcher, taken up again. */
#include "sandboxd/launcher/sandboxes_internal.h"

#include "shared/base/log.h"

#include <inttypes.h>
#include <string.h>

static const char *mode_name(const struct fl_network *network)
{
    static const char *const NAMES[] = {"none", "public", "allow"};
    return NAMES[network->mode];
}

/* Kept before it is in force, and again when it is: who comes after a kill in between puts it in force once more. */
static bool keep(const struct sandboxes *all, const struct sandbox *sandbox, const struct fl_network *network,
                 bool is_pending, struct error *err)
{
    struct network_record record = {.slot = sandbox->record.slot, .is_pending = is_pending, .network = *network};
    memcpy(record.id, sandbox->record.id, sizeof record.id);
    return record_write_network(all->house.record_folder, &record, err);
}

static bool apply(struct sandboxes *all, struct sandbox *sandbox, const struct fl_network *network, struct error *err)
{
    if (!sandbox->network)
        sandbox->network = network_new(all->house.networks, sandbox->record.slot);
    if (!keep(all, sandbox, network, true, err))
        return false;
    bool is_done = network_apply(sandbox->network, sandbox->handle.init, network, err);
    const struct fl_network *rules = network_rules(sandbox->network);
    bool is_kept = !rules || keep(all, sandbox, rules, false, is_done ? err : NULL);
    if (all->egress.changed)
        all->egress.changed(all->egress.context, sandbox);
    return is_done && is_kept;
}

bool sandboxes_wall(struct sandboxes *all, struct sandbox *sandbox, const struct fl_network *network, struct error *err)
{
    if (!sandbox->network && network->mode == FL_NETWORK_NONE)
        return true;
    if (!all->house.networks)
        return error_set(err, ERROR_INTERNAL, "this node has no networks");
    if (!apply(all, sandbox, network, err))
        return false;
    log_info("launcher",
             "network sandbox=%s slot=%" PRIu32 " egress=%s nets=%" PRIu32 " names=%s denied_nets=%" PRIu32
             " denied_names=%s",
             sandbox->record.id, sandbox->record.slot, mode_name(network), network->net_count, network->names,
             network->denied_count, network->denied_names);
    return true;
}

void ways_end(struct sandboxes *all, struct sandbox *sandbox)
{
    if (!sandbox->network)
        return;
    if (all->egress.gone)
        all->egress.gone(all->egress.context, sandbox);
    network_free(TAKE(sandbox->network));
}

/* What cannot be taken up goes on as it is: its rules do not need us, only names do. */
void ways_adopt(struct sandboxes *all, struct sandbox *sandbox)
{
    struct error why = {0};
    struct network_record record;
    uint32_t slot = sandbox->record.slot;
    if (!all->house.networks)
        return;
    if (record_read_network(all->house.record_folder, slot, sandbox->record.id, &record, &why)) {
        sandbox->network = network_new(all->house.networks, slot);
        if (network_adopt(sandbox->network, sandbox->handle.init, &record.network, record.is_pending, &why) &&
            (!record.is_pending || apply(all, sandbox, &record.network, &why)))
            return;
    } else if (why.kind == ERROR_NOT_FOUND) {
        return;
    }
    log_warn("launcher", "the network of a sandbox cannot be taken up sandbox=%s slot=%" PRIu32 ": %s",
             sandbox->record.id, slot, why.message);
}
