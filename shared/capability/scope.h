/** scope.h - the scope algebra (protocol.md, 3 "Scopes"): sets of atoms `verb[:mode][@resource]` that can be compared,
 *  and only narrowed. Pure; any thread. */
#pragma once

#include "shared/base/cleanup.h"
#include "shared/base/error.h"

#include <stdbool.h>
#include <stddef.h>

#define SCOPE_ATOMS_MAX  16
#define SCOPE_ATOM_BYTES 256  /* one atom's text with NUL */
#define SCOPE_TEXT_BYTES 1024 /* a set's text with NUL */

enum scope_verb {
    SCOPE_FS_RW,
    SCOPE_FS_RO,
    SCOPE_SHELL,
    SCOPE_SHELL_RO,
    SCOPE_PROCESS,
    SCOPE_CODE,
    SCOPE_PORT,
    SCOPE_SNAPSHOT,
    SCOPE_NETWORK
};

struct scope_atom {
    enum scope_verb verb;
    char resource[SCOPE_ATOM_BYTES]; /* "" none; fs: a normalised absolute path, decoded; port: decimal */
};

struct scope_set {
    struct scope_atom atoms[SCOPE_ATOMS_MAX];
    size_t count;
};

enum scope_unknown { SCOPE_UNKNOWN_DROPPED, SCOPE_UNKNOWN_REFUSED };

/** Copies the atoms in use; those beyond `count` are left as they are, and mean nothing. */
void scope_copy(struct scope_set *to, const struct scope_set *from);

/** Parses a space-separated set; an unknown atom is dropped or refused as told (in a grant it gives nothing, in a link
 *  it refuses). ERROR_INVALID names the atom. fs@dir together with process, shell or code is ERROR_INVALID. */
bool scope_parse(struct scope_set *set, const char *text, size_t length, enum scope_unknown unknown,
                 struct error *err) MUST_USE;

/** Writes the set as text: atoms separated by one space, in the order given. Resources percent-encoded again. What
 *  scope_parse gave always fits; of a set made otherwise, atoms that do not fit are left out. */
void scope_format(const struct scope_set *set, char to[static SCOPE_TEXT_BYTES]);

/** Whether `a` covers `b`: verb:mode is or implies b's, and a has no resource, the same port, or a component-wise path
 *  prefix. fs:rw implies fs:ro; shell implies shell:ro; process implies code. */
bool scope_atom_covers(const struct scope_atom *a, const struct scope_atom *b) MUST_USE;

/** Whether every atom of `inner` is covered by one atom of `outer`. */
bool scope_set_covers(const struct scope_set *outer, const struct scope_set *inner) MUST_USE;

/** What both sets allow, in the order of `a`: of fs:rw and fs:ro@/dir the latter. What `b` covers stays as `a` says it,
 *  also where another atom implies it. Beyond SCOPE_ATOMS_MAX atoms the rest is left out. */
void scope_meet(struct scope_set *to, const struct scope_set *a, const struct scope_set *b);

/** The atoms of `asked` that `allowed` covers. */
void scope_intersect(struct scope_set *to, const struct scope_set *asked, const struct scope_set *allowed);

/** What a grant for which nothing was asked has of `allowed`: all but SCOPE_NETWORK. Who may widen what a sandbox
 * reaches is not who uses it, unless somebody said so. */
void scope_by_default(struct scope_set *to, const struct scope_set *allowed);

/** Whether the set allows `needed` ("process"; "fs:ro" is met by a set with only fs:ro@/dir too: the verb then checks
 *  the path itself with scope_atom_covers; a `needed` with a resource must be covered). "" is always allowed. A
 * `needed` that is no atom is never allowed. */
bool scope_allows(const struct scope_set *set, const char *needed) MUST_USE;

/** The folder within which the set allows `verb` (SCOPE_FS_RO or SCOPE_FS_RW) at `path` (absolute and normalised, of
 * any bytes): the widest of those that hold it; "" when that is the whole sandbox. NULL: not allowed there. It belongs
 * to the set. */
const char *scope_folder(const struct scope_set *set, enum scope_verb verb, const char *path) MUST_USE;
