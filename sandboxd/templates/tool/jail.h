/** jail.h - a throw-away child without rights that does one piece of work on a folder: own user, mount, pid, network,
 * ipc and uts namespaces; ids of a range that nobody has; capabilities for its own namespace at most; bounded memory,
 * file size and time. What it says comes in messages (message.h). It dies with us. */
#pragma once

#include "sandboxd/templates/tool/message.h"

#include <sys/types.h>

#define JAIL_IDS 65536U

enum jail_kind {
    JAIL_PARSE, /* its root is an empty read-only folder; the rootfs is a descriptor; seccomp: files and memory alone */
    JAIL_FETCH, /* its root has the host's /usr read-only and the rootfs at /target; the host's network */
    JAIL_CONFIGURE /* its root is the rootfs; no network */
};

/** What a child's work is given. */
struct jail_inside {
    int rootfs;  /* JAIL_PARSE: the folder, ids 0..65535; else -1 */
    int channel; /* for message_send */
    void *context;
};

struct jail_plan {
    enum jail_kind kind;
    const char *rootfs;  /* the host's path: what it may write to */
    const char *folder;  /* JAIL_PARSE: a folder it may read, which it gets as `folder_fd`; or NULL */
    int *folder_fd;      /* set in the child before work */
    int *files[2];       /* open descriptors it keeps, by where their numbers are; may be NULL */
    uint64_t file_bytes; /* no file of it gets larger */
    /** In the child. Ends with MESSAGE_RESULT or MESSAGE_FAILED sent; then it returns. Or, of the other two kinds,
     *  executes a program, whose output (stdout and stderr) becomes MESSAGE_TEXT lines. */
    void (*work)(const struct jail_inside *inside);
    void *context;
};

/** Embedded. Private fields. */
struct jail {
    int pidfd, channel, output, range; /* -1: none */
    uint64_t deadline;                 /* CLOCK_BOOTTIME, ns */
    char line[256];                    /* of the output, as far as it has come */
    size_t line_length;
};
#define JAIL_NONE ((struct jail){.pidfd = -1, .channel = -1, .output = -1, .range = -1})

/** Starts the child; it may work for `seconds`. Must be root. */
bool jail_start(struct jail *jail, const struct jail_plan *plan, unsigned seconds, struct error *err) MUST_USE;
/** The next message, checked. 1 it has come; 0 the child has ended with status 0 (then no MESSAGE_RESULT came); -1
 *  failed: TIMEOUT, INVALID (a wrong message), INTERNAL (it died; the sentence says how). */
int jail_next(struct jail *jail, struct message *message, struct error *err) MUST_USE;
/** Kills what is left of it. */
void jail_done(struct jail *jail);
#define AUTO_JAIL __attribute__((cleanup(jail_done))) struct jail
