/* answers.c - what the launcher says to its front, and why not. */
#include "sandboxd/launcher/dialogue_internal.h"

#include "sandboxd/rootless/rootless.h"
#include "shared/base/log.h"
#include "shared/base/memory.h"
#include "shared/base/text.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

static void refuse(struct dialogue *dialogue, uint64_t request, const char *id, const struct error *why)
{
    log_info("launcher", "refused sandbox=%s: %s", id, why->message);
    dialogue_say(dialogue, FL_REFUSED, request)->message.as.refused = *why;
}

/* NULL end: nothing is known of it; then the front gets no root either: it could collect those of ids to come. */
void dialogue_say_ended(struct dialogue *dialogue, uint64_t request, const char *id, const struct sandbox_end *end)
{
    struct fl_ended *ended = &dialogue_say(dialogue, FL_ENDED, request)->message.as.ended;
    (void)!text_copy(ended->id, sizeof ended->id, id);
    (void)!text_copy(ended->reason, sizeof ended->reason, end ? end->reason : "unknown");
    ended->epoch = end ? end->epoch : 1;
    if (end)
        key_sandbox_root(&ended->root, &dialogue->identity->node_key, ended->id);
    else
        key_random(&ended->root);
}

static void say_sandbox(struct dialogue *dialogue, uint64_t request, const struct sandbox *sandbox, bool reused,
                        bool with_descriptors)
{
    const struct record *record = &sandbox->record;
    struct dialogue_entry *entry = dialogue_say(dialogue, FL_SANDBOX, request);
    struct fl_sandbox *said = &entry->message.as.sandbox;
    entry->with_descriptors = with_descriptors;
    memcpy(said->id, record->id, sizeof said->id);
    memcpy(said->hostname, record->hostname, sizeof said->hostname);
    memcpy(said->template_name, record->template_name, sizeof said->template_name);
    memcpy(said->isolation, record->isolation, sizeof said->isolation);
    memcpy(said->storage, record->storage, sizeof said->storage);
    said->limits = record->limits;
    said->slot = record->slot;
    said->uid_base = record->uid_base;
    said->init_pid = record->init_pid;
    said->reused = reused;
    said->created_wall_ms = record->created_wall_ms;
    said->deadline_wall_ms = record->deadline_wall_ms;
    said->epoch = record->epoch;
    memcpy(said->env, record->env, sizeof said->env);
    said->uid = record->uid;
    said->gid = record->gid;
    said->root_allowed = record->root_allowed != 0;
    said->was_warm = record->was_warm != 0;
    said->is_guest = sandbox->backend->is_guest;
    said->is_rootless = rootless_is_active();
    said->missing_limits = (uint8_t)isolation_missing_limits();
    if (sandbox->template) {
        memcpy(said->template_env, sandbox->template->facts.record.env, sizeof said->template_env);
        memcpy(said->workdir, sandbox->template->facts.record.workdir, sizeof said->workdir);
    } else {
        (void)!text_copy(said->workdir, sizeof said->workdir, "/");
    }
    const struct fl_network *network = sandbox->network ? network_rules(sandbox->network) : NULL;
    if (network)
        said->network = *network;
    key_sandbox_root(&said->root, &dialogue->identity->node_key, record->id);
    snprintf(said->socket_path, sizeof said->socket_path, "%" PRIu32 "/init.sock", record->slot);
}

/* With blanks between. */
static void say_offer(const struct isolation_offer *offer, char to[static FRONT_LAUNCHER_ISOLATIONS_BYTES])
{
    size_t length = 0;
    for (size_t i = 0; i < offer->count && length < FRONT_LAUNCHER_ISOLATIONS_BYTES; i++)
        length += (size_t)snprintf(to + length, FRONT_LAUNCHER_ISOLATIONS_BYTES - length, "%s%s", i > 0 ? " " : "",
                                   offer->list[i]->name);
}

static void say_identity(struct dialogue *dialogue, uint64_t request)
{
    const struct identity *identity = dialogue->identity;
    struct fl_identity *said = &dialogue_say(dialogue, FL_IDENTITY, request)->message.as.identity;
    memcpy(said->node, identity->node, sizeof said->node);
    memcpy(said->issuer, identity->deployment, sizeof said->issuer);
    memcpy(said->negotiator_url, identity->negotiator_url, sizeof said->negotiator_url);
    said->incarnation = dialogue->incarnation;
    key_link(&said->link_to_node, &identity->node_key, "negotiator");
    key_link(&said->link_from_node, &identity->node_key, "sandboxd");
    said->slots_max = (uint32_t)dialogue->settings->slots_max;
    say_offer(&dialogue->sandboxes->house.offer, said->isolations);
    (void)!text_copy(said->storage, sizeof said->storage, storage_kind(dialogue->sandboxes->house.storage));
}

