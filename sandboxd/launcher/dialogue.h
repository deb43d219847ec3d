/** dialogue.h - what the launcher answers its front, message by message, and the queue of what the front has yet to
 * take. Knows no processes and no epoll; the front's bytes were checked, its wishes are judged here (policy.h). */
#pragma once

#include "sandboxd/launcher/identity.h"
#include "sandboxd/launcher/policy.h"
#include "sandboxd/launcher/sandboxes.h"
#include "sandboxd/launcher/settings.h"

struct dialogue_entry;
struct dialogue_wait;

/** Embedded. Private. */
struct dialogue {
    const struct settings *settings;
    struct identity *identity;
    const char *node_file; /* where it is kept */
    struct sandboxes *sandboxes;
    uint64_t incarnation;
    int socket;         /* the front's; -1 none */
    bool ready;         /* FL_READY came: ends are told as they happen */
    bool rekeyed;       /* the identity has changed: this front still has the keys of before */
    uint64_t ends_told; /* number of the next end to tell */
    struct dialogue_entry *first, *last;
    size_t waiting;
    struct dialogue_wait *waits; /* prepares whose sandboxes are being born */
    size_t wait_count;
    bool templates_changed; /* since the front was told of them */
};

/** Becomes the listener of `sandboxes`, which are started. */
void dialogue_init(struct dialogue *dialogue, const struct settings *settings, struct identity *identity,
                   const char *node_file, struct sandboxes *sandboxes);

/** Reads the folder of templates if it has changed: the front is told, and the pool follows. */
void dialogue_refresh_templates(struct dialogue *dialogue);

/** A new front behind `socket` (borrowed); forgets all that the former was to get, and gives up the births and
 *  the snapshots that it asked for. */
void dialogue_begin(struct dialogue *dialogue, int socket, uint64_t incarnation);
void dialogue_end(struct dialogue *dialogue);

/** Takes and answers what the front has sent, a bounded number of messages at a time. False: the front is gone or sent
 *  what it may not, and should be ended; ERROR_GONE or ERROR_INVALID. */
bool dialogue_receive(struct dialogue *dialogue, struct error *err) MUST_USE;

/** Queues FL_ENDED for what ended since, and sends as much as the socket takes. False as above. */
bool dialogue_send(struct dialogue *dialogue, struct error *err) MUST_USE;

/** Whether something waits for the socket to be writable. */
bool dialogue_is_waiting(const struct dialogue *dialogue) MUST_USE;

/** The node was re-keyed and the front has been told so: it is to make room for one with the new keys. */
bool dialogue_is_over(const struct dialogue *dialogue) MUST_USE;
