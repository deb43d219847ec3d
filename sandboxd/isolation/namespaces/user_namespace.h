/** user_namespace.h - which host ids a sandbox's ids are (user_namespaces(7)). */
#pragma once

#include "shared/base/cleanup.h"
#include "shared/base/error.h"

#include <stdint.h>
#include <sys/types.h>

#define USER_NAMESPACE_IDS 65536

/** Parent's half: maps 0..65535 inside to base.. outside, uids and gids. */
bool user_namespace_map(pid_t pid, uint32_t base, struct error *err) MUST_USE;

/** Child's half, once mapped: becomes uid and gid 0 inside, without other groups. */
bool user_namespace_become_root(struct error *err) MUST_USE;

/** A descriptor of the user namespace of `pid`; -1 on failure. */
int user_namespace_open(pid_t pid, struct error *err) MUST_USE;