void dialogue_say_templates(struct dialogue *dialogue)
{
    bool is_first = true;
    dialogue->templates_changed = false;
    for (const struct catalog_version *at = dialogue->sandboxes->house.catalog->first; at; at = at->next) {
        const struct template_record *record = &at->facts.record;
        if (!at->is_current)
            continue;
        struct fl_template *said = &dialogue_say(dialogue, FL_TEMPLATE, 0)->message.as.template;
        said->first = is_first;
        said->size_bytes = record->size_bytes;
        said->created_ms = record->created_ms;
        memcpy(said->name, record->name, sizeof said->name);
        memcpy(said->digest, record->digest, sizeof said->digest);
        memcpy(said->source, record->source, sizeof said->source);
        is_first = false;
    }
}

/* --- what the sandboxes tell --- */

static void wait_for(struct dialogue *dialogue, uint64_t request, const char *id)
{
    struct dialogue_wait *wait = memory_new(sizeof *wait);
    struct dialogue_wait **at = &dialogue->waits;
    wait->request = request;
    (void)!text_copy(wait->id, sizeof wait->id, id);
    while (*at)
        at = &(*at)->next;
    *at = wait;
    dialogue->wait_count++;
}

/* The request of the first that waits for `id`, which then waits no more. */
static bool take_wait(struct dialogue *dialogue, const char *id, uint64_t *request)
{
    for (struct dialogue_wait **at = &dialogue->waits; *at; at = &(*at)->next) {
        struct dialogue_wait *wait = *at;
        if (strcmp(wait->id, id) != 0)
            continue;
        *request = wait->request;
        *at = wait->next;
        dialogue->wait_count--;
        free(wait);
        return true;
    }
    return false;
}

void dialogue_forget_waits(struct dialogue *dialogue)
{
    uint64_t request = 0;
    while (dialogue->waits)
        (void)take_wait(dialogue, dialogue->waits->id, &request);
}

void dialogue_born(void *context, struct sandbox *sandbox)
{
    struct dialogue *dialogue = context;
    uint64_t request = 0;
    for (bool is_reused = false; take_wait(dialogue, sandbox->record.id, &request); is_reused = true)
        say_sandbox(dialogue, request, sandbox, is_reused, true);
}

void dialogue_not_born(void *context, const char *id, const struct error *why)
{
    struct dialogue *dialogue = context;
    uint64_t request = 0;
    while (take_wait(dialogue, id, &request))
        refuse(dialogue, request, id, why);
}

void dialogue_kept(void *context, const struct sandbox *sandbox, const struct taking *taking, const struct error *why)
{
    struct dialogue *dialogue = context;
    if (why) {
        refuse(dialogue, taking->request, sandbox->record.id, why);
        return;
    }
    struct fl_kept *kept = &dialogue_say(dialogue, FL_KEPT, taking->request)->message.as.kept;
    memcpy(kept->id, sandbox->record.id, sizeof kept->id);
    memcpy(kept->snapshot, taking->record.name, sizeof kept->snapshot);
    memcpy(kept->template_name, taking->record.template_name, sizeof kept->template_name);
    memcpy(kept->storage, taking->record.storage, sizeof kept->storage);
    kept->size_bytes = taking->record.size_bytes;
}

void dialogue_looked(void *context, uint64_t request, int file, const struct error *why)
{
    struct dialogue *dialogue = context;
    if (file < 0)
        refuse(dialogue, request, "-", why);
    else
        dialogue_say(dialogue, FL_EVIDENT, request)->file = file;
}

/* --- answering --- */

static struct policy dialogue_policy(const struct dialogue *dialogue)
{
    return (struct policy){.settings = dialogue->settings,
                           .offer = &dialogue->sandboxes->house.offer,
                           .storage_is_memory = storage_is_memory(dialogue->sandboxes->house.storage)};
}

/* One that lives; NULL. */
static struct sandbox *find_living(struct dialogue *dialogue, const char *id, struct error *err)
{
    struct sandbox *sandbox = sandboxes_find(dialogue->sandboxes, id);
    if (!sandbox || sandbox->state == SANDBOX_ENDING)
        error_set(err, ERROR_NOT_FOUND, "no sandbox %s on this node", id);
    else if (sandbox->state != SANDBOX_LIVE)
        error_set(err, ERROR_STARTING, "the sandbox is being made");
    else
        return sandbox;
    return NULL;
}

