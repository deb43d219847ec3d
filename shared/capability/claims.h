/** claims.h - the claims of a minted token as JSON. The reader is not a JSON parser: it takes the one flat, compact
 * form that claims_write makes, in any order of the claims, and refuses all else, also what is valid JSON (blanks,
 * escapes, unknown claims). What it takes, a JSON parser takes too, with the same values (tests/fuzz/claims_fuzz.c).
 *  Private to this folder. */
#pragma once

#include "shared/capability/capability.h"

#define CLAIMS_JSON_BYTES 2560
#define CLAIMS_TIME_MAX   INT64_C(253402300799) /* the end of year 9999, in seconds since 1970 UTC */

/** Reads claims; the epoch is the header's and stays as it is; scopes and root_scopes are both the minted ones.
 *  ERROR_INVALID says which claim is missing, twice there, unknown, or of a wrong type, length or character: then
 * *claims is half written (it is large; the callers read into one of their own). */
bool claims_read(struct capability_claims *claims, const void *json, size_t size, struct error *err) MUST_USE;

/** Writes claims (`scopes`, not `root_scopes`) that claims_read reads; returns ERROR_INVALID for others. */
bool claims_write(char to[static CLAIMS_JSON_BYTES], const struct capability_claims *claims,
                  struct error *err) MUST_USE;

/** Whether `text` is a thread's id: 1..128 of A-Za-z0-9._:- and not "." or "..". */
bool claims_is_thread(const char *text) MUST_USE;

/** Whether `text` is not empty, and of printable ASCII without quote and backslash, as a principal is. */
bool claims_is_printable(const char *text) MUST_USE;
