/* copy_bytes.c - see copy_bytes.h. */
#include "sandboxd/helpers/files/copy_bytes.h"

#include "sandboxd/helpers/files/walk.h"
#include "shared/base/fd.h"
#include "shared/base/memory.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/fs.h>
#include <sys/ioctl.h>
#include <unistd.h>

#define PART_BYTES   (16 << 20) /* between looks at the front */
#define BUFFER_BYTES (256 << 10)
#define PSEUDO_BYTES (64 << 20)

/* Where copy_file_range cannot (two file systems, or none that has it). *offset moves on; it stays when `from` ends. */
static bool copy_by_hand(int from, int to, off_t *offset, size_t size, struct error *err)
{
    AUTO_FREE char *buffer = memory_resize(NULL, BUFFER_BYTES);
    while (size > 0) {
        ssize_t got = pread(from, buffer, size < BUFFER_BYTES ? size : BUFFER_BYTES, *offset);
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            return fail_errno(err, "reading the file");
        if (got == 0)
            return true;
        for (ssize_t done = 0; done < got;) {
            ssize_t put = pwrite(to, buffer + done, (size_t)(got - done), *offset);
            if (put < 0 && errno != EINTR)
                return fail_errno(err, "writing the copy");
            *offset += put > 0 ? put : 0;
            done += put > 0 ? put : 0;
        }
        size -= (size_t)got;
    }
    return true;
}

/* At most PART_BYTES at *offset; *by_hand remembers that it cannot be done otherwise. */
static bool copy_part(int from, int to, off_t *offset, off_t end, bool *by_hand, struct error *err)
{
    size_t size = end - *offset < PART_BYTES ? (size_t)(end - *offset) : PART_BYTES;
    if (*by_hand)
        return copy_by_hand(from, to, offset, size, err);
    off_t to_offset = *offset;
    ssize_t copied = copy_file_range(from, offset, to, &to_offset, size, 0);
    if (copied >= 0 || errno == EINTR)
        return true;
    if (errno == ENOSPC || errno == EDQUOT || errno == EIO || errno == EFBIG)
        return fail_errno(err, "writing the copy");
    *by_hand = true;
    return copy_by_hand(from, to, offset, size, err);
}

/* From where there is data up to the next hole. */
static bool copy_extent(const struct helper *helper, int from, int to, off_t *offset, off_t end, struct error *err)
{
    bool by_hand = false;
    while (*offset < end) {
        off_t before = *offset;
        if (!helper_is_wanted(helper, err) || !copy_part(from, to, offset, end, &by_hand, err))
            return false;
        /* copy_file_range says 0 also of what it cannot read (files whose size is a lie): reading decides. */
        if (*offset == before && by_hand)
            return true;
        by_hand = by_hand || *offset == before;
    }
    return true;
}

static bool copy_extents(const struct helper *helper, int from, off_t size, int to, struct error *err)
{
    off_t offset = 0;
    while (offset < size) {
        off_t data = lseek(from, offset, SEEK_DATA);
        if (data < 0 && errno == ENXIO)
            break;
        data = data < 0 ? offset : data;
        off_t end = lseek(from, data, SEEK_HOLE);
        end = end <= data || end > size ? size : end;
        offset = data < size ? data : size;
        if (!copy_extent(helper, from, to, &offset, end, err))
            return false;
        if (offset < end) /* it became shorter meanwhile */
            break;
    }
    struct stat now;
    if (fstat(from, &now) < 0)
        return fail_errno(err, "looking at the file");
    if (ftruncate(to, now.st_size < size ? now.st_size : size) < 0)
        return fail_errno(err, "writing the copy");
    return true;
}

static bool copy_pseudo(int from, int to, struct error *err)
{
    off_t offset = 0;
    if (!copy_by_hand(from, to, &offset, PSEUDO_BYTES + 1, err))
        return false;
    return offset <= PSEUDO_BYTES || error_set(err, ERROR_TOO_LARGE, "a file of /proc of more than 64 MiB");
}

bool copy_bytes(const struct helper *helper, int from, const struct stat *status, int to, struct error *err)
{
    if (status->st_size == 0)
        return !walk_is_pseudo(from) || copy_pseudo(from, to, err);
    if (ioctl(to, FICLONE, from) == 0)
        return true;
    return copy_extents(helper, from, status->st_size, to, err);
}

bool copy_attributes(int to, const struct stat *status, struct error *err)
{
    mode_t kept = status->st_uid == geteuid() ? 07777 : 01777;
    struct timespec times[2] = {{.tv_nsec = UTIME_OMIT}, status->st_mtim};
    if (fchmod(to, status->st_mode & kept) < 0 || futimens(to, times) < 0)
        return fail_errno(err, "giving the copy its mode and times");
    return true;
}
