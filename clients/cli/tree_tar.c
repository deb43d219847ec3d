/* tree_tar.c - a tree as a tar (libarchive), made and taken apart by a child of ours at the other end of a pipe, so
 * that neither libcurl nor libarchive has to wait for the other inside a callback. */
#include "clients/cli/tree.h"

#include "clients/cli/local_file.h"

#include "shared/base/fd.h"
#include "shared/base/memory.h"
#include "shared/base/text.h"

#include <archive.h>
#include <archive_entry.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

enum { BLOCK_BYTES = 256 * 1024 };

/* A child and the two pipes to it: the tar, and what it has to say at its end. */
struct helper {
    pid_t pid;
    int tar, word;
};

/* What a child says last, whole in one write. */
struct last_word {
    struct error error; /* kind NONE: all went well */
    size_t skipped;
};

static _Noreturn void child_end(int word, const struct last_word *last)
{
    ssize_t told = write(word, last, sizeof *last);
    _exit(told == (ssize_t)sizeof *last ? 0 : 1);
}

/* In the child `pid` is 0 and `tar` its end of the pipe; `reads`: the child reads the tar. */
static bool helper_fork(struct helper *helper, bool reads, struct error *err)
{
    int tar[2], word[2];
    if (pipe2(tar, O_CLOEXEC) != 0)
        return error_set_errno(err, ERROR_NO_CAPACITY, "pipe");
    if (pipe2(word, O_CLOEXEC) != 0) {
        close(tar[0]);
        close(tar[1]);
        return error_set_errno(err, ERROR_NO_CAPACITY, "pipe");
    }
    pid_t pid = fork();
    bool is_child = pid == 0;
    int ours = is_child == reads ? 0 : 1;
    *helper = (struct helper){.pid = pid, .tar = tar[ours], .word = word[is_child ? 1 : 0]};
    close(tar[1 - ours]);
    close(word[is_child ? 0 : 1]);
    if (pid >= 0)
        return true;
    close(helper->tar);
    close(helper->word);
    return error_set_errno(err, ERROR_NO_CAPACITY, "fork");
}

/* The transfer is over: how the child fared. */
static bool helper_finish(struct helper *helper, bool is_transferred, struct last_word *last, struct error *err)
{
    close(helper->tar); /* what did not come whole ends the child, and it takes away the file it was at */
    struct error ignored = {0};
    bool told = fd_read_exact(helper->word, last, sizeof *last, &ignored);
    close(helper->word);
    while (waitpid(helper->pid, NULL, 0) < 0 && errno == EINTR)
        ;
    if (told && last->error.kind != ERROR_NONE && (is_transferred || err->kind != ERROR_GONE)) {
        *err = last->error; /* the cause; the broken transfer came of it */
        return false;
    }
    if (!is_transferred)
        return false;
    return told || error_set(err, ERROR_INTERNAL, "the archive's other end was lost");
}

static bool fail(struct archive *archive, const char *what, struct error *err)
{
    const char *why = archive_error_string(archive);
    return error_set(err, archive_errno(archive) == ENOSPC ? ERROR_DISK_FULL : ERROR_INTERNAL, "%.120s: %.100s", what,
                     why ? why : "libarchive failed");
}

/* ---- sending ---- */

static bool send_bytes(struct archive *archive, int file, uint64_t size, const char *path, struct error *err)
{
    AUTO_FREE char *block = memory_new(BLOCK_BYTES);
    while (size > 0) {
        ssize_t got = read(file, block, size < BLOCK_BYTES ? (size_t)size : BLOCK_BYTES);
        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0)
            return error_set(err, ERROR_CONFLICT, "%.160s changed while it was sent", path);
        if (archive_write_data(archive, block, (size_t)got) < 0)
            return fail(archive, path, err);
        size -= (uint64_t)got;
    }
    return true;
}

