#include "sandboxd/templates/tool/source.h"

#include "shared/base/fd.h"
#include "shared/base/memory.h"

#include <archive_entry.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <linux/openat2.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { WINDOW_BYTES = 256 * 1024, NAME_MAX_BYTES = 512, LINKS_MAX = 4 };

/* A file of a tar; `link` when it only names another one. */
struct member {
    char *name, *link;
    int64_t at; /* of its header, in the plain tar */
};

struct source {
    int fd; /* borrowed: the plain tar, or the folder */
    bool is_folder;
    struct member *members; /* by name */
    size_t count;
};

/* --- reading a tar from any header on --- */

struct window {
    int fd;
    off_t at;
    char bytes[WINDOW_BYTES];
};

static la_ssize_t read_window(struct archive *archive, void *context, const void **data)
{
    struct window *window = context;
    ssize_t got = -1;
    do {
        got = pread(window->fd, window->bytes, sizeof window->bytes, window->at);
    } while (got < 0 && errno == EINTR);
    if (got < 0)
        archive_set_error(archive, errno, "read the archive: %s", strerrordesc_np(errno));
    window->at += got > 0 ? got : 0;
    *data = window->bytes;
    return got;
}

static la_int64_t skip_window(struct archive *archive, void *context, la_int64_t wanted)
{
    struct window *window = context;
    (void)archive;
    struct stat status;
    if (fstat(window->fd, &status) < 0 || wanted <= 0)
        return 0;
    /* Never beyond the end: a member that says it is larger than the file is cut, not skipped. */
    la_int64_t left = status.st_size - window->at;
    la_int64_t skipped = left <= 0 ? 0 : wanted < left ? wanted : left;
    window->at += skipped;
    return skipped;
}

enum packing { PACKING_NONE, PACKING_ANY };

static struct archive *open_reader(int fd, int64_t at, enum packing packing, struct window **window, struct error *err)
{
    struct archive *archive = archive_read_new();
    if (archive == NULL)
        abort(); /* no memory */
    *window = memory_new(sizeof **window);
    (*window)->fd = fd;
    (*window)->at = at;
    if (packing == PACKING_ANY) {
        archive_read_support_filter_gzip(archive);
        archive_read_support_filter_zstd(archive);
        archive_read_support_filter_xz(archive);
        archive_read_support_filter_bzip2(archive);
        archive_read_support_format_raw(archive);
        archive_read_support_format_empty(archive);
    } else {
        archive_read_support_format_tar(archive);
        archive_read_support_format_empty(archive);
    }
    if (archive_read_open2(archive, *window, NULL, read_window, skip_window, NULL) == ARCHIVE_OK)
        return archive;
    error_set(err, ERROR_INVALID, "the archive cannot be read: %.120s", archive_error_string(archive));
    archive_read_free(archive);
    free(*window);
    *window = NULL;
    return NULL;
}

static bool fail_tar(struct archive *archive, struct error *err)
{
    const char *why = archive_error_string(archive);
    return error_set(err, ERROR_INVALID, "it is no whole tar: %.120s", why ? why : "damaged");
}

/* --- compressed ones --- */

static bool unpack(struct archive *archive, int spool, uint64_t bytes_max, struct error *err)
{
    AUTO_FREE char *buffer = memory_new(WINDOW_BYTES);
    uint64_t total = 0;
    for (;;) {
        la_ssize_t got = archive_read_data(archive, buffer, WINDOW_BYTES);
        if (got == 0)
            return true;
        if (got < 0)
            return error_set(err, ERROR_INVALID, "it cannot be unpacked: %.120s",
                             archive_error_string(archive) ? archive_error_string(archive) : "damaged");
        total += (uint64_t)got;
        if (total > bytes_max)
            return error_set(err, ERROR_TOO_LARGE, "unpacked it has more than %" PRIu64 " MiB (--max-mb)",
                             bytes_max >> 20);
        if (!fd_write_all(spool, buffer, (size_t)got, err))
            return false;
    }
}

/* *plain is `fd`, or `spool` when it had to be unpacked. */
static bool make_plain(int fd, int spool, uint64_t bytes_max, int *plain, struct error *err)
{
    struct window *window = NULL;
    struct archive_entry *entry = NULL;
    struct archive *archive = open_reader(fd, 0, PACKING_ANY, &window, err);
    if (archive == NULL)
        return false;
    int status = archive_read_next_header(archive, &entry);
    bool is_packed = status == ARCHIVE_OK && archive_filter_code(archive, 0) != ARCHIVE_FILTER_NONE;
    bool whole = status >= ARCHIVE_WARN ? !is_packed || unpack(archive, spool, bytes_max, err) : fail_tar(archive, err);
    archive_read_free(archive);
    free(window);
    *plain = is_packed ? spool : fd;
    return whole;
}

