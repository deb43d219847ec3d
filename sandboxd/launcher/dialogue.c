#include "sandboxd/launcher/dialogue.h"

#include "sandboxd/launcher/policy.h"
#include "shared/base/log.h"
#include "shared/base/memory.h"
#include "shared/base/text.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* A front that takes nothing is ended: what waits for it is bounded. Room for all sandboxes and all kept ends. */
enum { WAITING_MAX = 2 * SLOTS_COUNT + 2 * SANDBOXES_ENDED_KEPT, MESSAGES_A_TURN = 16 };

struct dialogue_entry {
    struct dialogue_entry *next;
    bool with_descriptors; /* of the sandbox named in it, opened when it is sent */
    struct front_launcher_message message;
};

void dialogue_init(struct dialogue *dialogue, const struct settings *settings, struct identity *identity,
                   const char *node_file, struct sandboxes *sandboxes)
{
    *dialogue = (struct dialogue){
        .settings = settings, .identity = identity, .node_file = node_file, .sandboxes = sandboxes, .socket = -1};
}

static void take_first(struct dialogue *dialogue)
{
    struct dialogue_entry *entry = dialogue->first;
    dialogue->first = entry->next;
    dialogue->last = dialogue->first ? dialogue->last : NULL;
    dialogue->waiting--;
    explicit_bzero(entry, sizeof *entry); /* it may hold keys */
    free(entry);
}

void dialogue_begin(struct dialogue *dialogue, int socket, uint64_t incarnation)
{
    dialogue_end(dialogue);
    for (uint32_t slot = 0; slot < SLOTS_COUNT; slot++) {
        if (dialogue->sandboxes->by_slot[slot])
            dialogue->sandboxes->by_slot[slot]->destroy_request = 0; /* the former front's */
    }
    dialogue->socket = socket;
    dialogue->incarnation = incarnation;
}

void dialogue_end(struct dialogue *dialogue)
{
    while (dialogue->first)
        take_first(dialogue);
    dialogue->socket = -1;
    dialogue->ready = false;
    dialogue->rekeyed = false;
}

bool dialogue_is_waiting(const struct dialogue *dialogue)
{
    return dialogue->first != NULL;
}

bool dialogue_is_over(const struct dialogue *dialogue)
{
    return dialogue->rekeyed && dialogue->first == NULL;
}

/* --- saying --- */

/* A fresh message at the queue's end, zeroed but for its head; the caller fills it in. */
static struct dialogue_entry *say(struct dialogue *dialogue, enum front_launcher_type type, uint64_t request)
{
    struct dialogue_entry *entry = memory_new(sizeof *entry);
    entry->message.type = type;
    entry->message.request = request;
    if (dialogue->last)
        dialogue->last->next = entry;
    else
        dialogue->first = entry;
    dialogue->last = entry;
    dialogue->waiting++;
    return entry;
}

static void refuse(struct dialogue *dialogue, uint64_t request, const char *id, const struct error *why)
{
    log_info("launcher", "refused sandbox=%s: %s", id, why->message);
    say(dialogue, FL_REFUSED, request)->message.as.refused = *why;
}

/* NULL end: nothing is known of it; then the front gets no root either: it could collect those of ids to come. */
static void say_ended(struct dialogue *dialogue, uint64_t request, const char *id, const struct sandbox_end *end)
{
    struct fl_ended *ended = &say(dialogue, FL_ENDED, request)->message.as.ended;
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
    struct dialogue_entry *entry = say(dialogue, FL_SANDBOX, request);
    struct fl_sandbox *said = &entry->message.as.sandbox;
    entry->with_descriptors = with_descriptors;
    memcpy(said->id, record->id, sizeof said->id);
    memcpy(said->hostname, record->hostname, sizeof said->hostname);
    memcpy(said->template_name, record->template_name, sizeof said->template_name);
    memcpy(said->isolation, record->isolation, sizeof said->isolation);
    (void)!text_copy(said->storage, sizeof said->storage, "tmpfs");
    said->limits = record->limits;
    said->slot = record->slot;
    said->uid_base = record->uid_base;
    said->init_pid = record->init_pid;
    said->reused = reused;
    said->created_wall_ms = record->created_wall_ms;
    said->deadline_wall_ms = record->deadline_wall_ms;
    said->epoch = record->epoch;
    memcpy(said->env, record->env, sizeof said->env);
    (void)!text_copy(said->workdir, sizeof said->workdir, "/workspace");
    said->uid = said->gid = 1000;
    key_sandbox_root(&said->root, &dialogue->identity->node_key, record->id);
    snprintf(said->socket_path, sizeof said->socket_path, "%" PRIu32 "/init.sock", record->slot);
}