/* All that lives, and the ends that a former front may not have passed on. */
static void answer_ready(struct dialogue *dialogue, uint64_t request)
{
    struct sandboxes *all = dialogue->sandboxes;
    say_identity(dialogue, request);
    dialogue_say_templates(dialogue);
    for (uint32_t slot = 0; slot < SLOTS_COUNT; slot++) {
        if (all->by_slot[slot] && all->by_slot[slot]->state == SANDBOX_LIVE)
            say_sandbox(dialogue, 0, all->by_slot[slot], false, true);
    }
    bool some_forgotten = all->ended_count > SANDBOXES_ENDED_KEPT;
    for (uint64_t number = some_forgotten ? all->ended_count - SANDBOXES_ENDED_KEPT : 0; number < all->ended_count;
         number++) {
        const struct sandbox_end *end = &all->ended[number % SANDBOXES_ENDED_KEPT];
        dialogue_say_ended(dialogue, 0, end->id, end);
    }
    dialogue->ends_told = all->ended_count;
    dialogue->ready = true;
    (void)dialogue_say(dialogue, FL_ADOPTED, request);
}

void dialogue_refresh_templates(struct dialogue *dialogue)
{
    if (!catalog_refresh(dialogue->sandboxes->house.catalog))
        return;
    dialogue->templates_changed = true;
    warm_trim(dialogue->sandboxes, clock_boot_ns());
}

/* What it is made of: a template by its name, or the very version that a snapshot was made of. */
static bool find_template(struct dialogue *dialogue, const struct fl_prepare *prepare, struct sandbox_wish *wish,
                          struct error *err)
{
    struct sandboxes_house *house = &dialogue->sandboxes->house;
    dialogue_refresh_templates(dialogue);
    if (!prepare->snapshot[0]) {
        wish->template = catalog_find(house->catalog, prepare->template_name, err);
        return wish->template != NULL;
    }
    const struct snapshot_record *snapshot = snapshots_use(house->snapshots, prepare->snapshot, err);
    wish->template = snapshot ? catalog_find_version(house->catalog, snapshot->template_version, err) : NULL;
    return wish->template != NULL;
}

static bool begin(struct dialogue *dialogue, uint64_t request, const struct fl_prepare *prepare, struct error *err)
{
    const struct settings *settings = dialogue->settings;
    struct policy policy = dialogue_policy(dialogue);
    AUTO_FREE struct sandbox_wish *wish = memory_new(sizeof *wish);
    wish->prepare = *prepare;
    wish->root_allowed = prepare->root_allowed && text_equal(settings->root_user, "allowed");
    if (!policy_judge(&policy, prepare, clock_wall_ms(), &wish->limits, err) ||
        !find_template(dialogue, prepare, wish, err))
        return false;
    wish->backend = isolation_choose(policy.offer, prepare->isolation, err);
    wait_for(dialogue, request, prepare->id); /* it may be over before sandboxes_create returns */
    if (sandboxes_create(dialogue->sandboxes, wish, err))
        return true;
    (void)take_wait(dialogue, prepare->id, &request);
    return false;
}

static void answer_prepare(struct dialogue *dialogue, uint64_t request, const struct fl_prepare *prepare)
{
    struct error err = {0};
    struct sandbox *sandbox = sandboxes_find(dialogue->sandboxes, prepare->id);
    const struct sandbox_end *end = sandbox ? NULL : sandboxes_find_end(dialogue->sandboxes, prepare->id);
    if (end || (sandbox && sandbox->state == SANDBOX_ENDING))
        error_set(&err, ERROR_GONE, "%s", sandbox ? sandbox->reason : end->reason);
    else if (!sandbox && begin(dialogue, request, prepare, &err))
        return;
    else if (sandbox && sandboxes_raise_epoch(dialogue->sandboxes, sandbox, prepare->epoch, &err)) {
        if (sandbox->state == SANDBOX_LIVE)
            say_sandbox(dialogue, request, sandbox, true, true);
        else
            wait_for(dialogue, request, prepare->id);
        return;
    }
    refuse(dialogue, request, prepare->id, &err);
}

static void answer_destroy(struct dialogue *dialogue, uint64_t request, const struct fl_destroy *destroy)
{
    struct sandbox *sandbox = sandboxes_find(dialogue->sandboxes, destroy->id);
    if (sandbox) {
        sandbox->destroy_request = request;
        sandboxes_end(dialogue->sandboxes, sandbox, destroy->reason);
        return; /* the end is told when there is one */
    }
    dialogue_say_ended(dialogue, request, destroy->id, sandboxes_find_end(dialogue->sandboxes, destroy->id));
}

