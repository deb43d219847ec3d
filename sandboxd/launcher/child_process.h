/** child_process.h - a program of ours that the launcher keeps running and talks with over a socket: the front, and
 * parley-egress. Started, watched, started again. */
#pragma once

#include "shared/base/error.h"

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#define FRONT_ENVIRONMENT "PARLEY_FRONT_FD" /* set for the front alone: its end of the socket */

/** Embedded. Private but for reading. */
struct child_process {
    const char *what;        /* for the log: "the front" */
    const char *program;     /* its path; borrowed, as argv */
    const char *environment; /* the variable that names its end of the socket */
    char *const *argv;       /* with the program's name */
    pid_t pid;               /* 0: none runs */
    int pidfd, socket;       /* -1: none; pidfd also where the kernel has none (before Linux 5.3) */
    uint64_t started_boot_ns;
    uint64_t restart_boot_ns; /* when none runs: when to start one; 0 never (we are stopping) */
    uint64_t backoff_ms;
};

/** One that is not started; the first four fields are the caller's to fill in. */
#define CHILD_PROCESS_NONE ((struct child_process){.pidfd = -1, .socket = -1})

/** Forks and executes it. Its death must be seen by `pidfd`, its messages by `socket` (non-blocking). */
bool child_process_start(struct child_process *child, uint64_t now_boot_ns, struct error *err) MUST_USE;

/** Kills it if need be, reaps it, closes both descriptors and says when to start the next: 20 ms to 5 s from now,
 * doubling unless it lived for 5 s. */
void child_process_end(struct child_process *child, uint64_t now_boot_ns);

/** Asks it to stop (SIGTERM). */
void child_process_stop(const struct child_process *child);
