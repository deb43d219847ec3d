/** put.h - what WRITE, PIECE and EDIT share: bytes out of a pipe, and a whole file into its place. */
#pragma once

#include "sandboxd/helpers/files/helper.h"

/** What is to be poured: the first `skip` bytes are dropped, at most `max` are taken. */
struct pour {
    int pipe, file;
    uint64_t skip, max;
    uint64_t poured; /* so far, with what was skipped */
};

/** All bytes of the pipe to the file's position, until both its end and COMMIT came, with the same size. False also
 * when the front goes, or with DISK_FULL; the file then keeps what came. */
bool pour_all(struct helper *helper, struct pour *pour, struct error *err) MUST_USE;

/** False with CONFLICT for what may not be replaced: all but nothing and a regular file. */
bool put_may_replace(const struct stat *status, struct error *err) MUST_USE;

/** The file, whole, gets its mode (told, or that of what it replaces, or 0644) and mtime, and its place, when the
 * request's conditions hold; answered with its ENTRY. *is_new: nothing was there. */
bool put_in_place(struct helper *helper, struct temporary *file, const struct place *place, bool *is_new,
                  struct error *err) MUST_USE;
/** The same, the folder being locked (or not lockable) already. */
bool put_in_locked(struct helper *helper, struct temporary *file, const struct place *place, bool *is_new,
                   struct error *err) MUST_USE;
