/** launcher_init.h - the one dialogue between launcher and init (or the keeper of a guest, isolation/guest), over a
 *  socket pair that it is born with.
 *
 *  SOCK_SEQPACKET. init, with all its capabilities and nothing of any user's done yet, says LI_BARRIER: it is *warm*.
 *  Then it waits for one LI_BECOME (with its descriptors), makes the sandbox what it is to be, gives its capabilities
 * up, listens to the front and says LI_READY; or LI_FAILED, at any time, and ends. Then both close the socket: a living
 *  sandbox has no way to the launcher, and the launcher reads nothing of one in which a command has run. The end of the
 *  launcher's side before LI_BECOME ends init. Compiled into the static init: libc only. */
#pragma once

#include "shared/base/error.h"

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define LAUNCHER_INIT_NAME_BYTES      64
#define LAUNCHER_INIT_PATH_BYTES      256
#define LAUNCHER_INIT_VOLUMES         8
#define LAUNCHER_INIT_ARGUMENTS       48
#define LAUNCHER_INIT_ARGUMENTS_BYTES 4096
#define LAUNCHER_INIT_FDS             (LAUNCHER_INIT_VOLUMES + 1) /* of any message */

enum launcher_init_type {
    /* init -> launcher */
    LI_BARRIER = 1,
    LI_READY,
    LI_FAILED, /* a struct error */
    /* launcher -> init */
    LI_BECOME, /* + one detached mount a volume, in their order; behind them a memfd with the letter, if has_letter */
    LI_GUEST   /* to a keeper, before LI_BARRIER: which monitor it keeps */
};

/* The monitor of a guest: a program of the keeper's root, with its arguments. */
struct li_guest {
    char arguments[LAUNCHER_INIT_ARGUMENTS_BYTES]; /* one behind the other, each ended by a NUL; the first is an
                                                      absolute path. "{memory_mib}", "{cpu_milli}", "{cpus}", "{pids}"
                                                      as a whole argument stand for the limits, where it starts late */
    uint32_t argument_count;                       /* 1..LAUNCHER_INIT_ARGUMENTS */
    uint16_t port;       /* connections go to 127.0.0.1:port of the keeper's network namespace; 0: they are sent over
                            the monitor's stdin (SCM_RIGHTS) */
    uint8_t starts_late; /* 1: with LI_BECOME, 0: before LI_BARRIER */
    uint8_t reserved;
};

struct li_volume {
    char
        path[LAUNCHER_INIT_PATH_BYTES]; /* absolute, normalised, inside; made when it is not there, not through links */
};

struct li_become {
    char hostname[LAUNCHER_INIT_NAME_BYTES]; /* "": it stays as it is, with /etc/hosts */
    uint64_t deadline_boot_ns;               /* hard deadline, CLOCK_BOOTTIME; 0 none */
    uint64_t shared_bytes;                   /* size of /dev/shm; 0: it stays as it is */
    uint32_t uid, gid;                       /* of commands, inside: 1..65534 */
    uint32_t open_files;                     /* RLIMIT_NOFILE of commands, 16..1048576, cut to what there is */
    uint8_t root_allowed; /* 1: FI_START may ask for uid 0 with the capabilities that package managers need */
    uint8_t volume_count;
    uint8_t has_letter; /* for a guest */
    uint8_t reserved;
    uint32_t cpu_milli, pids; /* the limits, for a guest */
    uint64_t memory_bytes;
    struct li_volume volumes[LAUNCHER_INIT_VOLUMES];
};

struct launcher_init_message {
    uint32_t type;
    uint32_t reserved;
    union {
        struct li_become become;
        struct li_guest guest;
        struct error failed;
    } as;
};

enum launcher_init_end { LI_FROM_LAUNCHER, LI_FROM_INIT };

/** The bytes of a packet of this type; 0 for an unknown one. */
size_t launcher_init_size(uint32_t type) MUST_USE;
/** Checks a packet: size, type, direction, texts, ranges, the count of descriptors. ERROR_INVALID says what. */
bool launcher_init_check(const struct launcher_init_message *message, size_t size, size_t fd_count,
                         enum launcher_init_end sender, struct error *err) MUST_USE;
/** One packet. Zero the message first. */
bool launcher_init_send(int socket, const struct launcher_init_message *message, const int *fds, size_t fd_count,
                        struct error *err) MUST_USE;
/** 1 got one, 0 the end, -1 error (system_errno EAGAIN: none there). `fds` has room for LAUNCHER_INIT_FDS. */
int launcher_init_receive(int socket, struct launcher_init_message *message, enum launcher_init_end sender, int *fds,
                          size_t *fd_count, struct error *err) MUST_USE;
