/** store_lock.h - one lock for who makes a version current and who cleans; held for moments only. Freed by the kernel
 *  with its holder. */
#pragma once

#include "shared/base/cleanup.h"
#include "shared/base/error.h"

#include <stdbool.h>

#define STORE_PREFIX_NEW  ".new-"  /* being filled: its folder is locked as long as somebody is */
#define STORE_PREFIX_LINK ".link-" /* about to be renamed */
#define STORE_PREFIX_GONE ".gone-" /* about to be removed */

enum store_lock_mode { STORE_LOCK_WAIT, STORE_LOCK_TRY };

/** A descriptor that holds the lock of the store until it is closed; -1 on failure (ERROR_CONFLICT: another has it). */
int store_lock(const char *folder, enum store_lock_mode mode, struct error *err) MUST_USE;
/** Locks the folder `path` itself, without waiting. -1: as above. */
int store_lock_folder(const char *path, struct error *err) MUST_USE;
/** Syncs the folder, so that renames in it stay. */
bool store_sync(const char *folder, struct error *err) MUST_USE;
