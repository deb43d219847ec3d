#include "sandboxd/templates/tool/layer_entry.h"

#include "shared/base/fd.h"
#include "shared/base/text.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

/* What is made, and where. */
struct place {
    struct tree *tree;
    int parent; /* borrowed */
    const char *path, *base;
};

/* --- what all kinds have --- */

static bool set_owner(const struct place *place, struct archive_entry *entry, struct error *err)
{
    uid_t uid = (uid_t)archive_entry_uid(entry);
    gid_t gid = (gid_t)archive_entry_gid(entry);
    if (fchownat(place->parent, place->base, uid, gid, AT_SYMLINK_NOFOLLOW) < 0)
        return tree_fail(err, "chown", place->path);
    return true;
}

static bool set_times(const struct place *place, struct archive_entry *entry, struct error *err)
{
    struct timespec times[2] = {{.tv_nsec = UTIME_OMIT}, {.tv_nsec = UTIME_OMIT}};
    long nsec = archive_entry_mtime_nsec(entry);
    if (!archive_entry_mtime_is_set(entry) || nsec < 0 || nsec >= 1000000000)
        return true;
    times[1] = (struct timespec){.tv_sec = archive_entry_mtime(entry), .tv_nsec = nsec};
    if (utimensat(place->parent, place->base, times, AT_SYMLINK_NOFOLLOW) < 0)
        return tree_fail(err, "set the time of", place->path);
    return true;
}

/* Those that mean something to the kernel (security.*, system.*, overlayfs's own) are not the image's to give. */
static bool is_plain_attribute(const char *name)
{
    return text_starts_with(name, "user.") && !text_starts_with(name, "user.overlay.") &&
           strlen(name) <= XATTR_NAME_MAX;
}

/* What the file system has no place for is left out. */
static void set_attributes(int fd, struct archive_entry *entry)
{
    const char *name = NULL;
    const void *value = NULL;
    size_t size = 0;
    archive_entry_xattr_reset(entry);
    while (archive_entry_xattr_next(entry, &name, &value, &size) == ARCHIVE_OK && name) {
        if (is_plain_attribute(name) && size <= XATTR_SIZE_MAX)
            (void)!fsetxattr(fd, name, value, size, 0);
    }
}

/* --- files --- */

static bool write_block(const struct place *place, int fd, const char *data, size_t size, la_int64_t at,
                        struct error *err)
{
    if (!tree_count_bytes(place->tree, size, err))
        return false;
    while (size > 0) {
        ssize_t written = pwrite(fd, data, size, at);
        if (written < 0 && errno == EINTR)
            continue;
        if (written <= 0)
            return tree_fail(err, "write", place->path);
        data += written;
        at += written;
        size -= (size_t)written;
    }
    return true;
}

/* Holes stay holes; what lies behind the last block is one too. */
static bool write_data(const struct place *place, struct archive *tar, int fd, la_int64_t length, struct error *err)
{
    la_int64_t end = 0;
    for (;;) {
        const void *data = NULL;
        size_t size = 0;
        la_int64_t at = 0;
        int status = archive_read_data_block(tar, &data, &size, &at);
        if (status == ARCHIVE_EOF)
            break;
        if (status < ARCHIVE_WARN || at < end || at > length || (la_int64_t)size > length - at)
            return error_set(err, ERROR_INVALID, "its content is cut or damaged");
        if (!write_block(place, fd, data, size, at, err))
            return false;
        end = at + (la_int64_t)size;
    }
    if (end < length && ftruncate(fd, length) < 0)
        return tree_fail(err, "extend", place->path);
    return true;
}