/* Its init ends by itself: when the pidfd tells, the reason is known. */
static void note_reason(const struct dialogue *dialogue, const struct fl_destroy *ending)
{
    struct sandbox *sandbox = sandboxes_find(dialogue->sandboxes, ending->id);
    if (sandbox && !sandbox->reason[0])
        memcpy(sandbox->reason, ending->reason, sizeof sandbox->reason);
}

static void answer_deadline(struct dialogue *dialogue, uint64_t request, const struct fl_deadline *deadline)
{
    struct error err = {0};
    struct sandbox *sandbox = find_living(dialogue, deadline->id, &err);
    if (sandbox && policy_judge_deadline(dialogue->settings, clock_wall_ms(), deadline->deadline_wall_ms, &err) &&
        sandboxes_move_deadline(dialogue->sandboxes, sandbox, deadline->deadline_wall_ms, &err))
        say_sandbox(dialogue, request, sandbox, true, false);
    else
        refuse(dialogue, request, deadline->id, &err);
}

static void answer_limits(struct dialogue *dialogue, uint64_t request, const struct fl_limits_change *change)
{
    struct error err = {0};
    struct fl_limits limits = {0};
    struct policy policy = dialogue_policy(dialogue);
    struct sandbox *sandbox = find_living(dialogue, change->id, &err);
    const uint64_t memory = change->limits.memory_bytes;
    bool is_resize = sandbox && memory != 0 && memory != sandbox->record.limits.memory_bytes;
    if (sandbox && (!is_resize || policy_judge_lack(sandbox->backend, ISOLATION_NO_RESIZE, &err)) &&
        policy_judge_limits(&policy, &sandbox->record.limits, &change->limits, &limits, &err) &&
        sandboxes_limit(dialogue->sandboxes, sandbox, &limits, &err))
        say_sandbox(dialogue, request, sandbox, true, false);
    else
        refuse(dialogue, request, change->id, &err);
}

static void answer_network(struct dialogue *dialogue, uint64_t request, const struct fl_network_change *change)
{
    struct error err = {0};
    struct sandbox *sandbox = find_living(dialogue, change->id, &err);
    bool is_none = change->network.mode == FL_NETWORK_NONE;
    if (sandbox && (is_none || policy_judge_lack(sandbox->backend, ISOLATION_NO_EGRESS, &err)) &&
        policy_judge_network(dialogue->settings, &change->network, &err) &&
        sandboxes_wall(dialogue->sandboxes, sandbox, &change->network, &err))
        say_sandbox(dialogue, request, sandbox, true, false);
    else
        refuse(dialogue, request, change->id, &err);
}

static void answer_usage(struct dialogue *dialogue, uint64_t request, const struct fl_name *name)
{
    struct error err = {0};
    uint64_t bytes = 0;
    struct sandbox *sandbox = find_living(dialogue, name->id, &err);
    if (!sandbox || !sandboxes_usage(dialogue->sandboxes, sandbox, &bytes, &err)) {
        dialogue_say(dialogue, FL_REFUSED, request)->message.as.refused = err; /* asked every few seconds: not logged */
        return;
    }
    struct fl_used *used = &dialogue_say(dialogue, FL_USED, request)->message.as.used;
    memcpy(used->id, name->id, sizeof used->id);
    used->disk_bytes = bytes;
}

static void answer_evidence(struct dialogue *dialogue, uint64_t request, const struct fl_evidence *asked)
{
    struct error err = {0};
    struct sandbox *sandbox = find_living(dialogue, asked->id, &err);
    if (!sandbox || !sandboxes_look(dialogue->sandboxes, sandbox, asked, request, &err))
        refuse(dialogue, request, asked->id, &err);
}

static void answer_snapshot(struct dialogue *dialogue, uint64_t request, const struct fl_snapshot *asked)
{
    struct error err = {0};
    struct sandbox *sandbox = find_living(dialogue, asked->id, &err);
    if (!sandbox || !policy_judge_lack(sandbox->backend, ISOLATION_NO_SNAPSHOTS, &err) ||
        !sandboxes_keep(dialogue->sandboxes, sandbox, asked->snapshot, request, &err))
        refuse(dialogue, request, asked->id, &err);
}

