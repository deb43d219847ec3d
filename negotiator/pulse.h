/** pulse.h - whether all threads that serve still take work: each loop and the ledger thread is given a word, and has
 * to have taken it before it is given the next one. For the service manager's watchdog. Main thread. */
#pragma once

#include "negotiator/ledger/ledger.h"
#include "shared/http/server.h"

#include <stdatomic.h>

/** Embedded; zero before. It must outlive the server and the ledger. */
struct pulse {
    atomic_uint waiting; /* how many have not taken their word */
};

/** Whether all have taken the last one; then they are given the next. False: some thread hangs, or is slower than the
 *  time between two calls. */
bool pulse_felt(struct pulse *pulse, struct http_server *server, struct ledger *ledger) MUST_USE;
