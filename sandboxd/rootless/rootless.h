/** rootless.h - sandboxes of an ordinary user: a user namespace in which this program is root, over the user's own id
 * and the subordinate ids that /etc/subuid and /etc/subgid give it (id_map.h). */
#pragma once

#include "shared/base/error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/** Called as an ordinary user, before any thread: enters a user namespace of this user's, becomes root in it and
 * executes this program again with `argv`, so that it returns only when it fails. The namespace is that of `living`, a
 * process of a sandbox that a former launcher made (0: none), else a new one, mapped by newuidmap(1) and newgidmap(1):
 * what lives can be looked after from its own namespace alone. ERROR_FORBIDDEN names the command that gives more ids.
 * As root it does nothing and is true. */
bool rootless_enter(pid_t living, char *const argv[], struct error *err) MUST_USE;

/** Whether this process is root of a user namespace that rootless_enter entered, or a child of such a one. */
bool rootless_is_active(void) MUST_USE;

/** How many slots (id_map.h) there are; 0 when it is not active. */
uint32_t rootless_slots(void) MUST_USE;

/** The host's uid of one of ours; `uid` itself when it is not active. */
uint32_t rootless_outside(uint32_t uid) MUST_USE;

/** What is in force, for `parley doctor`. */
void rootless_describe(char *detail, size_t size);
