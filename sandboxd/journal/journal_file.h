/** journal_file.h - an append-only file of small texts that survives kill -9 and, once synced, a power loss. A record
 *  is a line: 16 hex digits of BLAKE2b-64 over the text, a space, the text (no newline in it), a newline. What a crash
 *  left half-written at the end is cut off at the next open; a damaged line before the end is an error: who reads it
 *  must not go on as if nothing was lost. */
#pragma once

#include "shared/base/cleanup.h"
#include "shared/base/error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define JOURNAL_RECORD_MAX 65536
#define JOURNAL_LINE_BYTES 18 /* of a record's line beside its text */

struct journal_file;

/** Called for each whole record in order; text is NUL-terminated. False stops the opening (its error is in *err). */
typedef bool journal_visit(void *cookie, const char *text, size_t size, struct error *err);

/** Opens folder/name (made 0600 when missing), tells all records, cuts a torn tail. `visit` may be NULL. One process a
 *  file: the folder's lock is the caller's. ERROR_INTERNAL. */
struct journal_file *journal_file_open(int folder, const char *name, journal_visit *visit, void *cookie,
                                       struct error *err) MUST_USE;
/** Closes; NULL is allowed. Does not sync. */
void journal_file_free(struct journal_file *file);
DEFINE_AUTO(journal_file)

/** Appends one record by one write(2): it survives a kill of this process from then on. A write that failed is taken
 *  back. ERROR_DISK_FULL, ERROR_INTERNAL. Any thread, one at a time (the caller's lock). */
bool journal_file_append(struct journal_file *file, const char *text, size_t size, struct error *err) MUST_USE;

/** fdatasync(2). May run beside appends. */
bool journal_file_sync(struct journal_file *file, struct error *err) MUST_USE;

/** Puts other records in their place: written beside it, synced, renamed, the folder synced. */
bool journal_file_replace(struct journal_file *file, const char *const *texts, size_t count,
                          struct error *err) MUST_USE;

uint64_t journal_file_bytes(const struct journal_file *file) MUST_USE;

/** To read what was written (journal_walk); the file's own, the same number as long as it is open. */
int journal_file_fd(const struct journal_file *file) MUST_USE;

/** Tells the records of a journal's descriptor from byte *offset, where one begins, up to `until` (more than there is
 * is fine), and moves *offset behind each one told. ERROR_INTERNAL for what is no whole record: here nothing is cut.
 *  Where the visitor stops, *offset stays before its record. `visit` may be NULL. Any thread. */
bool journal_walk(int fd, uint64_t *offset, uint64_t until, journal_visit *visit, void *cookie,
                  struct error *err) MUST_USE;

/** fsync(2) of a folder of which the descriptor may be O_PATH: names made or changed in it are durable then. */
bool journal_folder_sync(int folder, struct error *err) MUST_USE;
