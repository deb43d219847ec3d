/** rights.h - the capabilities (capabilities(7)) of a sandbox: all of them until it becomes, then four for init, none
 *  for commands, and a short list for commands as root, where they are allowed: what package managers need. */
#pragma once

#include "shared/base/error.h"

#include <stdbool.h>
#include <stdint.h>

/** Before anything is known: no process will ever regain what neither init nor a command as root has (bounding set).
 *  init itself keeps all it has. */
bool rights_bound(struct error *err) MUST_USE;

/** Upon becoming: init keeps SETUID, SETGID, SETPCAP and KILL, and where `root_allowed` what it may give to commands as
 *  root. Without, the bounding set is emptied. */
bool rights_drop(bool root_allowed, struct error *err) MUST_USE;

/** In a child, as uid 0 of the user namespace: those of a command as root, which execve(2) keeps. */
bool rights_take_root(struct error *err) MUST_USE;

/** In a child: none. */
bool rights_take_none(struct error *err) MUST_USE;
