/** front_process.h - the launcher's front: started, watched, started again; and what waits to be sent to it. */
#pragma once

#include "sandboxd/front_launcher/front_launcher.h"

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#define FRONT_ENVIRONMENT "PARLEY_FRONT_FD" /* set for the front alone: its end of the socket */

/** Embedded. Private but for reading. */
struct front_process {
    char *const *argv; /* ours, with the program's name: the front reads the same settings */
    pid_t pid;         /* 0: none runs */
    int pidfd, socket; /* -1: none */
    uint64_t started_boot_ns;
    uint64_t restart_boot_ns; /* when none runs: when to start one; 0 never (we are stopping) */
    uint64_t backoff_ms;
};

void front_process_init(struct front_process *front, char *const argv[]);

/** Forks and executes /proc/self/exe. The front's death must be seen by `pidfd`, its messages by `socket`
 *  (non-blocking). */
bool front_process_start(struct front_process *front, uint64_t now_boot_ns, struct error *err) MUST_USE;

/** Kills it if need be, reaps it, closes both descriptors and says when to start the next: 20 ms to 5 s from now,
 * doubling unless it lived for 5 s. */
void front_process_end(struct front_process *front, uint64_t now_boot_ns);

/** Asks it to stop (SIGTERM). */
void front_process_stop(const struct front_process *front);
