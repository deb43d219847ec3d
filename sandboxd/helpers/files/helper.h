/** helper.h - what the files of the file helper share: its state, its answers, the way from a path to a descriptor.
 *
 *  Theory of operation: files_helper_run takes one request after another from its socket, finds its operation
 *  (files_operations.h) and ends each with FILES_DONE or FILES_ERROR. It is one process with one thread, the sandbox's
 *  user, and it has no secret: what it must not do is leave a path scope, block in open(2), or leave something
 * half-done behind. It ends with its socket. Libc only: it is part of the static init. */
#pragma once

#include "sandboxd/front_files/front_files.h"

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/stat.h>
#include <sys/types.h>

struct helper {
    int socket;  /* SOCK_SEQPACKET, the front's */
    int root_fd; /* O_PATH, the sandbox's "/" */
    /* Of the operation under way: */
    const struct files_request *request; /* checked */
    int descriptor;                      /* -1 none; closed after the operation, which may take it (TAKE_FD) */
    uint64_t count, skipped;             /* for DONE; helper_record counts no records: the operation does */
    bool is_truncated;
    bool has_commit; /* COMMIT came while helper_take_commit was asked */
    uint64_t commit_size;
    struct files_packet packet; /* records not sent yet */
};

/** Serves requests until the other end closes or breaks the rules, then ends the process. */
_Noreturn void files_helper_run(int socket, int root_fd);

/* ---- answers (helper.c) ---- */

/** Adds a record and sends when the packet is full, waiting while the socket is; what it points to is copied. A record
 * beyond the bounds of front_files.h (a path over 4095 bytes ...) counts as skipped. False only when the front is gone:
 * return false at once. */
bool helper_record(struct helper *helper, const struct files_record *record, struct error *err) MUST_USE;
/** Sends what has been added (watch: after each batch). */
bool helper_flush(struct helper *helper, struct error *err) MUST_USE;
/** The same, with a descriptor (borrowed; -1: none) that belongs to its first record. */
bool helper_flush_with(struct helper *helper, int descriptor, struct error *err) MUST_USE;

/** For operations that only read or may be cut at any point: from now until the operation's end the process ends as
 * soon as the front closes its end (SIGIO). Not together with helper_take_commit or poll(2) on the socket. */
bool helper_end_with_front(struct helper *helper, struct error *err) MUST_USE;
/** Around what must not be cut there (a name is made that must be removed again): holds SIGIO back. */
void helper_hold_end(void);
void helper_release_end(void);
/** True when the front closed its end. For loops that clean up by themselves. */
bool helper_is_gone(const struct helper *helper) MUST_USE;
/** False with GONE then. Asked after whatever waits, before what cannot be taken back: a token that was revoked, or a
 * client that left, changes nothing any more. */
bool helper_is_wanted(const struct helper *helper, struct error *err) MUST_USE;

/** After poll(2) said that helper->socket is readable or gone: 1 COMMIT came (kept in helper->commit_size too), 0
 * nothing came, -1 the front is gone or sent something else (return false at once). */
int helper_take_commit(struct helper *helper, struct error *err) MUST_USE;

/* ---- errors and entries (entry.c) ---- */

/** False with the kind for errno (design: EACCES, EPERM, EROFS FORBIDDEN; ENOENT, ENOTDIR NOT_FOUND; EEXIST, ENOTEMPTY,
 * EISDIR, ETXTBSY, EWOULDBLOCK, EBUSY CONFLICT; ENOSPC, EDQUOT DISK_FULL; ENAMETOOLONG, EINVAL, ELOOP INVALID; EMFILE,
 * ENFILE, ENOMEM NO_CAPACITY; EFBIG TOO_LARGE; else INTERNAL). The sentence must hold no name of a file: it may be no
 * UTF-8. */
bool fail_errno(struct error *err, const char *format, ...) __attribute__((format(printf, 2, 3)));
enum error_kind kind_of_errno(int number) MUST_USE;
/** "a folder", "a FIFO" ...: for sentences. */
const char *type_name(mode_t mode) MUST_USE;

struct files_version version_of(const struct stat *status) MUST_USE;
bool is_same_version(const struct files_version *a, const struct files_version *b) MUST_USE;

/** An ENTRY with the memory its texts need. */
struct entry {
    struct files_record record;
    char target[PATH_MAX];
    char owner[FRONT_FILES_USER_MAX], group[FRONT_FILES_USER_MAX];
};
/** From fstat's result; `path` as in files_record (borrowed). A symlink's target is read from `name` in `folder` ("" :
 * folder is an O_PATH descriptor of the link itself); one that cannot be read is left empty. */
void entry_fill(struct entry *entry, const struct stat *status, int folder, const char *name, const char *path,
                size_t path_size);
/** helper_record of it. */
bool helper_entry(struct helper *helper, const struct stat *status, int folder, const char *name, const char *path,
                  size_t path_size, struct error *err) MUST_USE;

/* ---- paths (resolve.c) ---- */

