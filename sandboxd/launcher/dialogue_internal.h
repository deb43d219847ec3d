/** dialogue_internal.h - what dialogue.c (the queue, the socket) and answers.c (what is said) share. */
#pragma once

#include "sandboxd/launcher/dialogue.h"

struct dialogue_entry {
    struct dialogue_entry *next;
    bool with_descriptors; /* of the sandbox named in it, opened when it is sent */
    int file;              /* that goes with it; -1 none. Owned */
    struct front_launcher_message message;
};

/** A prepare that is answered when its sandbox lives, or does not. */
struct dialogue_wait {
    struct dialogue_wait *next;
    uint64_t request;
    char id[FRONT_LAUNCHER_ID_BYTES];
};

/** A fresh message at the queue's end, zeroed but for its head; the caller fills it in. */
struct dialogue_entry *dialogue_say(struct dialogue *dialogue, enum front_launcher_type type, uint64_t request);

/** One checked message of the front; false when it may not say that. */
bool dialogue_answer(struct dialogue *dialogue, const struct front_launcher_message *message,
                     struct error *err) MUST_USE;

/** Queues what nobody asked for. */
void dialogue_say_ended(struct dialogue *dialogue, uint64_t request, const char *id, const struct sandbox_end *end);
void dialogue_say_templates(struct dialogue *dialogue);

/** What the sandboxes tell (struct sandboxes_listener). */
void dialogue_born(void *context, struct sandbox *sandbox);
void dialogue_not_born(void *context, const char *id, const struct error *why);
void dialogue_kept(void *context, const struct sandbox *sandbox, const struct taking *taking, const struct error *why);

void dialogue_looked(void *context, uint64_t request, int file, const struct error *why);

void dialogue_forget_waits(struct dialogue *dialogue);

/* A front that takes nothing is ended: what waits for it is bounded. Room for all sandboxes and all kept ends. */
enum { DIALOGUE_WAITING_MAX = 2 * SLOTS_COUNT + 2 * SANDBOXES_ENDED_KEPT, DIALOGUE_MESSAGES_A_TURN = 16 };
