/** init_link.h - the connection to one sandbox's init: found through the run folder's descriptor, its peer's uid
 * checked, made again when it breaks. Belongs to the sandbox's loop. */
#pragma once

#include "sandboxd/front_init/front_init.h"
#include "shared/base/cleanup.h"
#include "shared/base/error.h"
#include "shared/http/loop.h"

#include <stdbool.h>
#include <sys/types.h>

#define INIT_LINK_WAITING_MAX 512 /* messages that wait for a full socket */

struct init_link;

struct init_link_events {
    /** One checked message. Descriptors it keeps it sets to -1; the others are closed. */
    void (*message)(void *cookie, const struct front_init_message *message, int *fds, size_t fd_count);
    /** The connection broke; it is being made again. Not called for attempts that fail. */
    void (*lost)(void *cookie);
};

/** Starts connecting to `socket_path` below the folder `run_folder` (borrowed), where a process of `uid` must listen.
 *  FRONT_LAUNCHER_ANY_UID: of any. Calls no event before it has returned. */
struct init_link *init_link_new(struct loop *loop, int run_folder, const char *socket_path, uid_t uid,
                                const struct init_link_events *events, void *cookie) MUST_USE;

/** What init said, well-formed as it was, is a lie: as a malformed message it ends the connection, and each lie doubles
 *  the time until the next one is made, up to a minute. It is logged, the 1st, 2nd, 4th, 8th ... time. Also allowed
 *  inside an event: `lost` is called in here. */
void init_link_accuse(struct init_link *link, const char *what);

/** As init_link_accuse, of what does no harm: the connection stays. */
void init_link_blame(struct init_link *link, const char *what);

/** Also allowed inside an event. */
void init_link_free(struct init_link *link);
DEFINE_AUTO(init_link)

/** Sends, or queues when the socket is full or being made: an FI_START, FI_DIAL or FI_LISTENERS only while connected
 * (ERROR_STARTING), the others also across a break. Takes the at most FI_START_FDS descriptors in every case.
 * ERROR_NO_CAPACITY when too many wait. */
bool init_link_send(struct init_link *link, const struct front_init_message *message, const int *fds, size_t fd_count,
                    struct error *err) MUST_USE;
