/* journal_file.c - lines with a check sum; all writes at a known position, so that a failed one leaves nothing. */
#include "sandboxd/journal/journal_file.h"

#include "shared/base/memory.h"
#include "shared/base/text.h"

#include <errno.h>
#include <fcntl.h>
#include <sodium.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/uio.h>

enum {
    SUM_BYTES = 8,
    HEAD_BYTES = 2 * SUM_BYTES + 1, /* the sum in hex, a space */
    LINE_BYTES = JOURNAL_LINE_BYTES + JOURNAL_RECORD_MAX,
    BUFFER_BYTES = 2 * LINE_BYTES
};

_Static_assert(JOURNAL_LINE_BYTES == HEAD_BYTES + 1, "the head and the newline");

struct journal_file {
    int fd;     /* the number stays the same when the file is replaced: a sync may run beside */
    int folder; /* ours */
    char *name;
    _Atomic uint64_t bytes; /* of whole records; what lies beyond is overwritten or cut */
    bool has_rest;          /* a failed write may have left bytes beyond */
};

static void make_head(char head[static HEAD_BYTES + 1], const char *text, size_t size)
{
    uint8_t sum[SUM_BYTES];
    /* Not crypto_generichash: that one wants at least 16 bytes. */
    (void)crypto_generichash_blake2b(sum, sizeof sum, (const uint8_t *)text, size, NULL, 0);
    text_hex(head, sum, sizeof sum);
    head[HEAD_BYTES - 1] = ' ';
    head[HEAD_BYTES] = '\0';
}

/* ---- reading ---- */

/* Lines of a file, from `at` on. The buffer takes two of the longest. */
struct reader {
    int fd;
    uint64_t at, until; /* where buffer[start] lies; where reading ends */
    size_t start, end;  /* what is in the buffer and not told */
    char *buffer;       /* BUFFER_BYTES + 1 */
};

enum line {
    LINE_WHOLE,
    LINE_DAMAGED, /* it has an end, but is not a record */
    LINE_TORN,    /* it has no end, or pages of it were never written */
    LINE_NONE,
    LINE_FAILED /* read(2) */
};

/* False at the end of what is to be read, or on failure (err->kind). */
static bool read_more(struct reader *reader, struct error *err)
{
    memmove(reader->buffer, reader->buffer + reader->start, reader->end - reader->start);
    reader->end -= reader->start;
    reader->start = 0;
    uint64_t at = reader->at + reader->end;
    size_t room = BUFFER_BYTES - reader->end;
    if (at >= reader->until)
        return false;
    if (room > reader->until - at)
        room = (size_t)(reader->until - at);
    ssize_t got;
    do
        got = pread(reader->fd, reader->buffer + reader->end, room, (off_t)at);
    while (got < 0 && errno == EINTR);
    if (got < 0)
        return error_set_errno(err, ERROR_INTERNAL, "read");
    reader->end += (size_t)got;
    return got > 0;
}

static bool is_record(const char *line, size_t length)
{
    if (length < HEAD_BYTES || length - HEAD_BYTES > JOURNAL_RECORD_MAX)
        return false;
    char head[HEAD_BYTES + 1];
    make_head(head, line + HEAD_BYTES, length - HEAD_BYTES);
    return memcmp(head, line, HEAD_BYTES) == 0;
}

/* A line and its length without its end; *taken counts all its bytes. Of one that is too long only the end is left. */
static enum line next_line(struct reader *reader, char **line, size_t *length, uint64_t *taken, struct error *err)
{
    bool has_nul = false;
    *taken = 0;
    for (size_t looked = 0;;) {
        char *start = reader->buffer + reader->start;
        size_t size = reader->end - reader->start;
        char *newline = memchr(start + looked, '\n', size - looked);
        if (newline) {
            *line = start;
            *length = (size_t)(newline - start);
            *taken += *length + 1;
            reader->start += *length + 1;
            reader->at += *length + 1;
            if (*taken == *length + 1 && is_record(start, *length))
                return LINE_WHOLE;
            return has_nul || memchr(start, '\0', *length) ? LINE_TORN : LINE_DAMAGED;
        }
        looked = size;
        if (size >= LINE_BYTES) { /* no record: go on from the next one */
            has_nul = has_nul || memchr(start, '\0', size);
            *taken += size;
            reader->at += size;
            reader->start = reader->end;
            looked = 0;
        }
        if (!read_more(reader, err)) {
            *taken += reader->end - reader->start;
            reader->at += reader->end - reader->start;
            reader->start = reader->end;
            return err->kind != ERROR_NONE ? LINE_FAILED : *taken ? LINE_TORN : LINE_NONE;
        }
    }
}

