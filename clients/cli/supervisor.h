/** supervisor.h - keeps parley-negotiator and parley-sandboxd running for `parley up`: starts them, restarts one that
 *  dies (they adopt what runs), stops both on SIGTERM. One process, no threads. */
#pragma once

#include "shared/base/error.h"

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

struct supervisor {
    const char *state;      /* state folder */
    const char *negotiator; /* paths of the two programs */
    const char *sandboxd;
    uint16_t port;          /* the negotiator's; sandboxd gets port + 1 */
    bool to_log_files;      /* stderr of both goes to STATE/log/ */
};

/** The supervisor's pid from STATE/up.pid, if one holds its lock; 0 when none runs. */
pid_t supervisor_running(const char *state) MUST_USE;

/** Takes STATE/up.pid (ERROR_CONFLICT when another has it) and supervises until SIGTERM or SIGINT. Returns true after a
 *  clean stop. `ready_fd` (-1: none) is closed once both were started. */
bool supervisor_run(const struct supervisor *supervisor, int ready_fd, struct error *err) MUST_USE;