/* --- the members of a tar --- */

static int by_name(const void *a, const void *b)
{
    return strcmp(((const struct member *)a)->name, ((const struct member *)b)->name);
}

/* "./a/b" as "a/b". */
static const char *plain_name(const char *name)
{
    while (name[0] == '.' && name[1] == '/')
        name += 2 + strspn(name + 2, "/");
    return name;
}

/* The text of a link of `name`, as a member's name; only what docker's old archives had: "../<id>/layer.tar". */
static char *link_target(const char *name, const char *link, bool is_hard)
{
    const char *slash = strrchr(name, '/');
    if (is_hard || slash == NULL)
        return memory_string(plain_name(link));
    if (strncmp(link, "../", 3) == 0 && memchr(name, '/', (size_t)(slash - name)) == NULL)
        return memory_string(link + 3);
    return memory_printf("%.*s/%s", (int)(slash - name), name, link);
}

static bool add_member(struct source *source, struct archive *archive, struct archive_entry *entry, struct error *err)
{
    const char *name = archive_entry_pathname(entry);
    const char *hard = archive_entry_hardlink(entry);
    const char *soft = archive_entry_filetype(entry) == AE_IFLNK ? archive_entry_symlink(entry) : NULL;
    if (name == NULL || strlen(name) > NAME_MAX_BYTES || (!hard && !soft && archive_entry_filetype(entry) != AE_IFREG))
        return true; /* nothing that a manifest could name */
    if (source->count == SOURCE_MEMBERS_MAX)
        return error_set(err, ERROR_TOO_LARGE, "the archive has more than %d members", SOURCE_MEMBERS_MAX);
    name = plain_name(name);
    struct member *member = &source->members[source->count++];
    member->name = memory_string(name);
    member->link = hard ? link_target(name, hard, true) : soft ? link_target(name, soft, false) : NULL;
    member->at = archive_read_header_position(archive);
    return true;
}

static void member_done(struct member *member)
{
    free(member->name);
    free(member->link);
}

/* First by name, then as they lie. */
static int by_name_and_place(const void *a, const void *b)
{
    const struct member *left = a;
    const struct member *right = b;
    int names = by_name(a, b);
    return names ? names : (left->at > right->at) - (left->at < right->at);
}

/* Some tools write a layer twice: the first counts, and its digest is verified. What says which they are must be one.
 */
static bool drop_doubles(struct source *source, struct error *err)
{
    size_t kept = 0;
    qsort(source->members, source->count, sizeof *source->members, by_name_and_place);
    for (size_t i = 0; i < source->count; i++) {
        struct member *member = &source->members[i];
        const char *name = member->name;
        size_t length = strlen(name);
        if (kept == 0 || strcmp(source->members[kept - 1].name, name) != 0) {
            source->members[kept++] = *member;
            *member = i + 1 == kept ? *member : (struct member){0};
            continue;
        }
        if (strcmp(name, "oci-layout") == 0 || (length > 5 && strcmp(name + length - 5, ".json") == 0))
            return error_set(err, ERROR_INVALID, "the archive has two members \"%.80s\"", name);
        member_done(member);
        *member = (struct member){0};
    }
    source->count = kept;
    return true;
}

static bool index_members(struct source *source, struct error *err)
{
    struct window *window = NULL;
    struct archive *archive = open_reader(source->fd, 0, PACKING_NONE, &window, err);
    bool whole = archive != NULL;
    for (int status = ARCHIVE_OK; whole && status != ARCHIVE_EOF;) {
        struct archive_entry *entry = NULL;
        status = archive_read_next_header(archive, &entry);
        if (status != ARCHIVE_EOF)
            whole = status >= ARCHIVE_WARN ? add_member(source, archive, entry, err) : fail_tar(archive, err);
    }
    if (archive)
        archive_read_free(archive);
    free(window);
    if (!whole)
        return false;
    return drop_doubles(source, err);
}

struct source *source_open_tar(int fd, int spool, uint64_t bytes_max, struct error *err)
{
    AUTO(source) *source = memory_new(sizeof *source);
    source->members = memory_array(SOURCE_MEMBERS_MAX, sizeof *source->members);
    if (!make_plain(fd, spool, bytes_max, &source->fd, err) || !index_members(source, err))
        return NULL;
    return TAKE(source);
}