bool journal_walk(int fd, uint64_t *offset, uint64_t until, journal_visit *visit, void *cookie, struct error *err)
{
    AUTO_FREE char *buffer = memory_resize(NULL, BUFFER_BYTES + 1);
    struct reader reader = {.fd = fd, .at = *offset, .until = until, .buffer = buffer};
    for (;;) {
        char *line = NULL;
        size_t length = 0;
        uint64_t taken = 0;
        struct error failed = {0};
        enum line kind = next_line(&reader, &line, &length, &taken, &failed);
        if (kind == LINE_NONE)
            return true;
        if (kind == LINE_FAILED) {
            *err = failed;
            return false;
        }
        if (kind != LINE_WHOLE)
            return error_set(err, ERROR_INTERNAL, "the line at byte %llu is damaged", (unsigned long long)*offset);
        line[length] = '\0';
        if (visit && !visit(cookie, line + HEAD_BYTES, length - HEAD_BYTES, err))
            return false;
        *offset += taken;
    }
}

/* After the first line that is no record, which began at `from`: true when a crash can have left all the rest like
 * this. Such bytes were never synced; but where a whole record or whole text follows, something that was is lost. */
static bool is_torn_tail(int fd, uint64_t from, struct error *err)
{
    AUTO_FREE char *buffer = memory_resize(NULL, BUFFER_BYTES + 1);
    struct reader reader = {.fd = fd, .at = from, .until = INT64_MAX, .buffer = buffer};
    for (;;) {
        char *line;
        size_t length;
        uint64_t taken;
        struct error failed = {0};
        enum line kind = next_line(&reader, &line, &length, &taken, &failed);
        if (kind == LINE_NONE)
            return true;
        if (kind == LINE_FAILED) {
            *err = failed;
            return false;
        }
        if (kind != LINE_TORN)
            return error_set(err, ERROR_INTERNAL, "the line at byte %llu is damaged", (unsigned long long)from);
    }
}

/* ---- opening ---- */

bool journal_folder_sync(int folder, struct error *err)
{
    AUTO_FD int fd = openat(folder, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC); /* `folder` may be O_PATH */
    if (fd < 0 || fsync(fd) != 0)
        return error_set_errno(err, ERROR_INTERNAL, "sync the folder");
    return true;
}

static bool cut(int fd, uint64_t bytes, struct error *err)
{
    if (ftruncate(fd, (off_t)bytes) != 0 || fdatasync(fd) != 0)
        return error_set_errno(err, ERROR_INTERNAL, "cut a torn tail");
    return true;
}

static bool load(struct journal_file *file, journal_visit *visit, void *cookie, struct error *err)
{
    struct stat status;
    if (fstat(file->fd, &status) != 0)
        return error_set_errno(err, ERROR_INTERNAL, "stat");
    if (!S_ISREG(status.st_mode))
        return error_set(err, ERROR_INTERNAL, "not a regular file");
    uint64_t whole = 0;
    struct error why = {0};
    bool all = journal_walk(file->fd, &whole, INT64_MAX, visit, cookie, &why);
    file->bytes = whole;
    if (all)
        return true;
    struct error read_again = {0};
    uint64_t again = whole;
    /* The visitor's refusal, or a line that is no record? One more look at that line tells. */
    bool is_whole = journal_walk(file->fd, &again, INT64_MAX, NULL, NULL, &read_again) || again > whole;
    if (is_whole || !is_torn_tail(file->fd, whole, &read_again)) {
        *err = is_whole ? why : read_again;
        return false;
    }
    return cut(file->fd, whole, err);
}

struct journal_file *journal_file_open(int folder, const char *name, journal_visit *visit, void *cookie,
                                       struct error *err)
{
    AUTO(journal_file) *file = memory_new(sizeof *file);
    file->name = memory_string(name);
    file->folder = fcntl(folder, F_DUPFD_CLOEXEC, 3);
    file->fd =
        file->folder < 0 ? -1 : openat(folder, name, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0600);
    if (file->fd < 0) {
        error_set_errno(err, ERROR_INTERNAL, "open %s", name);
        return NULL;
    }
    AUTO_FREE char *beside = memory_printf("%s.new", name);
    (void)unlinkat(folder, beside, 0); /* of a replacing that was not finished */
    if (!load(file, visit, cookie, err) || !journal_folder_sync(folder, err)) {
        error_prefix(err, "%s", name);
        return NULL;
    }
    return TAKE(file);
}