static bool make_file(const struct place *place, struct archive *tar, struct archive_entry *entry, struct error *err)
{
    la_int64_t length = archive_entry_size_is_set(entry) ? archive_entry_size(entry) : 0;
    if (length < 0 || (uint64_t)length > place->tree->limits.bytes)
        return error_set(err, ERROR_TOO_LARGE, "it has %" PRId64 " bytes; all may have %" PRIu64 " MiB (--max-mb)",
                         (int64_t)length, place->tree->limits.bytes >> 20);
    AUTO_FD int fd = openat(place->parent, place->base, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (fd < 0)
        return tree_fail(err, "create", place->path);
    if (!write_data(place, tar, fd, length, err))
        return false;
    set_attributes(fd, entry);
    if (!set_owner(place, entry, err))
        return false;
    if (fchmod(fd, archive_entry_perm(entry) & 0777) < 0)
        return tree_fail(err, "chmod", place->path);
    return true;
}

/* --- folders, links, pipes --- */

static bool make_folder(const struct place *place, struct archive_entry *entry, struct error *err)
{
    if (mkdirat(place->parent, place->base, 0700) < 0 && errno != EEXIST)
        return tree_fail(err, "make folder", place->path);
    AUTO_FD int fd = openat(place->parent, place->base, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0)
        return tree_fail(err, "open folder", place->path);
    set_attributes(fd, entry);
    if (!set_owner(place, entry, err))
        return false;
    if (fchmod(fd, archive_entry_perm(entry) & 03777) < 0)
        return tree_fail(err, "chmod", place->path);
    return true;
}

/* A link's text is never followed by us but in the tree; one that climbs above its root was meant for another. */
static bool climbs_out(const char *path, const char *target)
{
    long depth = 0;
    if (target[0] == '/')
        return false;
    for (const char *at = path; *at; at++)
        depth += *at == '/';
    for (const char *part = target; *part; part += strspn(part, "/")) {
        size_t length = strcspn(part, "/");
        if (length == 2 && memcmp(part, "..", 2) == 0)
            depth--;
        else if (length != 1 || part[0] != '.')
            depth++;
        if (depth < 0)
            return true;
        part += length;
    }
    return false;
}

static bool make_link(const struct place *place, struct archive_entry *entry, struct error *err)
{
    const char *target = archive_entry_symlink(entry);
    if (target == NULL || target[0] == '\0' || strlen(target) >= PATH_MAX)
        return error_set(err, ERROR_INVALID, "it links to nothing, or to a name longer than %d", PATH_MAX - 1);
    if (climbs_out(place->path, target))
        return error_set(err, ERROR_INVALID, "it links out of the tree, to \"%.80s\"", target);
    if (symlinkat(target, place->parent, place->base) < 0)
        return tree_fail(err, "link", place->path);
    return set_owner(place, entry, err);
}

static bool make_pipe(const struct place *place, struct archive_entry *entry, struct error *err)
{
    if (mkfifoat(place->parent, place->base, 0600) < 0)
        return tree_fail(err, "make pipe", place->path);
    if (!set_owner(place, entry, err))
        return false;
    if (fchmodat(place->parent, place->base, archive_entry_perm(entry) & 0777, 0) < 0)
        return tree_fail(err, "chmod", place->path);
    return true;
}

static bool make_kind(const struct place *place, struct archive *tar, struct archive_entry *entry, struct error *err)
{
    switch (archive_entry_filetype(entry)) {
    case AE_IFREG:
        return make_file(place, tar, entry, err);
    case AE_IFDIR:
        return make_folder(place, entry, err);
    case AE_IFLNK:
        return make_link(place, entry, err);
    case AE_IFIFO:
        return make_pipe(place, entry, err);
    case AE_IFCHR:
    case AE_IFBLK:
        return error_set(err, ERROR_INVALID, "it is a device; an image may not bring any");
    default:
        return error_set(err, ERROR_INVALID, "it is neither file, folder, link nor pipe");
    }
}

/* --- hard links --- */

/* The other name's folder is opened apart: the tree keeps only one. */
static int open_link_target(const struct place *place, const char *path, struct error *err)
{
    int parent = tree_find_parent(place->tree, path, err);
    int own = parent < 0 ? -1 : fcntl(parent, F_DUPFD_CLOEXEC, 0);
    if (parent >= 0 && own < 0)
        tree_fail(err, "keep the folder of", path);
    return own;
}

static bool make_hard_link(struct tree *tree, const char *path, const char *target, struct error *err)
{
    char other[TREE_PATH_BYTES];
    struct stat status;
    const struct place place = {.tree = tree, .path = path};
    if (!tree_path(target, other, err))
        return error_prefix(err, "the name it is a hard link to, \"%.80s\"", target);
    if (strcmp(other, path) == 0)
        return error_set(err, ERROR_INVALID, "it is a hard link to itself");
    AUTO_FD int from = open_link_target(&place, other, err);
    if (from < 0 || fstatat(from, tree_base(other), &status, AT_SYMLINK_NOFOLLOW) < 0)
        return error_set(err, ERROR_INVALID, "it is a hard link to \"%.80s\", which is not there", target);
    if (S_ISDIR(status.st_mode))
        return error_set(err, ERROR_INVALID, "it is a hard link to a folder, \"%.80s\"", target);
    int to = tree_parent(tree, path, err);
    if (to < 0 || !tree_remove(tree, to, tree_base(path), err))
        return false;
    if (linkat(from, tree_base(other), to, tree_base(path), 0) < 0)
        return tree_fail(err, "make hard link", path);
    return tree_touch(tree, to, tree_base(path), err);
}

/* --- one entry --- */

static bool check_owner(struct archive_entry *entry, struct error *err)
{
    la_int64_t uid = archive_entry_uid(entry);
    la_int64_t gid = archive_entry_gid(entry);
    if (uid < 0 || uid > TREE_ID_MAX || gid < 0 || gid > TREE_ID_MAX)
        return error_set(err, ERROR_INVALID, "its owner is %" PRId64 ":%" PRId64 "; ids are 0..65535", (int64_t)uid,
                         (int64_t)gid);
    return true;
}

static bool set_root(const struct tree *tree, struct archive_entry *entry, struct error *err)
{
    if (archive_entry_filetype(entry) != AE_IFDIR || archive_entry_hardlink(entry))
        return error_set(err, ERROR_INVALID, "the root can only be a folder");
    if (fchown(tree->root, (uid_t)archive_entry_uid(entry), (gid_t)archive_entry_gid(entry)) < 0 ||
        fchmod(tree->root, (archive_entry_perm(entry) & 01777) | 0555) < 0)
        return tree_fail(err, "chmod", "/");
    return true;
}

/* A folder stays a folder, with what it holds; all else makes way. */
static bool make_way(const struct place *place, struct archive_entry *entry, struct error *err)
{
    struct stat status;
    if (fstatat(place->parent, place->base, &status, AT_SYMLINK_NOFOLLOW) < 0)
        return errno == ENOENT || tree_fail(err, "look at", place->path);
    if (S_ISDIR(status.st_mode) && archive_entry_filetype(entry) == AE_IFDIR)
        return true;
    return tree_remove(place->tree, place->parent, place->base, err);
}

bool layer_entry_make(struct tree *tree, struct archive *tar, struct archive_entry *entry, const char *path,
                      struct error *err)
{
    const char *hard_link = archive_entry_hardlink(entry);
    if (!tree_count_entry(tree, err) || !check_owner(entry, err))
        return false;
    if (path[0] == '\0')
        return set_root(tree, entry, err);
    if (hard_link)
        return make_hard_link(tree, path, hard_link, err);
    struct place place = {.tree = tree, .path = path, .base = tree_base(path)};
    place.parent = tree_parent(tree, path, err);
    return place.parent >= 0 && make_way(&place, entry, err) && make_kind(&place, tar, entry, err) &&
           set_times(&place, entry, err) && tree_touch(tree, place.parent, place.base, err);
}
