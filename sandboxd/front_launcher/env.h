/** env.h - a sandbox's variables as they lie in messages and records: "NAME=value" texts one after another, each ended
 * by its NUL, ended by an empty text, and NULs up to the end of the field. Walk them by for (const char *text = env;
 * *text; text += strlen(text) + 1). */
#pragma once

#include "shared/base/error.h"

#include <stdbool.h>

#define ENV_BYTES 4096 /* the negotiator lets no more through: WANTED_ENV_BYTES */

/** Whether the field is such texts: names of [A-Za-z_][A-Za-z0-9_]*, values of valid UTF-8, nothing behind the end. */
bool env_is_whole(const char env[static ENV_BYTES]) MUST_USE;

/** Appends to a whole field. ERROR_INVALID names the variable, or the limit; then the field is untouched. */
bool env_add(char env[static ENV_BYTES], const char *name, const char *value, struct error *err) MUST_USE;
