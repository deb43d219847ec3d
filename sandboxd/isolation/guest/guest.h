/** guest.h - what backends with a guest share: a monitor (runsc, a VMM) in namespaces, and behind it
 *  `parley-sandboxd --guest`, which serves the one sandbox.
 *
 *  slot: uid range, cgroups and limits, network namespace (loopback alone), area with its quota: as of namespaces
 *   '- parley-keeper    PID 1; no right but to end what it keeps (keeper/keeper.h)
 *       '- the monitor  in cgroup run/e1; root of the slot's user namespace alone; seccomp (SECCOMP_MONITOR)
 *           '- the guest: front, init, commands. Its root is /sandbox
 *
 *  So who gets out of the guest is where a command of namespaces is, with that sandbox's files and nothing else. A
 * backend says how its monitor is started (struct guest_order); all else is isolation_namespaces'. */
#pragma once

#include "sandboxd/isolation/isolation.h"

/** What start found; one a backend. */
struct guest_host {
    int keeper;   /* sealed memfd of parley-keeper */
    int seccomp;  /* the monitor's filter */
    char *folder; /* STATE/sandboxd/guests/<name>: /bundle of the keeper's root */
};

#define GUEST_HOST_NONE_INIT                                                                                           \
    {                                                                                                                  \
        .keeper = -1, .seccomp = -1                                                                                    \
    }

/** How the monitor of a sandbox is started; borrowed until guest_begin returns. */
struct guest_order {
    const char *const *arguments; /* NULL-ended, at most LAUNCHER_INIT_ARGUMENTS; the first an absolute path in the
                                     keeper's root. With starts_late "{memory_mib}", "{cpu_milli}", "{cpus}" (rounded
                                     up) and "{pids}" stand for the limits */
    uint16_t port;                /* where the guest is reached: 127.0.0.1:port; 0: connections go over stdin */
    bool starts_late;             /* once the limits are known, rather than at once */
};

/* What the monitor finds: stdin is a SOCK_SEQPACKET socket, of which the first packet is the letter; each later one is
 * one byte and a connection (port 0). stdout and stderr are a pipe. The guest is up when a line of those holds
 * "guest ready", or the monitor sends any packet back. Environment: PATH, HOME, TMPDIR. SIGTERM ends the guest. */

/** Starts namespaces, finds parley-keeper beside this program, makes the folder `name`, builds the filter. */
bool guest_start(const char *state_folder, const char *name, struct guest_host *host, struct error *err) MUST_USE;
void guest_stop(struct guest_host *host);

/** Fills `folder` (made anew if its files are of other programs than these, else left as it is) with all that
 *  `parley-sandboxd --guest` needs in whatever root: bin/parley-sandboxd, bin/parley-init, bin/parley-jupyter, and lib/
 *  with their shared libraries and the dynamic linker as lib/ld.so. `seen` is the path the guest will see it at, of at
 *  most 12 bytes: the copies are patched to find their linker there; they need LD_LIBRARY_PATH=<seen>/lib. */
bool guest_fill_bundle(const char *folder, const char *seen, struct error *err) MUST_USE;

/** isolation_backend.begin. */
bool guest_begin(const struct guest_host *host, const struct guest_order *order, const struct isolation_plan *plan,
                 struct isolation_sandbox *made, struct error *err) MUST_USE;

/** A layer for a backend's probe: whether the program is there; `how` says which package has it. */
bool guest_probe_program(struct isolation_layer *layer, const char *name, const char *path, const char *how);
