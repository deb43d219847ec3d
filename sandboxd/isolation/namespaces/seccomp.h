/** seccomp.h - the system calls that commands in a sandbox may make (seccomp(2)); built once, loaded by each child. */
#pragma once

#include "shared/base/cleanup.h"
#include "shared/base/error.h"

enum seccomp_use {
    SECCOMP_COMMANDS,
    SECCOMP_MONITOR /* the same list, and namespaces, mounts and roots of its own; see isolation/guest */
};

/** A sealed memfd of struct sock_filter[]; -1 on failure. Allowed calls pass, those known to be dangerous get EPERM,
 *  all others ENOSYS (also clone3, so that libc falls back to clone, whose flags can be seen); a process of another
 *  architecture is killed. Sockets: UNIX, TCP, UDP and NETLINK_ROUTE; pairs of UNIX ones alone. */
int seccomp_build(enum seccomp_use use, struct error *err) MUST_USE;
