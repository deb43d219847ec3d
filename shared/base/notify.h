/** notify.h - tells the service manager that started us how we fare (sd_notify(3), "Notes": a datagram to the socket
 * that NOTIFY_SOCKET names). Started by nobody of that kind, all of it does nothing. One per process, one thread at a
 * time. */
#pragma once

#include "shared/base/cleanup.h"
#include "shared/base/error.h"

#include <stdbool.h>
#include <stdint.h>

struct notify {
    int socket;        /* connected, datagrams; -1: nobody wants to know */
    uint64_t every_ns; /* how often a sign of life is due: half of what the manager waits (sd_watchdog_enabled(3)); 0:
                          none */
};

#define NOTIFY_NONE ((struct notify){.socket = -1})

/** Opens the socket, while that can still be reached, and takes NOTIFY_SOCKET and WATCHDOG_* out of the environment:
 * our children are not the service. ERROR_INVALID for an address that is none, ERROR_INTERNAL when it cannot be
 * reached. */
bool notify_open(struct notify *notify, struct error *err) MUST_USE;
/** NOTIFY_NONE is allowed, and what it leaves. */
void notify_close(struct notify *notify);

/** Serves. */
void notify_ready(const struct notify *notify);
/** Is about to end. */
void notify_stopping(const struct notify *notify);
/** Lives: who does not say so in time is restarted. */
void notify_alive(const struct notify *notify);
/** What `systemctl status` shows, one line; longer than 200 bytes is cut. */
void notify_status(const struct notify *notify, const char *text);
