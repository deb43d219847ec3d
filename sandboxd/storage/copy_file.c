#include "sandboxd/storage/copy_file.h"

#include "shared/base/fd.h"
#include "shared/base/memory.h"
#include "shared/base/text.h"

#include <endian.h>
#include <errno.h>
#include <linux/capability.h>
#include <string.h>
#include <sys/xattr.h>
#include <unistd.h>

enum { PIECE_BYTES = 256 * 1024, NAMES_BYTES = 65536, VALUE_BYTES = 65536 };

static const char CAPABILITY[] = "security.capability";

bool copy_fail(struct error *err, const char *what)
{
    return error_set_errno(err, errno == ENOSPC || errno == EDQUOT ? ERROR_DISK_FULL : ERROR_INTERNAL,
                           "copy a sandbox's files: %s", what);
}

/* --- bytes --- */

static bool copy_by_hand(int from, int to, off_t at, off_t end, struct error *err)
{
    AUTO_FREE char *piece = memory_new(PIECE_BYTES);
    while (at < end) {
        size_t most = end - at < PIECE_BYTES ? (size_t)(end - at) : PIECE_BYTES;
        ssize_t got = pread(from, piece, most, at);
        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0)
            return got == 0 || copy_fail(err, "read");
        if (lseek(to, at, SEEK_SET) < 0)
            return copy_fail(err, "seek");
        if (!fd_write_all(to, piece, (size_t)got, err))
            return false;
        at += got;
    }
    return true;
}

/* The kernel copies, and shares blocks where both are of one file system that can. */
static bool copy_range(int from, int to, off_t at, off_t end, struct error *err)
{
    off_t in = at, out = at;
    while (in < end) {
        ssize_t done = copy_file_range(from, &in, to, &out, (size_t)(end - in), 0);
        if (done < 0 && errno == EINTR)
            continue;
        if (done < 0 && (errno == ENOSPC || errno == EDQUOT || errno == EIO))
            return copy_fail(err, "write");
        if (done <= 0)
            return copy_by_hand(from, to, in, end, err);
    }
    return true;
}

bool copy_data(int from, int to, off_t size, struct error *err)
{
    off_t at = 0;
    if (ftruncate(to, size) < 0)
        return copy_fail(err, "set the size");
    while (at < size) {
        off_t data = lseek(from, at, SEEK_DATA);
        if (data < 0)
            return errno == ENXIO || copy_fail(err, "seek"); /* ENXIO: a hole to the end */
        off_t hole = lseek(from, data, SEEK_HOLE);
        if (hole < 0)
            return copy_fail(err, "seek");
        if (!copy_range(from, to, data, hole < size ? hole : size, err))
            return false;
        at = hole;
    }
    return true;
}

/* --- attributes --- */

/* A capability holds in the user namespace whose 0 is `rootid` (capabilities(7), version 3). One of another namespace
 * is not carried over. Root of the host is told as no rootid at all (version 2). */
static size_t map_capability(void *value, size_t size, uint32_t uid_from, uint32_t uid_to)
{
    struct vfs_ns_cap_data data = {0};
    if (size != XATTR_CAPS_SZ_2 && size != XATTR_CAPS_SZ_3)
        return 0;
    memcpy(&data, value, size);
    uint32_t root = size == XATTR_CAPS_SZ_3 ? le32toh(data.rootid) : 0;
    if (root != uid_from)
        return 0;
    uint32_t flags = le32toh(data.magic_etc) & ~VFS_CAP_REVISION_MASK;
    data.magic_etc = htole32(flags | (uid_to ? VFS_CAP_REVISION_3 : VFS_CAP_REVISION_2));
    data.rootid = htole32(uid_to);
    memcpy(value, &data, sizeof data);
    return uid_to ? XATTR_CAPS_SZ_3 : XATTR_CAPS_SZ_2;
}

static bool copy_attribute(int from, int to, const char *name, char *value, uint32_t uid_from, uint32_t uid_to,
                           struct error *err)
{
    bool is_capability = strcmp(name, CAPABILITY) == 0;
    if (!is_capability && !text_starts_with(name, "user."))
        return true;
    ssize_t got = fgetxattr(from, name, value, VALUE_BYTES);
    if (got < 0)
        return errno == ENODATA || copy_fail(err, "read an attribute");
    size_t size = is_capability ? map_capability(value, (size_t)got, uid_from, uid_to) : (size_t)got;
    if (is_capability && size == 0)
        return true;
    return fsetxattr(to, name, value, size, 0) == 0 || copy_fail(err, "set an attribute");
}

bool copy_attributes(int from, int to, uint32_t uid_from, uint32_t uid_to, struct error *err)
{
    char few[256];
    ssize_t size = flistxattr(from, few, 0);
    if (size <= 0)
        return size == 0 || errno == ENOTSUP || copy_fail(err, "list attributes");
    AUTO_FREE char *names = memory_new(NAMES_BYTES + 1), *value = memory_new(VALUE_BYTES);
    size = flistxattr(from, names, NAMES_BYTES);
    if (size < 0)
        return copy_fail(err, "list attributes");
    for (ssize_t at = 0; at < size; at += (ssize_t)strlen(names + at) + 1) {
        if (!copy_attribute(from, to, names + at, value, uid_from, uid_to, err))
            return false;
    }
    return true;
}