static void answer_snapshot_drop(struct dialogue *dialogue, uint64_t request, const struct fl_snapshot *asked)
{
    struct error err = {0};
    struct snapshots *snapshots = dialogue->sandboxes->house.snapshots;
    sandboxes_stop_keeping(dialogue->sandboxes,
                           asked->snapshot); /* else it would be there when we have said it is gone */
    bool is_read = sandboxes_are_filling(dialogue->sandboxes, asked->snapshot);
    if (is_read)
        error_set(&err, ERROR_CONFLICT, "a sandbox is being made of snapshot %s", asked->snapshot);
    if (is_read || !snapshots_remove(snapshots, asked->snapshot, &err)) {
        refuse(dialogue, request, asked->snapshot, &err);
        return;
    }
    log_info("launcher", "snapshot removed snapshot=%s", asked->snapshot);
    dialogue->sandboxes->house.catalog->must_clean = true;
    (void)dialogue_say(dialogue, FL_DONE, request);
}

static void answer_volume_drop(struct dialogue *dialogue, uint64_t request, const struct fl_volume_drop *asked)
{
    struct error err = {0};
    char name[STORAGE_NAME_BYTES];
    attachments_disk_name(name, asked->owner, asked->source);
    bool is_used = sandboxes_have_volume(dialogue->sandboxes, name);
    if (is_used)
        error_set(&err, ERROR_CONFLICT, "a sandbox has volume %s", asked->source);
    if (is_used ||
        (!storage_volume_remove(dialogue->sandboxes->house.storage, name, &err) && err.kind != ERROR_NOT_FOUND))
        refuse(dialogue, request, asked->source, &err);
    else
        (void)dialogue_say(dialogue, FL_DONE, request); /* also when it was not there */
}

/* They know their tokens by a key of the epoch that is over. */
static void end_guests(struct sandboxes *all)
{
    for (uint32_t slot = 0; slot < SLOTS_COUNT; slot++) {
        if (all->by_slot[slot] && all->by_slot[slot]->backend->is_guest)
            sandboxes_end(all, all->by_slot[slot], "revoked");
    }
}

static void answer_rekey(struct dialogue *dialogue, uint64_t request, const struct fl_rekey *rekey)
{
    struct error err = {0};
    if (!identity_rekey(dialogue->identity, rekey, dialogue->node_file, &err)) {
        log_error("launcher", "re-keying was refused: %s", err.message);
        dialogue_say(dialogue, FL_REFUSED, request)->message.as.refused = err;
        return;
    }
    log_info("launcher", "re-keyed epoch=%" PRIu32, dialogue->identity->epoch);
    (void)dialogue_say(dialogue, FL_REKEYED, request);
    dialogue->rekeyed = true;
    end_guests(dialogue->sandboxes);
}

bool dialogue_answer(struct dialogue *dialogue, const struct front_launcher_message *message, struct error *err)
{
    if (dialogue->waiting + dialogue->wait_count > DIALOGUE_WAITING_MAX)
        return error_set(err, ERROR_INVALID, "the front asks and does not listen");
    if ((message->type == FL_READY) == dialogue->ready)
        return error_set(err, ERROR_INVALID, "the front said %s", dialogue->ready ? "ready twice" : "nothing first");
    switch (message->type) {
    case FL_READY:
        answer_ready(dialogue, message->request);
        return true;
    case FL_PREPARE:
        answer_prepare(dialogue, message->request, &message->as.prepare);
        return true;
    case FL_DESTROY:
        answer_destroy(dialogue, message->request, &message->as.destroy);
        return true;
    case FL_ENDING:
        note_reason(dialogue, &message->as.destroy);
        return true;
    case FL_DEADLINE:
        answer_deadline(dialogue, message->request, &message->as.deadline);
        return true;
    case FL_REKEY:
        answer_rekey(dialogue, message->request, &message->as.rekey);
        return true;
    case FL_LIMITS:
        answer_limits(dialogue, message->request, &message->as.limits);
        return true;
    case FL_NETWORK:
        answer_network(dialogue, message->request, &message->as.network);
        return true;
    case FL_USAGE:
        answer_usage(dialogue, message->request, &message->as.name);
        return true;
    case FL_EVIDENCE:
        answer_evidence(dialogue, message->request, &message->as.evidence);
        return true;
    case FL_SNAPSHOT:
        answer_snapshot(dialogue, message->request, &message->as.snapshot);
        return true;
    case FL_SNAPSHOT_DROP:
        answer_snapshot_drop(dialogue, message->request, &message->as.snapshot);
        return true;
    case FL_VOLUME_DROP:
        answer_volume_drop(dialogue, message->request, &message->as.volume_drop);
        return true;
    default:
        return error_set(err, ERROR_INVALID, "the front sent type %" PRIu32, message->type);
    }
}
