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
    uint16_t port;     /* the negotiator's; sandboxd gets port + 1 */
    bool to_log_files; /* stderr of both goes to STATE/log/ */
};

/** Where a plane of it listens, `offset` after its port: https when it has STATE/tls. The caller frees. */
char *supervisor_url(const struct supervisor *supervisor, unsigned offset) MUST_USE;

/** Lets this process trust STATE/tls, if it is there (shared/trust/trust.h). */
bool supervisor_trust(const struct supervisor *supervisor, struct error *err) MUST_USE;

/** The supervisor's pid from STATE/up.pid, if a parley holds its lock; 0 when none runs. *port (may be NULL) gets the
 *  negotiator's. */
pid_t supervisor_running(const char *state, uint16_t *port) MUST_USE;

/** SIGTERM, then waits up to 40 s for it to be gone. ERROR_FORBIDDEN, ERROR_TIMEOUT. */
bool supervisor_stop(const char *state, pid_t pid, struct error *err) MUST_USE;

/** Ends planes of this state folder that a killed supervisor left behind (sandboxes live on); only without one. */
void supervisor_end_leftovers(const char *state);

/** Takes STATE/up.pid (ERROR_CONFLICT when another has it) and supervises until SIGTERM or SIGINT. Returns true after a
 *  clean stop, false when a program fails at every start. `ready_fd` (-1: none) is closed once both were started. */
bool supervisor_run(const struct supervisor *supervisor, int ready_fd, struct error *err) MUST_USE;