void journal_file_free(struct journal_file *file)
{
    if (!file)
        return;
    if (file->fd >= 0)
        close(file->fd);
    if (file->folder >= 0)
        close(file->folder);
    free(file->name);
    free(file);
}

/* ---- writing ---- */

static bool check_text(const char *text, size_t size, struct error *err)
{
    if (size > JOURNAL_RECORD_MAX || memchr(text, '\n', size) || memchr(text, '\0', size))
        return error_set(err, ERROR_INTERNAL, "a journal's record is a line of at most %d bytes", JOURNAL_RECORD_MAX);
    return true;
}

static enum error_kind kind_of_errno(int number)
{
    return number == ENOSPC || number == EDQUOT || number == EFBIG ? ERROR_DISK_FULL : ERROR_INTERNAL;
}

/* The whole line at `at` by one write, or nothing. */
static bool write_line(int fd, uint64_t at, const char *text, size_t size, struct error *err)
{
    char head[HEAD_BYTES + 1], newline = '\n';
    make_head(head, text, size);
    struct iovec parts[] = {{.iov_base = head, .iov_len = HEAD_BYTES},
                            {.iov_base = (void *)(uintptr_t)text, .iov_len = size},
                            {.iov_base = &newline, .iov_len = 1}};
    ssize_t written;
    do
        written = pwritev(fd, parts, sizeof parts / sizeof *parts, (off_t)at);
    while (written < 0 && errno == EINTR);
    if (written < 0)
        return error_set_errno(err, kind_of_errno(errno), "write");
    if ((size_t)written != HEAD_BYTES + size + 1)
        return error_set(err, ERROR_DISK_FULL, "write: only %zd bytes were taken", written);
    return true;
}

bool journal_file_append(struct journal_file *file, const char *text, size_t size, struct error *err)
{
    if (!check_text(text, size, err))
        return error_prefix(err, "%s", file->name);
    /* A shorter line over the rest of a longer one would leave a damaged line behind itself. */
    if (file->has_rest && ftruncate(file->fd, (off_t)file->bytes) != 0)
        return error_set_errno(err, ERROR_INTERNAL, "cut %s", file->name);
    file->has_rest = false;
    if (write_line(file->fd, file->bytes, text, size, err)) {
        file->bytes += HEAD_BYTES + size + 1;
        return true;
    }
    file->has_rest = ftruncate(file->fd, (off_t)file->bytes) != 0;
    return error_prefix(err, "%s", file->name);
}

bool journal_file_sync(struct journal_file *file, struct error *err)
{
    if (fdatasync(file->fd) != 0)
        return error_set_errno(err, kind_of_errno(errno), "sync %s", file->name);
    return true;
}

static bool fill(int fd, const char *const *texts, size_t count, uint64_t *bytes, struct error *err)
{
    *bytes = 0;
    for (size_t i = 0; i < count; i++) {
        size_t size = strlen(texts[i]);
        if (!check_text(texts[i], size, err) || !write_line(fd, *bytes, texts[i], size, err))
            return false;
        *bytes += HEAD_BYTES + size + 1;
    }
    if (fsync(fd) != 0)
        return error_set_errno(err, kind_of_errno(errno), "sync");
    return true;
}

bool journal_file_replace(struct journal_file *file, const char *const *texts, size_t count, struct error *err)
{
    AUTO_FREE char *beside = memory_printf("%s.new", file->name);
    AUTO_FD int fd = openat(file->folder, beside, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd < 0)
        return error_set_errno(err, kind_of_errno(errno), "open %s", beside);
    uint64_t bytes;
    if (!fill(fd, texts, count, &bytes, err)) {
        (void)unlinkat(file->folder, beside, 0);
        return error_prefix(err, "%s", beside);
    }
    if (renameat(file->folder, beside, file->folder, file->name) != 0) {
        error_set_errno(err, ERROR_INTERNAL, "rename %s", beside);
        (void)unlinkat(file->folder, beside, 0);
        return false;
    }
    /* From here on the new file is the one of this name, whatever fails. */
    if (dup3(fd, file->fd, O_CLOEXEC) < 0)
        return error_set_errno(err, ERROR_INTERNAL, "take over %s", beside);
    file->bytes = bytes;
    file->has_rest = false;
    return journal_folder_sync(file->folder, err);
}

uint64_t journal_file_bytes(const struct journal_file *file)
{
    return file->bytes;
}

int journal_file_fd(const struct journal_file *file)
{
    return file->fd;
}
