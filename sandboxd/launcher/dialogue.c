/* dialogue.c - see dialogue.h: the queue and the socket. What is said: answers.c. */
#include "sandboxd/launcher/dialogue_internal.h"

#include "shared/base/fd.h"
#include "shared/base/log.h"
#include "shared/base/memory.h"
#include "shared/base/text.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

void dialogue_init(struct dialogue *dialogue, const struct settings *settings, struct identity *identity,
                   const char *node_file, struct sandboxes *sandboxes)
{
    *dialogue = (struct dialogue){
        .settings = settings, .identity = identity, .node_file = node_file, .sandboxes = sandboxes, .socket = -1};
    sandboxes->listener = (struct sandboxes_listener){
        .born = dialogue_born, .not_born = dialogue_not_born, .kept = dialogue_kept, .looked = dialogue_looked,
        .context = dialogue};
}

static void take_first(struct dialogue *dialogue)
{
    struct dialogue_entry *entry = dialogue->first;
    dialogue->first = entry->next;
    dialogue->last = dialogue->first ? dialogue->last : NULL;
    dialogue->waiting--;
    fd_drop(entry->file);
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
    dialogue_forget_waits(dialogue);
    sandboxes_give_up(dialogue->sandboxes);
    dialogue->socket = -1;
    dialogue->ready = false;
    dialogue->rekeyed = false;
}

struct dialogue_entry *dialogue_say(struct dialogue *dialogue, enum front_launcher_type type, uint64_t request)
{
    struct dialogue_entry *entry = memory_new(sizeof *entry);
    entry->file = -1;
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

bool dialogue_is_waiting(const struct dialogue *dialogue)
{
    return dialogue->first != NULL;
}

bool dialogue_is_over(const struct dialogue *dialogue)
{
    return dialogue->rekeyed && dialogue->first == NULL;
}

bool dialogue_receive(struct dialogue *dialogue, struct error *err)
{
    for (int i = 0; i < DIALOGUE_MESSAGES_A_TURN && dialogue->socket >= 0; i++) {
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
        if (!dialogue_answer(dialogue, &message, err))
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
    if (!sandbox || sandbox->state != SANDBOX_LIVE || !sandboxes_open_stats(sandbox, &why)) {
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
        dialogue_say_ended(dialogue, end->destroy_request, end->id, end);
    }
}

bool dialogue_send(struct dialogue *dialogue, struct error *err)
{
    say_new_ends(dialogue);
    if (dialogue->ready && dialogue->templates_changed && !dialogue->first)
        dialogue_say_templates(dialogue);
    while (dialogue->first && dialogue->socket >= 0) {
        const struct dialogue_entry *entry = dialogue->first;
        struct error why = {0};
        bool sent = entry->with_descriptors ? send_with_descriptors(dialogue, &entry->message, &why)
                                            : front_launcher_send(dialogue->socket, &entry->message, &entry->file,
                                                                  entry->file >= 0 ? 1 : 0, &why);
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
