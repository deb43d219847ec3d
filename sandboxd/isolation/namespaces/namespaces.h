/** namespaces.h - the recipe of isolation namespaces, for backends that put a monitor into it (isolation/guest): slots,
 * uid ranges, cgroups, limits, the kill and the adoption are the same.
 *
 *  The root of such a one is not the sandbox's: a tmpfs of 16 MiB with
 *    sandbox/  what the guest is to have as its root: template, area, and the host's /usr where the template has none
 *    bundle/   a folder of the host, read-only: what the backend needs
 *    usr/      the host's, read-only, with the links bin, lib, lib64, sbin to it
 *    proc/ dev/ run/ tmp/
 *  and PID 1 is the keeper: see isolation/guest/guest.h. */
#pragma once

#include "sandboxd/isolation/isolation.h"

struct namespaces_guest {
    int program;        /* sealed memfd: PID 1, which finds what inherit.h says */
    int seccomp;        /* the filter's memfd that it finds: the monitor's */
    const char *bundle; /* a folder of the host, of root's, readable for all */
};

/** isolation_backend.begin of namespaces, or with `guest` (borrowed until it returns). */
bool namespaces_begin(const struct isolation_plan *plan, const struct namespaces_guest *guest,
                      struct isolation_sandbox *made, struct error *err) MUST_USE;

/** What isolation_use_cgroup said. */
const char *namespaces_kept_cgroup(void) MUST_USE;

/* The rest of that backend, as isolation.h says. */
int namespaces_is_warm(uint32_t slot, struct isolation_sandbox *made, struct error *err);
bool namespaces_become(uint32_t slot, uint32_t uid_base, struct isolation_sandbox *warm,
                       const struct isolation_life *life, struct error *err);
int namespaces_is_ready(struct isolation_sandbox *made, struct error *err);
bool namespaces_limit(uint32_t slot, const struct isolation_limits *limits, struct error *err);
bool namespaces_adopt(uint32_t slot, pid_t init_pid, uint64_t init_start, struct isolation_sandbox *found,
                      struct error *err);
bool namespaces_kill(uint32_t slot, struct error *err);
bool namespaces_remove(uint32_t slot, struct error *err);
size_t namespaces_list(uint32_t *slots, size_t max);
