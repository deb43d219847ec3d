/** source.h - the archive that was given, as a set of named members: a tar (also a compressed one) or a folder. Nothing
 *  in it is believed. */
#pragma once

#include "shared/base/cleanup.h"
#include "shared/base/error.h"

#include <archive.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define SOURCE_MEMBERS_MAX 20000

struct source;

/** The tar in the regular file `fd`. A compressed one is written plain to `spool` (a regular file, empty) first, at
 * most `bytes_max`. Borrows both. NULL: INVALID when it is no tar. */
struct source *source_open_tar(int fd, int spool, uint64_t bytes_max, struct error *err) MUST_USE;
/** The folder `fd`, borrowed; its members are the regular files below it, no link is followed. */
struct source *source_open_folder(int fd) MUST_USE;
void source_free(struct source *source);
DEFINE_AUTO(source)

bool source_has(const struct source *source, const char *name) MUST_USE;
/** A member of at most `max` bytes, NUL-terminated; the caller frees. NOT_FOUND, TOO_LARGE. */
char *source_read(const struct source *source, const char *name, size_t max, size_t *size, struct error *err) MUST_USE;

/** One member, read from its start to its end. Embedded. Private fields. */
struct stream {
    struct archive *archive; /* of a tar */
    void *window;
    int fd; /* of a folder; -1 */
};
#define STREAM_NONE ((struct stream){.fd = -1})
bool stream_open(struct stream *stream, const struct source *source, const char *name, struct error *err) MUST_USE;
/** The next bytes, at most `size`; 0 at the end, -1 on failure. */
ssize_t stream_read(struct stream *stream, void *to, size_t size, struct error *err) MUST_USE;
void stream_done(struct stream *stream);
#define AUTO_STREAM __attribute__((cleanup(stream_done))) struct stream
