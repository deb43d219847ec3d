/** front_files.h - the messages between the front and a file helper, over a SOCK_SEQPACKET pair that the front makes.
 *
 *  The front sends requests, one packet each (a short one when the one before it has been answered); the helper answers
 *  each with packets of records, the last of which is FILES_DONE or FILES_ERROR. A helper that is gone is the end of
 * the socket. Both ends treat the other's bytes as hostile: texts are sizes and bytes, never trusted to end, and a
 * packet that breaks the rules ends the connection. Host order. This folder is compiled into the static init: libc
 * only. */
#pragma once

#include "shared/base/error.h"

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define FRONT_FILES_PACKET_MAX  65536
#define FRONT_FILES_PATH_MAX    4095 /* bytes of a path; no NUL, no empty, . or .. segment */
#define FRONT_FILES_NAME_MAX    255
#define FRONT_FILES_TEXT_MAX    4096       /* a pattern */
#define FRONT_FILES_USER_MAX    64         /* bytes of a user's or group's name */
#define FRONT_FILES_EDIT_MAX    (1 << 20)  /* all texts of an edit */
#define FRONT_FILES_EDITED_MAX  (16 << 20) /* the file that is edited */
#define FRONT_FILES_HELPER_KIND 1          /* fi_helper.kind */

enum files_operation {
    FILES_STAT = 1, /* one ENTRY; FILES_FOLLOW: of a link's target */
    FILES_OPEN,     /* ENTRY, with a descriptor of a regular file; or, where none may be handed over (/proc), ENTRY then
                       DATA. FILES_LINES: ENTRY, then as DATA `size` lines from line `offset` on, parted by \n, each
                       without its \r\n or \n; DONE.count of them */
    FILES_LIST,     /* ENTRY: the folder itself (path ""), then each below it to `depth` */
    FILES_GLOB,     /* ENTRY each that `pattern` matches below path; FILES_BY_NAME, FILES_NO_FOLDERS */
    FILES_GREP,  /* MATCH each line of files below path (or of the file) that `pattern` matches; `glob` filters names */
    FILES_MKDIR, /* ENTRY; FILES_PARENTS; DONE.count 1 when it was made */
    FILES_REMOVE, /* FILES_RECURSIVE; FILES_NO_FOLDERS */
    FILES_MOVE,   /* to `to_path`: ENTRY; FILES_OVERWRITE */
    FILES_COPY,   /* the same; FILES_RECURSIVE */
    FILES_CHMOD,  /* ENTRY; at least one of mode, owner and group */
    FILES_EDIT,   /* + descriptor: sealed memfd, see front_files_edit; ENTRY, DONE.count replacements */
    FILES_WRITE,  /* + descriptor: pipe, read end. Then COMMIT; ENTRY, DONE.count 1 when it was made anew */
    FILES_PIECE, /* as WRITE, into `.name.<upload>.part`: STATE; ENTRY when it was the last. Without a descriptor: STATE
                  */
    FILES_WATCH, /* ENTRY when it watches, then EVENT until the front closes; FILES_RECURSIVE */
    FILES_PACK,  /* + descriptor: pipe, write end, gets a tar; FILES_GZIP */
    FILES_UNPACK, /* + descriptor: pipe, read end, a tar, plain or gzip; then COMMIT */
    FILES_COMMIT  /* all `size` bytes have gone into the pipe of the operation under way; the pipe is closed */
};

enum files_flag {
    FILES_FOLLOW = 1 << 0,
    FILES_PARENTS = 1 << 1,
    FILES_RECURSIVE = 1 << 2,
    FILES_OVERWRITE = 1 << 3,
    FILES_GZIP = 1 << 4,
    FILES_IGNORE_CASE = 1 << 5,
    FILES_FIXED = 1 << 6, /* the pattern is the text itself */
    FILES_MODE = 1 << 7,  /* `mode` holds */
    FILES_MTIME = 1 << 8, /* `mtime_ns` holds */
    FILES_IF_MATCH =
        1 << 9, /* only when the target (MOVE, COPY: to_path) is there and is `match`; FILES_IF_ANY: whatever it is */
    FILES_IF_ANY = 1 << 10,
    FILES_IF_NONE = 1 << 11, /* only when there is none */
    FILES_BY_NAME = 1 << 12, /* the pattern is of the last name alone, wherever it is, and hidden ones are as others */
    FILES_NO_FOLDERS = 1 << 13, /* only what is no folder: GLOB leaves them out, REMOVE is CONFLICT */
    FILES_LINES = 1 << 14,
    FILES_KNOWN_USERS = 1 << 15 /* an owner or group that the sandbox does not know is left as it was */
};

/** What tells one state of a file from another: an ETag's parts. */
struct files_version {
    uint64_t inode, size;
    int64_t mtime_ns, ctime_ns;
};

/** A request as both ends see it; texts are NUL-terminated (checked) and belong to whoever filled it. */
struct files_request {
    enum files_operation operation;
    uint32_t flags; /* of enum files_flag */
    uint32_t depth; /* LIST: 1..64 */
    uint32_t limit; /* records at most; 0: no limit */
    uint32_t mode;  /* 0..07777 */
    int64_t mtime_ns;
    uint64_t size;          /* COMMIT: bytes poured; PIECE: bytes of this piece; LINES: how many, from 1 */
    uint64_t offset, total; /* PIECE; LINES: offset, from 1 */
    struct files_version match;
    const char *root,
        *path; /* root "": the whole sandbox, else the path scope's folder; path absolute, at or below root */
    const char *to_root, *to_path; /* MOVE, COPY; else "" */
    const char *pattern, *glob;    /* GLOB, GREP; else "" */
    const char *upload;            /* PIECE: 1..64 of A-Za-z0-9._-; else "" */
    const char *owner, *group;     /* CHMOD, MKDIR, WRITE: a name in the sandbox or a number; "": as it is */
};

