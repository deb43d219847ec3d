/* node_verbs.c - what the negotiator asks for. */
#include "sandboxd/sandbox/sandbox_internal.h"

#include "shared/base/memory.h"
#include "shared/base/random.h"
#include "shared/base/text.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

typedef void done_fn(void *cookie, const struct verb_answer *answer);

/* For whom the negotiator asks, while its message is read on this loop. */
static __thread char asking[SANDBOXES_REQUEST_BYTES];

void sandboxes_asked_by(const char *request_id)
{
    if (!text_copy(asking, sizeof asking, request_id))
        asking[0] = '\0';
}

static struct verb *node_verb(struct sandboxes *all, const char *id, done_fn *done, void *cookie)
{
    struct verb *verb = verb_new(all, id);
    verb->done = done;
    verb->cookie = cookie;
    memcpy(verb->request_id, asking, sizeof verb->request_id);
    return verb;
}

/* ---- its life ---- */

void sandboxes_prepare(struct sandboxes *all, const struct fl_prepare *prepare, struct command *entrypoint,
                       done_fn *done, void *cookie)
{
    struct verb *verb = node_verb(all, prepare->id, done, cookie);
    verb->command = entrypoint;
    AUTO_REGISTRY_VIEW view = {0};
    if (registry_find(all->registry, prepare->id, &view) && view.state != REGISTRY_LIVE) {
        struct error err = {0};
        sandboxes_why_gone(all, prepare->id, &err);
        verb_finish(verb, &err);
        return;
    }
    struct front_launcher_message message = {.type = FL_PREPARE};
    message.as.prepare = *prepare;
    launcher_link_ask(all->launcher, &message, verb);
}

struct ending {
    struct sandboxes *all;
    char id[FRONT_LAUNCHER_ID_BYTES];
    char reason[FRONT_LAUNCHER_NAME_BYTES];
};

/* One that this front does not have may be being born: the launcher knows, and ends it in any state. */
static void end_unmet(const struct ending *ending)
{
    struct front_launcher_message message = {.type = FL_DESTROY};
    memcpy(message.as.destroy.id, ending->id, sizeof message.as.destroy.id);
    memcpy(message.as.destroy.reason, ending->reason, sizeof message.as.destroy.reason);
    launcher_link_ask(ending->all->launcher, &message, NULL);
}

static void run_ending(void *cookie)
{
    struct ending *ending = cookie;
    struct sandbox *sandbox = sandbox_find(ending->all, ending->id);
    if (sandbox)
        sandbox_end(sandbox, ending->reason);
    else
        end_unmet(ending);
    free(ending);
}

void sandboxes_destroy(struct sandboxes *all, const char *id, const char *reason)
{
    struct ending *ending = memory_new(sizeof *ending);
    ending->all = all;
    if (!text_copy(ending->id, sizeof ending->id, id)) {
        free(ending);
        return;
    }
    front_launcher_reason(ending->reason, reason);
    sandboxes_post(all, registry_owner(all->registry, id), run_ending, ending);
}

/* Else the verb is finished. */
static bool is_living(struct verb *verb)
{
    AUTO_REGISTRY_VIEW view = {0};
    struct error err = {0};
    if (registry_find(verb->all->registry, verb->sandbox_id, &view) && view.state == REGISTRY_LIVE)
        return true;
    sandboxes_why_gone(verb->all, verb->sandbox_id, &err);
    verb_finish(verb, &err);
    return false;
}

void sandboxes_set_deadline(struct sandboxes *all, const char *id, int64_t deadline_ms, done_fn *done, void *cookie)
{
    struct verb *verb = node_verb(all, id, done, cookie);
    AUTO_REGISTRY_VIEW view = {0};
    if (!registry_find(all->registry, id, &view) || view.state != REGISTRY_LIVE) {
        struct error err = {0};
        error_set(&err, ERROR_NOT_FOUND, "no sandbox %.40s runs here", id);
        verb_finish(verb, &err);
        return;
    }
    struct front_launcher_message message = {.type = FL_DEADLINE};
    memcpy(message.as.deadline.id, verb->sandbox_id, sizeof message.as.deadline.id);
    message.as.deadline.deadline_wall_ms = deadline_ms;
    launcher_link_ask(all->launcher, &message, verb);
}

/* A change on its way to the launcher: recorded before, and when it is refused. */
struct alteration {
    struct verb *verb; /* of who asked */
    const char *action;
};

static void on_altered(void *cookie, const struct verb_answer *answer)
{
    struct alteration *alteration = cookie;
    struct verb *verb = alteration->verb;
    struct error ignored = {0};
    bool failed = answer->error.kind != ERROR_NONE;
    if (failed)
        (void)!sandbox_tell_change(verb, alteration->action, "", &answer->error, &ignored);
    free(alteration);
    verb_finish(verb, failed ? &answer->error : NULL);
}

static void on_alteration_dropped(void *cookie)
{
    struct alteration *alteration = cookie;
    verb_finish(alteration->verb, NULL);
    free(alteration);
}

/* Takes the verb, of a living sandbox. */
static void alter(struct verb *verb, const char *action, const char *detail,
                  const struct front_launcher_message *message)
{
    struct error err = {0};
    if (!sandbox_tell_change(verb, action, detail, NULL, &err)) {
        verb_finish(verb, &err);
        return;
    }
    struct alteration *alteration = memory_new(sizeof *alteration);
    *alteration = (struct alteration){.verb = verb, .action = action};
    struct verb *told = node_verb(verb->all, verb->sandbox_id, on_altered, alteration);
    told->dropped = on_alteration_dropped;
    launcher_link_ask(verb->all->launcher, message, told);
}

