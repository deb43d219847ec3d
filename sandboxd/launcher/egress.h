/** egress.h - the launcher's half of the dialogue with parley-egress, and that process: it runs while a sandbox has a way
 * out, and is started again when it dies. What goes by NAT needs it not; names and what is checked by name wait for the
 * next one. Its bytes are checked, and what it asks for is judged here and by network_pin. */
#pragma once

#include "sandboxd/launcher/child_process.h"
#include "sandboxd/launcher/sandboxes.h"
#include "sandboxd/launcher/settings.h"
#include "sandboxd/launcher_egress/launcher_egress.h"

struct egress_entry;

/** Embedded. Private but for reading. */
struct egress {
    const struct settings *settings;
    struct networks *networks;
    struct sandboxes *sandboxes;
    struct child_process process;
    char *path;           /* of the program */
    uint64_t incarnation; /* of the process */
    bool is_ready;
    uint64_t retry_boot_ns; /* when sockets that could not be had are tried again; 0: none is missing */
    struct egress_entry *first, *last;
    size_t waiting;
};

/** Becomes who serves the ways out of `sandboxes`, which are started; `process` is one that is not started. */
void egress_init(struct egress *egress, const struct settings *settings, struct networks *networks,
                 struct sandboxes *sandboxes);
/** Ends the process, if it runs. */
void egress_done(struct egress *egress);

/** When egress_wake is due, or the process is to be started (then process.pid is 0), CLOCK_BOOTTIME ns; 0 never. */
uint64_t egress_next_wake(const struct egress *egress) MUST_USE;
/** Makes sockets that were missing. */
void egress_wake(struct egress *egress);

/** Starts the process; its descriptors are the caller's to watch. */
bool egress_start(struct egress *egress, struct error *err) MUST_USE;
/** It died, or is to be ended; `why` NULL: by itself. */
void egress_end(struct egress *egress, const char *why);

/** Takes and answers what it has sent, a bounded number of messages at a time. False: it is gone or sent what it may not,
 *  and should be ended. */
bool egress_receive(struct egress *egress, struct error *err) MUST_USE;
/** Sends as much as the socket takes. False as above. */
bool egress_send(struct egress *egress, struct error *err) MUST_USE;
/** Whether something waits for the socket to be writable. */
bool egress_is_waiting(const struct egress *egress) MUST_USE;