enum files_record_kind { FILES_ENTRY = 1, FILES_MATCH, FILES_EVENT, FILES_STATE, FILES_DATA, FILES_DONE, FILES_ERROR };

enum files_type {
    FILES_REGULAR = 1,
    FILES_FOLDER,
    FILES_SYMLINK,
    FILES_FIFO,
    FILES_SOCKET,
    FILES_CHAR_DEVICE,
    FILES_BLOCK_DEVICE
};

enum files_event { FILES_CREATED = 1, FILES_MODIFIED, FILES_DELETED, FILES_MOVED, FILES_OVERFLOW, FILES_GONE };

/** Bytes that are not NUL-terminated, in the packet. */
struct files_bytes {
    const char *data;
    size_t size;
};

/** One record; what it points to lies in the packet it came from. Fields beyond the kind's own are zero. */
struct files_record {
    enum files_record_kind kind;
    /* ENTRY */
    enum files_type type;
    uint32_t mode, uid, gid; /* mode: permission bits, 0..07777 */
    uint64_t links;
    struct files_version version;
    struct files_bytes path;         /* below the request's path, no slash at its ends; "" itself. Also MATCH, EVENT */
    struct files_bytes target;       /* of a symlink */
    struct files_bytes owner, group; /* names of uid and gid; "": the sandbox has none for it */
    /* MATCH */
    uint64_t line;           /* from 1 */
    uint64_t column;         /* bytes, from 1 */
    bool is_cut;             /* the text is not the whole line */
    struct files_bytes text; /* also DATA */
    /* EVENT */
    enum files_event event;
    bool is_folder;
    struct files_bytes from; /* MOVED: below the request's path */
    /* STATE */
    uint64_t received, total;
    /* DONE */
    uint64_t count, skipped; /* records (or as the operation says); what could not be looked at */
    bool is_truncated;       /* `limit` was reached */
    /* ERROR */
    struct error error;
};

/** Checks a request as front_files_request_send does: sizes, paths, ranges, which texts and descriptors its operation
 * has. */
bool front_files_request_check(const struct files_request *request, bool has_descriptor, struct error *err) MUST_USE;
/** One packet with `descriptor` (-1: none; borrowed). ERROR_INVALID as checked; system_errno EAGAIN when the socket is
 * full. */
bool front_files_request_send(int socket, const struct files_request *request, int descriptor,
                              struct error *err) MUST_USE;
/** 1: one came, its texts in *memory (freed by the caller) and *descriptor (-1 or the caller's). 0: the end. -1: error.
 */
int front_files_request_receive(int socket, struct files_request *request, void **memory, int *descriptor,
                                struct error *err) MUST_USE;

/** The texts of an edit, in order. */
struct files_edit {
    struct files_bytes old, new; /* old is not empty */
    bool all;                    /* every occurrence; else there must be exactly one */
    bool optional;               /* none is as good; else there must be at least one */
};
/** A sealed memfd of 1..1000 edits; -1 with TOO_LARGE over FRONT_FILES_EDIT_MAX, or INVALID. */
int front_files_edits_seal(const struct files_edit *edits, size_t count, struct error *err) MUST_USE;
/** Reads it back, checks seals and sizes. The array and texts are one allocation, *edits: the caller frees it. */
bool front_files_edits_read(int fd, struct files_edit **edits, size_t *count, struct error *err) MUST_USE;

/** OPEN's descriptor, for both ends: a regular file, open for reading alone, on a file system whose reads do not wait
 * for a sandbox (overlay, tmpfs, btrfs, ext, xfs; virtiofs or 9p where it is the root). ERROR_INVALID. */
bool front_files_descriptor_check(int fd, struct error *err) MUST_USE;

/** A packet being filled with records; for the helper. */
struct files_packet {
    size_t size;
    char data[FRONT_FILES_PACKET_MAX];
};
/** False: it does not fit any more; send what is there and add it to the empty packet (where every record that is
 * within its bounds fits: DATA and MATCH texts up to 32 KiB). */
bool front_files_packet_add(struct files_packet *packet, const struct files_record *record) MUST_USE;

/** Walks the records of a received packet: 1 one, 0 no more, -1 ERROR_INVALID. *at starts as 0. Every size, type and
 * text is checked: a path is relative with no NUL, empty, . or .. segment. */
int front_files_packet_next(const char *data, size_t size, size_t *at, struct files_record *record,
                            struct error *err) MUST_USE;

/** Whether a record may be the `number`th (from 0) of an answer to `operation`; DONE and ERROR always may. */
bool front_files_is_awaited(enum files_operation operation, enum files_record_kind kind, uint64_t number) MUST_USE;

/** Whether DONE may come after so many records: what was looked at, opened, made or changed is told of before. */
bool front_files_is_complete(enum files_operation operation, uint64_t records) MUST_USE;

/** As front_files_packet_next checks a record, before it is added. */
bool front_files_record_check(const struct files_record *record, struct error *err) MUST_USE;
/** Made of segments with one slash between them, none empty, . or .. or over FRONT_FILES_NAME_MAX; no NUL; "" is one.
 */
bool front_files_path_is_relative(const char *path, size_t size) MUST_USE;