static void say_identity(struct dialogue *dialogue, uint64_t request)
{
    const struct identity *identity = dialogue->identity;
    struct fl_identity *said = &say(dialogue, FL_IDENTITY, request)->message.as.identity;
    memcpy(said->node, identity->node, sizeof said->node);
    memcpy(said->issuer, identity->deployment, sizeof said->issuer);
    memcpy(said->negotiator_url, identity->negotiator_url, sizeof said->negotiator_url);
    said->incarnation = dialogue->incarnation;
    key_link(&said->link_to_node, &identity->node_key, "negotiator");
    key_link(&said->link_from_node, &identity->node_key, "sandboxd");
    said->slots_max = (uint32_t)dialogue->settings->slots_max;
    (void)!text_copy(said->storage, sizeof said->storage, "tmpfs");
}

/* --- answering --- */

/* All that lives, and the ends that a former front may not have passed on. */
static void answer_ready(struct dialogue *dialogue, uint64_t request)
{
    struct sandboxes *all = dialogue->sandboxes;
    say_identity(dialogue, request);
    for (uint32_t slot = 0; slot < SLOTS_COUNT; slot++) {
        if (all->by_slot[slot] && !all->by_slot[slot]->ending)
            say_sandbox(dialogue, 0, all->by_slot[slot], false, true);
    }
    bool some_forgotten = all->ended_count > SANDBOXES_ENDED_KEPT;
    for (uint64_t number = some_forgotten ? all->ended_count - SANDBOXES_ENDED_KEPT : 0; number < all->ended_count;
         number++) {
        const struct sandbox_end *end = &all->ended[number % SANDBOXES_ENDED_KEPT];
        say_ended(dialogue, 0, end->id, end);
    }
    dialogue->ends_told = all->ended_count;
    dialogue->ready = true;
    (void)say(dialogue, FL_ADOPTED, request);
}

static void answer_prepare(struct dialogue *dialogue, uint64_t request, const struct fl_prepare *prepare)
{
    struct error err = {0};
    struct sandbox *sandbox = sandboxes_find(dialogue->sandboxes, prepare->id);
    const struct sandbox_end *end = sandbox ? NULL : sandboxes_find_end(dialogue->sandboxes, prepare->id);
    if (sandbox && !sandbox->ending) {
        if (sandboxes_raise_epoch(dialogue->sandboxes, sandbox, prepare->epoch, &err))
            say_sandbox(dialogue, request, sandbox, true, true);
        else
            refuse(dialogue, request, prepare->id, &err);
        return;
    }
    if (sandbox || end)
        error_set(&err, ERROR_GONE, "%s", sandbox ? sandbox->reason : end->reason);
    struct fl_limits limits = {0};
    bool allowed = err.kind == ERROR_NONE && policy_judge(dialogue->settings, prepare, clock_wall_ms(), &limits, &err);
    sandbox = allowed ? sandboxes_create(dialogue->sandboxes, prepare, &limits, &err) : NULL;
    if (sandbox)
        say_sandbox(dialogue, request, sandbox, false, true);
    else
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
    say_ended(dialogue, request, destroy->id, sandboxes_find_end(dialogue->sandboxes, destroy->id));
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
    struct sandbox *sandbox = sandboxes_find(dialogue->sandboxes, deadline->id);
    if (!sandbox || sandbox->ending)
        error_set(&err, ERROR_NOT_FOUND, "no sandbox %s on this node", deadline->id);
    else if (policy_judge_deadline(dialogue->settings, sandbox->record.created_wall_ms, deadline->deadline_wall_ms,
                                   &err) &&
             sandboxes_move_deadline(dialogue->sandboxes, sandbox, deadline->deadline_wall_ms, &err)) {
        say_sandbox(dialogue, request, sandbox, true, false);
        return;
    }
    refuse(dialogue, request, deadline->id, &err);
}

