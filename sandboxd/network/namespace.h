/** namespace.h - network namespaces: made, and visited by the calling thread, which is the only one of its process.
 * They belong to the user namespace of who makes them: nobody in a sandbox has a right over its own. */
#pragma once

#include "shared/base/cleanup.h"
#include "shared/base/error.h"

#include <stdbool.h>

/** Makes one from `home`, where the thread is and stays (-1: it stays in the new one): loopback up, no privileged
 * ports, no IPv6 for links to come. Returns a descriptor; -1 on failure. */
int namespace_make(int home, struct error *err) MUST_USE;

/** The one that the thread is in; -1 on failure. */
int namespace_open(struct error *err) MUST_USE;

/** Goes into a namespace: `where` is a descriptor of it, or the pidfd of a process in it (setns(2)). ERROR_GONE for one
 * that another user namespace owns: a process could have made it, and would have all rights over what we do there. */
bool namespace_enter(int where, struct error *err) MUST_USE;
/** Comes home. That it cannot ends the program: the thread would do the next thing in the wrong place. */
void namespace_leave(int home);

/** Writes a setting of the present namespace, of one of its interfaces: "ipv4/conf/eth0/forwarding". */
bool namespace_set(const char *name, const char *value, struct error *err) MUST_USE;