/** A name in a folder. `name` has no slash and is never "", "." or "..". */
struct place {
    int folder; /* O_PATH | O_DIRECTORY; the owner closes it: place_done */
    char name[NAME_MAX + 1];
};
void place_done(struct place *place);
#define AUTO_PLACE __attribute__((cleanup(place_done))) struct place
#define PLACE_NONE ((struct place){.folder = -1})

/** Whether the request is under a path scope: then a regular file with several links must not be read, edited,
 * chmodded, copied. */
bool is_scoped(const char *root) MUST_USE;
/** False with FORBIDDEN for such a file. */
bool check_links(const char *root, const struct stat *status, struct error *err) MUST_USE;
/** Whether path is the root of the scope, or "/" itself. */
bool is_scope_root(const char *root, const char *path) MUST_USE;

/** openat2(2) of `path` as seen below `root`, never leaving it; a final symlink is followed unless O_NOFOLLOW.
 * O_CLOEXEC, O_NOCTTY and O_NONBLOCK are added. For O_PATH and O_DIRECTORY: of what may be a FIFO, use resolve_regular.
 * -1. */
int resolve_open(const struct helper *helper, const char *root, const char *path, int flags,
                 struct error *err) MUST_USE;
/** The regular file there, opened with `flags` (O_RDONLY, O_RDWR), links followed; check_links done. CONFLICT says what
 * it is otherwise. Never blocks, never wakes the writer of a FIFO. -1. */
int resolve_regular(const struct helper *helper, const char *root, const char *path, int flags, struct stat *status,
                    struct error *err) MUST_USE;
/** The same for a name in a folder that is open, not following a link; `root` for check_links. -1. */
int open_regular_at(int folder, const char *name, int flags, const char *root, struct stat *status,
                    struct error *err) MUST_USE;
/** The folder `name` in `folder`, which no link may be, opened O_RDONLY or O_PATH (`flags`); -1 and errno. */
int open_child_folder(int folder, const char *name, int flags) MUST_USE;
/** A folder to be read, for walking down: O_RDONLY | O_DIRECTORY, no link followed. -1. */
int open_folder_at(int folder, const char *name, struct error *err) MUST_USE;

/** Where `path` is named: its folder, links in it followed, and its last name as it is, there or not. FORBIDDEN for the
 * scope's own root. NOT_FOUND without the folder. */
bool resolve_parent(const struct helper *helper, const char *root, const char *path, struct place *place,
                    struct error *err) MUST_USE;
/** The same, making missing folders first (0755) when `makes_parents`. */
bool resolve_parent_made(const struct helper *helper, const char *root, const char *path, bool makes_parents,
                         struct place *place, struct error *err) MUST_USE;
/** As resolve_parent_made, and a final symlink is followed by hand (at most 40) to the name where a file is to be
 * written. */
bool resolve_target(const struct helper *helper, const char *root, const char *path, bool makes_parents,
                    struct place *place, struct error *err) MUST_USE;

/* ---- changes that copy and unpack need too ---- */

/** Removes name and, when `is_recursive`, all below it; never follows a link, never leaves the file system (CONFLICT).
 * CONFLICT for a folder that is not empty; NOT_FOUND. (remove.c) */
bool remove_entry(int folder, const char *name, bool is_recursive, struct error *err) MUST_USE;

/** `.<name>.<random>` that fits into NAME_MAX. (temporary.c) */
void temporary_name(char to[static NAME_MAX + 1], const char *name);

/** A file without a name yet in place->folder, open for reading and writing, mode 0600; it goes with its descriptor.
 * Where the file system has no O_TMPFILE it has a name, kept in `name` ("" otherwise), that temporary_done removes.
 * (temporary.c) */
struct temporary {
    int fd;     /* -1 none */
    int folder; /* borrowed of the place */
    char name[NAME_MAX + 1];
};
#define TEMPORARY_NONE ((struct temporary){.fd = -1})
bool temporary_open(const struct place *place, struct temporary *temporary, struct error *err) MUST_USE;
/** Gives it its name in one step; what is there is replaced when `replaces` (else system_errno EEXIST, CONFLICT). */
bool temporary_place(struct temporary *temporary, const struct place *place, bool replaces, struct error *err) MUST_USE;
/** Closes it; removes what has a name other than its place. */
void temporary_done(struct temporary *temporary);
#define AUTO_TEMPORARY __attribute__((cleanup(temporary_done))) struct temporary

/** PUT's and others' conditions (FILES_IF_*) against what place names now, also that of OVERWRITE's absence being the
 * caller's. PRECONDITION. `status` (st_mode 0: nothing there) is filled. (condition.c) */
bool condition_check(const struct files_request *request, const struct place *place, struct stat *status,
                     struct error *err) MUST_USE;
/** Locks the place's folder (flock, exclusive) among helpers, trying for a second: the descriptor to close, or -1
 * without a lock; then CONFLICT when the request is conditional, GONE when the front left meanwhile, else err->kind
 * stays ERROR_NONE. */
int condition_lock(const struct helper *helper, const struct place *place, struct error *err) MUST_USE;
