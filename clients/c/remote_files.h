/** remote_files.h - the files of a thread's sandbox over its capability: one connection that keeps its grant fresh,
 * tries again what a restart of the node broke off, and goes on where it stood. Blocks; one thread at a time. Remote
 * paths are absolute and of any bytes; everything that comes back is taken for hostile. */
#pragma once

#include "clients/c/grant.h"

#include "shared/base/cleanup.h"
#include "shared/base/error.h"

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define REMOTE_FILES_DEPTH_ALL 64 /* the deepest list there is */

struct remote_files;

/** What it is opened for; all is borrowed and outlives it. */
struct remote_files_use {
    struct grant *grant; /* changed in place when the token is refreshed or replaced */
    const struct place *place;
    const struct grant_request *request;
    void (*note)(void *cookie, const char *sentence); /* "connection lost, trying again"; may be NULL */
    bool (*moved)(void *cookie,
                  uint64_t bytes); /* so many more bytes went by, or 0; false: give up (GONE). May be NULL */
    void *cookie;
};

struct remote_files *remote_files_open(const struct remote_files_use *use, struct error *err) MUST_USE;
void remote_files_free(struct remote_files *files);
DEFINE_AUTO(remote_files)

enum remote_kind { REMOTE_FILE, REMOTE_FOLDER, REMOTE_LINK, REMOTE_OTHER };

/** One name; its texts belong to whoever holds it (remote_entry_done), or are good during a visit. */
struct remote_entry {
    char *path;   /* of a list: below what was listed, "" itself; no empty, . or .. segment. Else as asked */
    char *target; /* of a link; else NULL */
    char *etag;   /* of a file; else NULL */
    enum remote_kind kind;
    unsigned mode; /* permission bits */
    uint64_t size;
    int64_t mtime_ns;
};

void remote_entry_done(struct remote_entry *entry);
#define AUTO_REMOTE_ENTRY __attribute__((cleanup(remote_entry_done))) struct remote_entry

/** NOT_FOUND ... `follow`: of a link's target. */
bool remote_files_stat(struct remote_files *files, const char *path, bool follow, struct remote_entry *entry,
                       struct error *err) MUST_USE;

/** Everything below a folder to `depth`, parents before children, itself first; visit says false (with err set) to
 * stop. */
bool remote_files_list(struct remote_files *files, const char *path, unsigned depth,
                       bool (*visit)(void *cookie, const struct remote_entry *entry, struct error *err), void *cookie,
                       struct error *err) MUST_USE;

/** The bytes of a file, in order and once. A connection that breaks is made again and goes on behind what came;
 * CONFLICT when the file changed meanwhile. */
bool remote_files_read(struct remote_files *files, const char *path,
                       bool (*write)(void *cookie, const void *data, size_t size, struct error *err), void *cookie,
                       struct error *err) MUST_USE;

/** How a file is written. */
struct remote_files_put {
    int fd;               /* what is in it from its start (a regular file), or to its end (anything else) */
    int mode;             /* permission bits; -1: what it had, or 0644 */
    int64_t mtime_ns;     /* -1: now */
    const char *if_match; /* an etag; "*": it must be there; NULL */
    bool if_none;         /* it must not be there */
};

/** Writes a file at once or not at all; made folders included. A large regular file goes in pieces that resume; what
 * cannot be read twice is sent once. `entry` (may be NULL) gets what is there then. PRECONDITION as asked. */
bool remote_files_write(struct remote_files *files, const char *path, const struct remote_files_put *put,
                        struct remote_entry *entry, struct error *err) MUST_USE;

/** POST ?op=mkdir, move, copy, chmod or edit. `body` is borrowed, `if_match` may be NULL; *reply (may be NULL) the
 * caller's. */
bool remote_files_change(struct remote_files *files, const char *path, const char *op, json_t *body,
                         const char *if_match, json_t **reply, struct error *err) MUST_USE;
bool remote_files_remove(struct remote_files *files, const char *path, bool recursive, struct error *err) MUST_USE;

/** A tar of a folder as it comes; a broken connection is an error (NODE_UNREACHABLE), nothing is tried again. */
bool remote_files_pack(struct remote_files *files, const char *path,
                       bool (*write)(void *cookie, const void *data, size_t size, struct error *err), void *cookie,
                       struct error *err) MUST_USE;
/** A tar (plain or gzip) that read gives: bytes, 0 at its end, -1 with err set. Sent once. */
bool remote_files_unpack(struct remote_files *files, const char *path,
                         ssize_t (*read)(void *cookie, void *to, size_t size, struct error *err), void *cookie,
                         struct error *err) MUST_USE;