struct source *source_open_folder(int fd)
{
    struct source *source = memory_new(sizeof *source);
    source->fd = fd;
    source->is_folder = true;
    return source;
}

void source_free(struct source *source)
{
    if (source == NULL)
        return;
    for (size_t i = 0; i < source->count; i++)
        member_done(&source->members[i]);
    free(source->members);
    free(source);
}

/* --- finding --- */

static const struct member *find_member(const struct source *source, const char *name)
{
    AUTO_FREE char *key = memory_string(plain_name(name));
    for (int i = 0; i <= LINKS_MAX; i++) {
        const struct member wanted = {.name = key};
        const struct member *found =
            source->count ? bsearch(&wanted, source->members, source->count, sizeof wanted, by_name) : NULL;
        if (found == NULL || found->link == NULL)
            return found;
        free(key);
        key = memory_string(found->link);
    }
    return NULL;
}

static int open_file(const struct source *source, const char *name)
{
    struct open_how how = {.flags = O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY,
                           .resolve = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS};
    AUTO_FD int fd = (int)syscall(SYS_openat2, source->fd, name, &how, sizeof how);
    struct stat status;
    if (fd >= 0 && (fstat(fd, &status) < 0 || !S_ISREG(status.st_mode))) {
        errno = EINVAL;
        return -1;
    }
    return TAKE_FD(fd);
}

bool source_has(const struct source *source, const char *name)
{
    if (!source->is_folder)
        return find_member(source, name) != NULL;
    AUTO_FD int fd = open_file(source, name);
    return fd >= 0;
}

/* --- reading --- */

static bool open_member(struct stream *stream, const struct source *source, const char *name, struct error *err)
{
    const struct member *member = find_member(source, name);
    struct archive_entry *entry = NULL;
    if (member == NULL)
        return error_set(err, ERROR_NOT_FOUND, "the archive has no \"%.100s\"", name);
    struct window *window = NULL;
    struct archive *archive = open_reader(source->fd, member->at, PACKING_NONE, &window, err);
    if (archive == NULL)
        return false;
    *stream = (struct stream){.archive = archive, .window = window, .fd = -1};
    return archive_read_next_header(archive, &entry) >= ARCHIVE_WARN || fail_tar(archive, err);
}

bool stream_open(struct stream *stream, const struct source *source, const char *name, struct error *err)
{
    *stream = STREAM_NONE;
    if (!source->is_folder)
        return open_member(stream, source, name, err);
    stream->fd = open_file(source, name);
    if (stream->fd >= 0)
        return true;
    return error_set_errno(err, errno == ENOENT ? ERROR_NOT_FOUND : ERROR_INVALID, "open %.100s of the layout", name);
}

ssize_t stream_read(struct stream *stream, void *to, size_t size, struct error *err)
{
    ssize_t got = -1;
    if (stream->archive) {
        got = archive_read_data(stream->archive, to, size);
        if (got < 0)
            error_set(err, ERROR_INVALID, "the archive is cut or damaged");
        return got < 0 ? -1 : got;
    }
    do {
        got = read(stream->fd, to, size);
    } while (got < 0 && errno == EINTR);
    if (got < 0)
        error_set_errno(err, ERROR_INTERNAL, "read");
    return got;
}

void stream_done(struct stream *stream)
{
    if (stream->archive)
        archive_read_free(stream->archive);
    free(stream->window);
    if (stream->fd >= 0)
        close(stream->fd);
    *stream = STREAM_NONE;
}

char *source_read(const struct source *source, const char *name, size_t max, size_t *size, struct error *err)
{
    AUTO_STREAM stream = STREAM_NONE;
    if (!stream_open(&stream, source, name, err))
        return NULL;
    AUTO_FREE char *bytes = memory_new(max + 1);
    size_t length = 0;
    for (;;) {
        char beyond;
        ssize_t got = length < max ? stream_read(&stream, bytes + length, max - length, err)
                                   : stream_read(&stream, &beyond, 1, err);
        if (got < 0)
            return NULL;
        if (got > 0 && length == max) {
            error_set(err, ERROR_TOO_LARGE, "%.100s has more than %zu bytes", name, max);
            return NULL;
        }
        if (got == 0)
            break;
        length += (size_t)got;
    }
    bytes[length] = '\0';
    *size = length;
    return TAKE(bytes);
}
