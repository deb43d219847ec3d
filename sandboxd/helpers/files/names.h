/** names.h - names of the sandbox's users and groups, as its own files tell them. */
#pragma once

#include "sandboxd/helpers/files/helper.h"

#define NAMES_NONE UINT32_MAX /* chown(2): leave it */

enum names_kind { NAMES_USERS, NAMES_GROUPS, NAMES_KINDS };

/** Before an operation: what was read for another is old. */
void names_forget(void);

/** The number of a name, or of a number in decimal. */
bool names_find(const struct helper *helper, enum names_kind kind, const char *name, uint32_t *id) MUST_USE;

/** The name of a number; empty when it has none. Good until the next call, or names_forget. */
struct files_bytes names_of(const struct helper *helper, enum names_kind kind, uint32_t id) MUST_USE;

/** The owner and group that the request names, if any, to an open file (O_PATH too). An unknown name is ERROR_INVALID,
 *  or with FILES_KNOWN_USERS left out. */
bool names_give(const struct helper *helper, int fd, struct error *err) MUST_USE;
