/** init.h - what the files of init share. PID 1 of a sandbox has one thread, one epoll set and one struct init.
 *
 *  Theory of operation: main waits for one event a turn. The front's messages (connection.c) start and end commands
 *  (command.c, start.c, orders.c); what a command leaves is found by reaping (reap.c); all times hang on one timer
 * (deadline.c). Nothing here waits for a command: a child tells by a close-on-exec pipe whether it reached execve. */
#pragma once

#include "sandboxd/front_init/front_init.h"

#include <linux/filter.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/queue.h>
#include <sys/resource.h>
#include <sys/types.h>

struct init;
struct command;
TAILQ_HEAD(command_queue, command);

/** A descriptor in the epoll set. Embedded; one turn handles one event, so that `ready` may free its owner. */
struct watch {
    void (*ready)(struct init *init, struct watch *watch, uint32_t events);
    void *owner;
    int fd; /* -1: not watched */
};

/** See spare.h. */
struct spare {
    pid_t pid;       /* 0: there is none */
    uint64_t serial; /* run/e<serial> */
    rlim_t files;    /* its RLIMIT_NOFILE */
    int socket;      /* takes its command; -1: it is gone, but not reaped yet */
};

#define INIT_HELPERS 64

/** A file helper, see helpers.h. */
struct init_helper {
    pid_t pid;       /* 0: it was reaped, its cgroup is not empty yet */
    uint64_t serial; /* run/e<serial>; 0: there is none */
};

/** A process of which commands are forked, see zygotes.h. */
struct zygote {
    struct watch watch; /* our end of its socket; fd -1: it does not run */
    uint64_t serial;    /* run/e<serial> */
    int command;        /* the memfd it was started by */
    dev_t device;       /* of its program */
    ino_t inode;
    rlim_t files;         /* its RLIMIT_NOFILE */
    bool is_ready;        /* it takes orders */
    uint64_t due_boot_ns; /* when it must be, until then; 0: it is */
};

/** An answer with a descriptor to the connected front. While one waits nothing else is read, so there is one at most.
 */
struct gift {
    bool is_due;
    struct front_init_message message;
    int fd; /* -1: none */
};

struct init {
    int epoll;
    int run;          /* the v2 cgroup `run`; -1: there is none, a family is told by its mark (family.h) */
    gid_t first_mark; /* mark.h */
    const int *join; /* v1 cgroup.procs */
    size_t join_count;
    struct sock_fprog filter;  /* the commands' seccomp program */
    struct rlimit files;       /* what commands get, unless their START says otherwise */
    struct rlimit spare_files; /* what the spare child gets: as the last START said */
    rlim_t files_most;         /* the most there is */
    int files_limit;           /* init's own: the hard limit made soft */
    uint32_t uid, gid;         /* of commands */
    bool root_allowed;         /* a START may ask for uid 0 */
    struct watch listener, connection, child_signal, timer;
    bool is_guest;         /* inherit.h */
    struct watch launcher; /* of a guest: its socket, as long as there is one */

    struct command *commands[FRONT_INIT_COMMANDS]; /* in the order of their starts */
    size_t count;
    uint64_t last_serial; /* names run/e<serial>, never reused */

    struct spare spare;
    bool spare_due; /* to be made as soon as there is nothing else to do */

    struct init_helper helpers[INIT_HELPERS];
    struct zygote zygotes[FRONT_INIT_ZYGOTES];

    struct command_queue untold; /* what the connected front has not been told; empty without one */
    struct gift gift;
    bool welcome_told, current_told;
    bool blocked; /* its socket is full: nothing is read before it drains */
    bool mute;    /* it went, but what it asked before is still read */

    uint64_t deadline_boot_ns; /* the hard deadline; 0 none */
    uint64_t armed_boot_ns;    /* the timer's; 0 not armed. Never later than the earliest time due */
    uint64_t end_boot_ns;      /* terminating: when SIGKILL follows, then when init leaves; 0 not terminating */
    bool killed_all;           /* SIGKILL went out */
    bool childless;            /* the last reaping found no child: the sandbox is empty but for init */
    bool reap_again;           /* more children may be dead than one turn reaps */
    bool leaving;
    int exit_code;
};

/** Watches `fd` (owned from now on; closed on failure too) for `events`. */
bool watch_add(struct init *init, struct watch *watch, int fd, uint32_t events, struct error *err) MUST_USE;
/** Changes what is waited for. */
void watch_change(struct init *init, struct watch *watch, uint32_t events);
/** Ends it and closes the descriptor; nothing when it is not watched. */
void watch_end(struct init *init, struct watch *watch);