static void answer_rekey(struct dialogue *dialogue, uint64_t request, const struct fl_rekey *rekey)
{
    struct error err = {0};
    if (!identity_rekey(dialogue->identity, rekey, dialogue->node_file, &err)) {
        log_error("launcher", "re-keying was refused: %s", err.message);
        say(dialogue, FL_REFUSED, request)->message.as.refused = err;
        return;
    }
    log_info("launcher", "re-keyed epoch=%" PRIu32, dialogue->identity->epoch);
    (void)say(dialogue, FL_REKEYED, request);
    dialogue->rekeyed = true;
}

/* Asked by a front that is newer than what this launcher can do. */
static void answer_unable(struct dialogue *dialogue, const struct front_launcher_message *message)
{
    struct error *why = &say(dialogue, FL_REFUSED, message->request)->message.as.refused;
    error_set(why, ERROR_INTERNAL, "this launcher does not know how to answer type %" PRIu32, message->type);
}

static bool answer(struct dialogue *dialogue, const struct front_launcher_message *message, struct error *err)
{
    if (dialogue->waiting > WAITING_MAX)
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
    case FL_USAGE:
    case FL_SNAPSHOT:
    case FL_SNAPSHOT_DROP:
    case FL_VOLUME_DROP:
        answer_unable(dialogue, message);
        return true;
    default:
        return error_set(err, ERROR_INVALID, "the front sent type %" PRIu32, message->type);
    }
}

bool dialogue_receive(struct dialogue *dialogue, struct error *err)
{
    for (int i = 0; i < MESSAGES_A_TURN && dialogue->socket >= 0; i++) {
        struct front_launcher_message message;
        int fds[FL_FDS];
        size_t fd_count = 0;
        struct error why = {0};
        int got = front_launcher_receive(dialogue->socket, &message, FL_FROM_FRONT, fds, &fd_count, &why);
        if (got < 0 && why.system_errno == EAGAIN)
            return true;
        if (got == 0)
            return error_set(err, ERROR_GONE, "the front closed its socket");
        if (got < 0) {
            *err = why;
            return false;
        }
        if (!answer(dialogue, &message, err))
            return false;
    }
    return true;
}

/* --- sending --- */

/* Sends with the sandbox's descriptors; skips one that ended meanwhile, of which an end is told, and one whose
 * descriptors cannot be had now: a later FL_PREPARE finds it. */
static bool send_with_descriptors(struct dialogue *dialogue, const struct front_launcher_message *message,
                                  struct error *err)
{
    struct sandbox *sandbox = sandboxes_find(dialogue->sandboxes, message->as.sandbox.id);
    struct error why = {0};
    if (!sandbox || sandbox->ending || !sandboxes_open_stats(dialogue->sandboxes, sandbox, &why)) {
        bool lives = why.kind != ERROR_NONE && why.kind != ERROR_NOT_FOUND;
        if (lives)
            log_error("launcher", "%s sandbox=%s", why.message, message->as.sandbox.id);
        if (message->request == 0)
            return true;
        struct front_launcher_message refused = {.type = FL_REFUSED, .request = message->request};
        if (lives)
            refused.as.refused = why;
        else
            error_set(&refused.as.refused, ERROR_GONE, "the sandbox ended at once");
        return front_launcher_send(dialogue->socket, &refused, NULL, 0, err);
    }
    int fds[FL_FDS] = {sandbox->handle.init};
    memcpy(fds + 1, sandbox->handle.stats, sizeof sandbox->handle.stats);
    bool sent = front_launcher_send(dialogue->socket, message, fds, FL_FDS, err);
    if (sent)
        sandboxes_close_stats(sandbox);
    return sent;
}

static void say_new_ends(struct dialogue *dialogue)
{
    struct sandboxes *all = dialogue->sandboxes;
    while (dialogue->ready && dialogue->ends_told < all->ended_count) {
        const struct sandbox_end *end = &all->ended[dialogue->ends_told++ % SANDBOXES_ENDED_KEPT];
        say_ended(dialogue, end->destroy_request, end->id, end);
    }
}

bool dialogue_send(struct dialogue *dialogue, struct error *err)
{
    say_new_ends(dialogue);
    while (dialogue->first && dialogue->socket >= 0) {
        const struct dialogue_entry *entry = dialogue->first;
        struct error why = {0};
        bool sent = entry->with_descriptors ? send_with_descriptors(dialogue, &entry->message, &why)
                                            : front_launcher_send(dialogue->socket, &entry->message, NULL, 0, &why);
        if (!sent && why.system_errno == EAGAIN)
            return true;
        if (!sent) {
            *err = why;
            return false;
        }
        take_first(dialogue);
    }
    return true;
}
