/* front_files_edits.c - the texts of an edit in a sealed memfd; and which descriptors may be handed over. */
#include "sandboxd/front_files/front_files.h"

#include "shared/base/fd.h"
#include "shared/base/memory.h"
#include "shared/base/text.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <sys/stat.h>
#include <sys/vfs.h>

enum { EDITS_MAX = 1000 };

/* The memfd: a count, as many rows, then all texts. */
struct row {
    uint32_t old, new, all; /* all: ROW_ALL | ROW_OPTIONAL */
};

enum { ROW_ALL = 1, ROW_OPTIONAL = 2 };

static bool count_texts(const struct files_edit *edits, size_t count, struct error *err)
{
    size_t size = 0;
    if (count == 0 || count > EDITS_MAX)
        return error_set(err, ERROR_INVALID, "1..%d edits", EDITS_MAX);
    for (size_t i = 0; i < count; i++) {
        if (edits[i].old.size == 0)
            return error_set(err, ERROR_INVALID, "edit %zu: the old text is empty", i);
        if (edits[i].old.size > FRONT_FILES_EDIT_MAX || edits[i].new.size > FRONT_FILES_EDIT_MAX)
            size = FRONT_FILES_EDIT_MAX;
        size += edits[i].old.size + edits[i].new.size;
        if (size > FRONT_FILES_EDIT_MAX)
            return error_set(err, ERROR_TOO_LARGE, "the edits' texts are over %d bytes", FRONT_FILES_EDIT_MAX);
    }
    return true;
}

int front_files_edits_seal(const struct files_edit *edits, size_t count, struct error *err)
{
    AUTO_TEXT blob = {0};
    uint32_t rows = (uint32_t)count;
    if (!count_texts(edits, count, err))
        return -1;
    text_append(&blob, &rows, sizeof rows);
    for (size_t i = 0; i < count; i++) {
        struct row row = {.old = (uint32_t)edits[i].old.size, .new = (uint32_t)edits[i].new.size};
        row.all = (edits[i].all ? ROW_ALL : 0U) | (edits[i].optional ? ROW_OPTIONAL : 0U);
        text_append(&blob, &row, sizeof row);
    }
    for (size_t i = 0; i < count; i++) {
        text_append(&blob, edits[i].old.data, edits[i].old.size);
        if (edits[i].new.size > 0)
            text_append(&blob, edits[i].new.data, edits[i].new.size);
    }
    return fd_sealed_memfd("edits", blob.data, blob.length, err);
}

/* pread(2): the descriptor's position is shared with the sender. */
static bool read_at(int fd, void *to, size_t size, off_t at, struct error *err)
{
    for (size_t done = 0; done < size;) {
        ssize_t got = pread(fd, (char *)to + done, size - done, at + (off_t)done);
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            return error_set_errno(err, ERROR_INTERNAL, "reading the edits");
        if (got == 0)
            return error_set(err, ERROR_INVALID, "the edits' memory ended early");
        done += (size_t)got;
    }
    return true;
}

/* The bytes of a memfd that can neither be written nor cut any more; 0 with an error. */
static size_t sealed_size(int fd, struct error *err)
{
    const size_t most = sizeof(uint32_t) + EDITS_MAX * sizeof(struct row) + FRONT_FILES_EDIT_MAX;
    const int wanted = F_SEAL_WRITE | F_SEAL_SHRINK;
    struct stat status;
    int seals = fcntl(fd, F_GET_SEALS);
    if (seals < 0 || (seals & wanted) != wanted || fstat(fd, &status) < 0)
        error_set(err, ERROR_INVALID, "the edits' memory is not sealed");
    else if (status.st_size <= (off_t)sizeof(uint32_t) || (uint64_t)status.st_size > most)
        error_set(err, ERROR_INVALID, "edits of %lld bytes", (long long)status.st_size);
    else
        return (size_t)status.st_size;
    return 0;
}

/* Points the edits at the texts that follow the rows, which must be used up. */
static bool point_edits(struct files_edit *edits, size_t count, const struct row *rows, const char *text, size_t size)
{
    for (size_t i = 0; i < count; i++) {
        if (rows[i].all > (ROW_ALL | ROW_OPTIONAL) || rows[i].old > size || rows[i].new > size - rows[i].old)
            return false;
        edits[i] = (struct files_edit){.old = {.data = text, .size = rows[i].old},
                                       .new = {.data = text + rows[i].old, .size = rows[i].new},
                                       .all = (rows[i].all & ROW_ALL) != 0,
                                       .optional = (rows[i].all & ROW_OPTIONAL) != 0};
        text += rows[i].old + rows[i].new;
        size -= rows[i].old + rows[i].new;
    }
    return size == 0;
}

bool front_files_edits_read(int fd, struct files_edit **edits, size_t *count, struct error *err)
{
    uint32_t rows;
    size_t size = sealed_size(fd, err);
    if (size == 0 || !read_at(fd, &rows, sizeof rows, 0, err))
        return false;
    size_t heads = sizeof rows + (size_t)rows * sizeof(struct row);
    if (rows == 0 || rows > EDITS_MAX || heads > size)
        return error_set(err, ERROR_INVALID, "1..%d edits", EDITS_MAX);
    AUTO_FREE struct row *table = memory_array(rows, sizeof *table);
    AUTO_FREE struct files_edit *held = memory_new(rows * sizeof *held + size - heads + 1);
    char *texts = (char *)(held + rows);
    if (!read_at(fd, table, rows * sizeof *table, sizeof rows, err) ||
        !read_at(fd, texts, size - heads, (off_t)heads, err))
        return false;
    if (!point_edits(held, rows, table, texts, size - heads))
        return error_set(err, ERROR_INVALID, "the edits' sizes are wrong");
    if (!count_texts(held, rows, err))
        return false;
    *edits = TAKE(held);
    *count = rows;
    return true;
}

/* virtiofs, in a virtual machine whose root file system is one, and what gVisor calls its gofer's files: what this
 * process itself runs from is no slower for it than what it is handed. Elsewhere it is FUSE, whose server may be
 * anybody. */
static bool is_as_own_root(const struct statfs *system)
{
    struct statfs root;
    return statfs("/", &root) == 0 && root.f_type == system->f_type;
}

bool front_files_descriptor_check(int fd, struct error *err)
{
    struct stat status;
    struct statfs system;
    int flags = fcntl(fd, F_GETFL);
    if (flags < 0 || (flags & O_PATH) || (flags & O_ACCMODE) != O_RDONLY || fstat(fd, &status) < 0 ||
        !S_ISREG(status.st_mode) || fstatfs(fd, &system) < 0)
        return error_set(err, ERROR_INVALID, "not a regular file open for reading alone");
    switch ((unsigned long)system.f_type) {
    case OVERLAYFS_SUPER_MAGIC:
    case TMPFS_MAGIC:
    case BTRFS_SUPER_MAGIC:
    case EXT4_SUPER_MAGIC:
    case XFS_SUPER_MAGIC:
        return true;
    case FUSE_SUPER_MAGIC:
    case V9FS_MAGIC:
        if (is_as_own_root(&system))
            return true;
        return error_set(err, ERROR_INVALID, "a file of FUSE or 9p");
    default:
        return error_set(err, ERROR_INVALID, "a file of file system %lx", (unsigned long)system.f_type);
    }
}