static bool send_entry(struct archive *archive, struct archive_entry *to, int folder, const struct remote_entry *entry,
                       struct error *err)
{
    AUTO_FD int file = -1;
    uint64_t size = 0;
    if (entry->kind == REMOTE_FILE) {
        struct stat status;
        file = openat(folder, entry->path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
        if (file < 0 || fstat(file, &status) != 0)
            return error_set_errno(err, ERROR_FORBIDDEN, "%.160s", entry->path);
        if (!S_ISREG(status.st_mode))
            return error_set(err, ERROR_CONFLICT, "%.160s changed while it was sent", entry->path);
        size = (uint64_t)status.st_size;
    }
    archive_entry_clear(to);
    archive_entry_set_pathname(to, entry->path);
    archive_entry_set_filetype(to, entry->kind == REMOTE_FILE     ? AE_IFREG
                                   : entry->kind == REMOTE_FOLDER ? AE_IFDIR
                                                                  : AE_IFLNK);
    archive_entry_set_perm(to, entry->mode & 0777U);
    struct timespec time = local_file_time(entry->mtime_ns);
    archive_entry_set_mtime(to, time.tv_sec, time.tv_nsec);
    archive_entry_set_size(to, (la_int64_t)size);
    if (entry->kind == REMOTE_LINK)
        archive_entry_set_symlink(to, entry->target);
    if (archive_write_header(archive, to) != ARCHIVE_OK)
        return fail(archive, entry->path, err);
    return send_bytes(archive, file, size, entry->path, err);
}

static _Noreturn void send_as_child(const struct helper *child, const char *local, const struct remote_entry *entries,
                                    size_t count)
{
    struct last_word last = {0};
    AUTO_FD int folder = open(local, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    struct archive *archive = archive_write_new();
    struct archive_entry *entry = archive_entry_new();
    bool good = folder >= 0 || error_set_errno(&last.error, ERROR_NOT_FOUND, "%s", local);
    archive_write_set_format_pax(archive); /* names of any bytes and length, times to the nanosecond */
    archive_write_set_options(archive, "hdrcharset=BINARY");
    archive_write_set_bytes_per_block(archive, BLOCK_BYTES);
    archive_write_set_bytes_in_last_block(archive, 1);
    if (good && archive_write_open_fd(archive, child->tar) != ARCHIVE_OK)
        good = fail(archive, "tar", &last.error);
    for (size_t i = 0; good && i < count; i++)
        good = send_entry(archive, entry, folder, &entries[i], &last.error);
    if (good && archive_write_close(archive) != ARCHIVE_OK)
        good = fail(archive, "tar", &last.error);
    if (!good)
        archive_write_fail(archive);
    archive_entry_free(entry);
    archive_write_free(archive);
    child_end(child->word, &last);
}

static ssize_t read_pipe(void *cookie, void *to, size_t size, struct error *err)
{
    const int *fd = cookie;
    ssize_t got;
    do
        got = read(*fd, to, size);
    while (got < 0 && errno == EINTR);
    return got < 0 ? error_set_errno(err, ERROR_INTERNAL, "reading the archive") - 1 : got;
}

bool tree_send(struct remote_files *files, const char *local, const char *remote, const struct remote_entry *entries,
               size_t count, struct error *err)
{
    struct helper helper;
    if (!helper_fork(&helper, false, err))
        return false;
    if (helper.pid == 0)
        send_as_child(&helper, local, entries, count);
    struct last_word last = {0};
    bool sent = remote_files_unpack(files, remote, read_pipe, &helper.tar, err);
    return helper_finish(&helper, sent, &last, err);
}

/* ---- fetching ---- */

/* Whether it may be written below the folder, its mode made harmless. */
static bool is_wanted(struct archive_entry *entry)
{
    const char *target = archive_entry_symlink(entry), *path = archive_entry_pathname(entry);
    unsigned type = archive_entry_filetype(entry);
    if (path && archive_entry_hardlink(entry))
        return true;
    if (!path || (type != AE_IFREG && type != AE_IFDIR && type != AE_IFLNK))
        return false;
    archive_entry_set_perm(entry, archive_entry_perm(entry) & local_file_mask());
    while (text_starts_with(path, "./"))
        path += 2;
    return type != AE_IFLNK || (target && tree_link_stays(path, target));
}

static bool write_at(int fd, const char *data, size_t size, la_int64_t offset, const char *path, struct error *err)
{
    while (size > 0) {
        ssize_t put = pwrite(fd, data, size, offset);
        if (put < 0 && errno != EINTR)
            return error_set_errno(err, errno == ENOSPC || errno == EDQUOT ? ERROR_DISK_FULL : ERROR_INTERNAL, "%.160s",
                                   path);
        size_t done = put > 0 ? (size_t)put : 0;
        data += done;
        size -= done;
        offset += (la_int64_t)done;
    }
    return true;
}

/* libarchive would write files where they lie, and a half one would stay. */
static bool fetch_file(struct archive *from, struct archive_entry *entry, int folder, struct error *err)
{
    const char *path = archive_entry_pathname(entry);
    const struct timespec time = {.tv_sec = archive_entry_mtime(entry), .tv_nsec = archive_entry_mtime_nsec(entry)};
    AUTO_LOCAL_FILE file = {0};
    if (!local_file_begin(&file, folder, path, err))
        return false;
    const void *block;
    size_t size;
    la_int64_t offset;
    int got;
    while ((got = archive_read_data_block(from, &block, &size, &offset)) == ARCHIVE_OK) {
        if (!write_at(file.fd, block, size, offset, path, err))
            return false;
    }
    if (got != ARCHIVE_EOF)
        return fail(from, path, err);
    if (ftruncate(file.fd, archive_entry_size(entry)) != 0) /* a hole at its end is in no block */
        return error_set_errno(err, ERROR_INTERNAL, "%.160s", path);
    return local_file_finish(&file, archive_entry_perm(entry), &time, err);
}

/* Another name of a file that came before, or that was left out. Only a name is made: nothing is written through it. */
static bool fetch_hard_link(const char *path, const char *target, int folder, size_t *skipped, struct error *err)
{
    const char *old_name = NULL, *new_name = NULL;
    AUTO_FD int from = local_file_parent(folder, target, &old_name, err);
    AUTO_FD int to = from < 0 ? -1 : local_file_parent(folder, path, &new_name, err);
    if (to < 0)
        return false;
    if (unlinkat(to, new_name, 0) != 0 && errno != ENOENT)
        return error_set_errno(err, ERROR_CONFLICT, "%.160s", path);
    bool is_linked = linkat(from, old_name, to, new_name, 0) == 0;
    *skipped += !is_linked && errno == ENOENT;
    return is_linked || errno == ENOENT || error_set_errno(err, ERROR_INTERNAL, "%.160s", path);
}

static bool fetch_entry(struct archive *from, struct archive *to, struct archive_entry *entry, int folder,
                        struct error *err)
{
    if (archive_entry_filetype(entry) == AE_IFREG)
        return fetch_file(from, entry, folder, err);
    return (archive_write_header(to, entry) >= ARCHIVE_WARN && archive_write_finish_entry(to) >= ARCHIVE_WARN) ||
           fail(to, archive_entry_pathname(entry), err);
}

static bool fetch_entries(struct archive *from, struct archive *to, int folder, size_t *skipped, struct error *err)
{
    struct archive_entry *entry;
    for (;;) {
        int got = archive_read_next_header(from, &entry);
        if (got == ARCHIVE_EOF)
            return true;
        if (got < ARCHIVE_WARN)
            return fail(from, "the archive", err);
        const char *hard_link = archive_entry_hardlink(entry);
        if (!is_wanted(entry))
            ++*skipped;
        else if (hard_link ? !fetch_hard_link(archive_entry_pathname(entry), hard_link, folder, skipped, err)
                           : !fetch_entry(from, to, entry, folder, err))
            return false;
    }
}

static _Noreturn void fetch_as_child(const struct helper *child, const char *local)
{
    struct last_word last = {0};
    AUTO_FD int folder = open(local, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    struct archive *from = archive_read_new(), *to = archive_write_disk_new();
    archive_read_support_format_tar(from);
    archive_read_set_options(from, "hdrcharset=BINARY");
    archive_write_disk_set_options(to, ARCHIVE_EXTRACT_TIME | ARCHIVE_EXTRACT_PERM | ARCHIVE_EXTRACT_UNLINK |
                                           ARCHIVE_EXTRACT_SECURE_SYMLINKS | ARCHIVE_EXTRACT_SECURE_NODOTDOT |
                                           ARCHIVE_EXTRACT_SECURE_NOABSOLUTEPATHS);
    if (folder < 0 || fchdir(folder) != 0)
        (void)error_set_errno(&last.error, ERROR_NOT_FOUND, "%s", local);
    else if (archive_read_open_fd(from, child->tar, BLOCK_BYTES) != ARCHIVE_OK)
        (void)fail(from, "the archive", &last.error);
    else if (fetch_entries(from, to, folder, &last.skipped, &last.error) && archive_write_close(to) < ARCHIVE_WARN)
        (void)fail(to, local, &last.error);
    archive_read_free(from);
    archive_write_free(to);
    child_end(child->word, &last);
}

static bool write_pipe(void *cookie, const void *data, size_t size, struct error *err)
{
    const int *fd = cookie;
    return fd_write_all(*fd, data, size, err);
}

bool tree_fetch(struct remote_files *files, const char *remote, const char *local, size_t *skipped, struct error *err)
{
    struct helper helper;
    if (!fd_make_folders(local, 0777, err) || !helper_fork(&helper, true, err))
        return false;
    if (helper.pid == 0)
        fetch_as_child(&helper, local);
    struct last_word last = {0};
    bool fetched = remote_files_pack(files, remote, write_pipe, &helper.tar, err);
    bool good = helper_finish(&helper, fetched, &last, err);
    *skipped += last.skipped;
    return good;
}