void sandboxes_set_limits(struct sandboxes *all, const char *id, const struct fl_limits *limits, done_fn *done,
                          void *cookie)
{
    struct verb *verb = node_verb(all, id, done, cookie);
    char detail[256];
    if (!is_living(verb))
        return;
    (void)snprintf(detail, sizeof detail,
                   "cpu_milli=%" PRIu32 " memory_bytes=%" PRIu64 " disk_bytes=%" PRIu64 " pids=%" PRIu32
                   " open_files=%" PRIu32 " commands=%" PRIu32 " output_bytes=%" PRIu64,
                   limits->cpu_milli, limits->memory_bytes, limits->disk_bytes, limits->pids, limits->open_files,
                   limits->commands, limits->output_bytes);
    struct front_launcher_message message = {.type = FL_LIMITS};
    memcpy(message.as.limits.id, verb->sandbox_id, sizeof message.as.limits.id);
    message.as.limits.limits = *limits;
    alter(verb, "limits", detail, &message);
}

void sandboxes_set_network(struct sandboxes *all, const char *id, const struct fl_network *network, const char *detail,
                           done_fn *done, void *cookie)
{
    struct verb *verb = node_verb(all, id, done, cookie);
    if (!is_living(verb))
        return;
    struct front_launcher_message message = {.type = FL_NETWORK};
    memcpy(message.as.network.id, verb->sandbox_id, sizeof message.as.network.id);
    message.as.network.network = *network;
    alter(verb, "network", detail, &message);
}

/* ---- pause, snapshots, volumes ---- */

void sandboxes_pause(struct sandboxes *all, const char *id, done_fn *done, void *cookie)
{
    struct verb *verb = node_verb(all, id, done, cookie);
    verb->work = sandbox_verb_pause;
    verb_send(verb);
}

void sandboxes_resume(struct sandboxes *all, const char *id, done_fn *done, void *cookie)
{
    struct verb *verb = node_verb(all, id, done, cookie);
    verb->work = sandbox_verb_resume;
    verb_send(verb);
}

void sandboxes_snapshot(struct sandboxes *all, const char *id, const char *snapshot, done_fn *done, void *cookie)
{
    struct verb *verb = node_verb(all, id, done, cookie);
    verb->work = sandbox_verb_snapshot;
    if (random_is_id(snapshot, "snp") && text_copy(verb->snapshot, sizeof verb->snapshot, snapshot)) {
        verb_send(verb);
        return;
    }
    struct error err = {0};
    error_set(&err, ERROR_INVALID, "snapshot: \"snp_...\"");
    verb_finish(verb, &err);
}

void sandboxes_drop_snapshot(struct sandboxes *all, const char *snapshot, done_fn *done, void *cookie)
{
    struct verb *verb = node_verb(all, "", done, cookie);
    struct front_launcher_message message = {.type = FL_SNAPSHOT_DROP};
    struct error err = {0};
    if (text_copy(message.as.snapshot.snapshot, sizeof message.as.snapshot.snapshot, snapshot)) {
        launcher_link_ask(all->launcher, &message, verb);
        return;
    }
    error_set(&err, ERROR_INVALID, "snapshot: \"snp_...\"");
    verb_finish(verb, &err);
}

void sandboxes_drop_volume(struct sandboxes *all, const char *owner, const char *name, done_fn *done, void *cookie)
{
    struct verb *verb = node_verb(all, "", done, cookie);
    struct front_launcher_message message = {.type = FL_VOLUME_DROP};
    struct fl_volume_drop *drop = &message.as.volume_drop;
    struct error err = {0};
    if (text_copy(drop->owner, sizeof drop->owner, owner) && text_copy(drop->source, sizeof drop->source, name)) {
        launcher_link_ask(all->launcher, &message, verb);
        return;
    }
    error_set(&err, ERROR_INVALID, "volume: owner or name is too long");
    verb_finish(verb, &err);
}

/* ---- the rest ---- */

void sandboxes_evidence(struct sandboxes *all, const char *id, enum fl_evidence_part part, uint64_t skip, done_fn *done,
                        void *cookie)
{
    struct error err = {0};
    struct verb *verb = node_verb(all, id, done, cookie);
    if (!is_living(verb))
        return;
    const char *detail = part == FL_EVIDENCE_FILES ? "part=files" : "part=processes";
    if (skip == 0 && !sandbox_tell_change(verb, "evidence", detail, NULL, &err)) {
        verb_finish(verb, &err);
        return;
    }
    struct front_launcher_message message = {.type = FL_EVIDENCE};
    memcpy(message.as.evidence.id, verb->sandbox_id, sizeof message.as.evidence.id);
    message.as.evidence.part = part;
    message.as.evidence.skip = skip;
    launcher_link_ask(all->launcher, &message, verb);
}

void sandboxes_metrics(struct sandboxes *all, const char *id, done_fn *done, void *cookie)
{
    struct verb *verb = node_verb(all, id, done, cookie);
    verb->work = sandbox_verb_metrics;
    verb_send(verb);
}

void sandboxes_rekey(struct sandboxes *all, const struct fl_rekey *rekey, done_fn *done, void *cookie)
{
    struct verb *verb = node_verb(all, "", done, cookie);
    struct front_launcher_message message = {.type = FL_REKEY, .as.rekey = *rekey};
    launcher_link_ask(all->launcher, &message, verb);
}
