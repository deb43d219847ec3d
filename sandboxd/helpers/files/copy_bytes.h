/** copy_bytes.h - what is in one file into another: shared blocks where the file system can, holes stay holes. */
#pragma once

#include "sandboxd/helpers/files/helper.h"

/** `from`, a regular file open for reading whose fstat was `status`, into the empty file `to`: as many bytes as it had
 *  then, so one that grows is copied to there. /proc and its like are read to their end, at most 64 MiB (TOO_LARGE).
 *  Between parts it looks whether the front is gone (false, like any other failure). Positions of both are undefined.
 */
bool copy_bytes(const struct helper *helper, int from, const struct stat *status, int to, struct error *err) MUST_USE;

/** Gives the copy the mode and the times of what `status` is of. Set-user-id and set-group-id are kept only for a file
 * of our own user: for the copy is that user's. */
bool copy_attributes(int to, const struct stat *status, struct error *err) MUST_USE;
