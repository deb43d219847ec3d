/** apart.h - the clone of a birth by a process that is gone afterwards: where the launcher itself could not come back
 * from the sandbox's network namespace, as setns(2) asks for a right over the one to enter. */
#pragma once

#include "sandboxd/isolation/namespaces/recipe_child.h"

#include <linux/sched.h>
#include <sys/types.h>

/** As clone3 with `arguments` in the network namespace and with the owner that child->plan says, but the child is the
 *  launcher's (CLONE_PARENT), and the pidfd goes where arguments->pidfd points. The pid; -1 on failure. */
pid_t apart_clone(const struct clone_args *arguments, const struct recipe_child *child, struct error *err) MUST_USE;
