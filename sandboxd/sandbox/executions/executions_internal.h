/** executions_internal.h - what the files about executions share: languages, the work folder's verbs, and the book of
 * what is known of them over all loops. */
#pragma once

#include "sandboxd/sandbox/executions/executions.h"
#include "sandboxd/sandbox/files.h"

#define EXECUTION_COMMAND      "execution." /* what the ids of their commands begin with */
#define EXECUTION_FOLDER       "/tmp"
#define EXECUTION_NAME         ".execution-" /* what the names of work folders there begin with */
#define EXECUTION_FOLDER_BYTES 96
#define EXECUTION_TAG_BYTES    9

/* ---- execution_languages.c ---- */

struct execution_language {
    const char *name;
    const char *aliases; /* words with blanks around each */
    const char *file;    /* the code's name in the work folder */
    const char *program; /* found by PATH; NULL: by its driver alone */
    bool forks;          /* its driver has a process with the interpreter ready */
};

/** NULL: INVALID. */
const struct execution_language *execution_language_find(const char *given, struct error *err) MUST_USE;

/** Whether a process that has started already can become it. */
bool execution_can_fork(const struct execution_order *order) MUST_USE;

/** The command that runs an order in its folder, with `forks` in a fork of such a process; the caller's. */
struct command *execution_command(const struct execution_order *order, const char *id, const char *folder, bool forks,
                                  struct error *err) MUST_USE;

/* ---- execution_work.c: on the calling loop ---- */

struct execution_write;
/** Writes one file whole, with the folders above it. done(cookie, err) once, then it is freed. */
struct execution_write *execution_write_start(struct sandboxes *all, const char *sandbox_id, const char *folder,
                                              const struct execution_file *file, bool is_first,
                                              void (*done)(void *cookie, const struct error *err),
                                              void *cookie) MUST_USE;
void execution_write_cancel(struct execution_write *write);

/** Removes a folder and all in it, trying a few times; nobody waits for it. */
void execution_remove(struct sandboxes *all, const char *sandbox_id, const char *folder);
/** Removes the work folders of fronts before this one. */
void execution_sweep(struct sandboxes *all, const char *sandbox_id);
/** Forgets what is under way on the calling loop, which ends. */
void execution_removals_drop(struct sandboxes *all);

/* ---- execution_orphans.c: on the sandbox's loop ---- */

struct sandbox;
/** init has told all it knows: kills what an earlier front ran, and removes its folders. A paused sandbox is not woken
 * for that. */
void execution_orphans_end(struct sandbox *sandbox);

/* ---- execution_harvest.c ---- */

struct execution_harvest;
/** Collects what lies below `folder`/artifacts; artifacts and marks (sentences for stderr, each a line) are the
 * caller's and grow. done(cookie) once, then it is freed. */
struct execution_harvest *execution_harvest_start(struct sandboxes *all, const char *sandbox_id, const char *folder,
                                                  struct execution_result *result, struct text *marks,
                                                  void (*done)(void *cookie), void *cookie) MUST_USE;
/** What was collected so far stays. NULL is allowed. */
void execution_harvest_cancel(struct execution_harvest *harvest);

/** Drops all artifacts of a result, files too. */
void execution_result_done(struct sandboxes *all, const char *sandbox_id, struct execution_result *result);

/* ---- execution_book.c: any loop ---- */

struct execution_book;
struct execution_book *execution_book_new(void) MUST_USE;
void execution_book_free(struct execution_book *book);

/** What the work folders of this process have in their names, and no other front's. */
const char *execution_book_tag(const struct execution_book *book) MUST_USE;

struct execution_entry {
    bool is_first; /* of this front, in a sandbox that is older than it: there may be left-overs of another one */
    bool is_soon;  /* another one began within the last minute */
};
/** One more runs in the sandbox, which was made at `made_ms` (UTC). RATE_LIMITED. */
bool execution_book_enter(struct execution_book *book, const char *sandbox_id, int64_t made_ms,
                          struct execution_entry *entry, struct error *err) MUST_USE;
void execution_book_leave(struct execution_book *book, const char *sandbox_id);

/** Closes what is over. */
void artifacts_sweep(struct sandboxes *all);
/** The sandbox is over: its files are closed, and it is forgotten. */
void artifacts_drop(struct sandboxes *all, const char *sandbox_id);
