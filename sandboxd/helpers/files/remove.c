/* remove.c - REMOVE: a name, or all below it, of any depth and number, with a bounded number of descriptors. */
#include "sandboxd/helpers/files/files_operations.h"

#include "shared/base/beneath.h"
#include "shared/base/memory.h"
#include "shared/base/text.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>

enum {
    STREAMS_MAX = 32, /* open folders; further up they are found again by ".." */
    TRIES = 16        /* somebody goes on filling it */
};

/* A folder on the way down. Above the last STREAMS_MAX only what tells that ".." is still the same. */
struct level {
    DIR *stream;
    char *name; /* in the folder above, while its stream is open */
    dev_t device;
    ino_t inode;
    int tries;
};

struct removal {
    struct level *levels;
    size_t count, capacity;
};

static void level_close(struct level *level)
{
    if (level->stream)
        closedir(level->stream);
    free(level->name);
    level->stream = NULL;
    level->name = NULL;
}

static void removal_done(struct removal *removal)
{
    for (size_t i = 0; i < removal->count; i++)
        level_close(&removal->levels[i]);
    free(removal->levels);
}

/* NO_XDEV: what is mounted there is not ours to remove. */
static int open_near(int folder, const char *name, struct error *err)
{
    const struct open_how how = {.flags = O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC,
                                 .resolve = RESOLVE_NO_XDEV | RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS};
    int fd = beneath_open(folder, name, &how);
    if (fd < 0 && errno == EXDEV)
        error_set_errno(err, ERROR_CONFLICT, "another file system is mounted below it");
    else if (fd < 0)
        fail_errno(err, "opening a folder to empty it");
    return fd;
}

static bool open_level(struct level *level, int fd, struct error *err)
{
    struct stat status;
    AUTO_FD int held = fd;
    if (fstat(held, &status) < 0)
        return fail_errno(err, "fstat");
    if (level->inode != 0 && (level->device != status.st_dev || level->inode != status.st_ino))
        return error_set(err, ERROR_CONFLICT, "the folders were moved while they were removed");
    level->stream = fdopendir(held);
    if (level->stream == NULL)
        return fail_errno(err, "reading a folder");
    (void)TAKE_FD(held); /* the stream's now */
    level->device = status.st_dev;
    level->inode = status.st_ino;
    return true;
}

static bool descend(struct removal *removal, int folder, const char *name, struct error *err)
{
    if (removal->count == removal->capacity) {
        removal->capacity = removal->capacity ? removal->capacity * 2 : STREAMS_MAX;
        removal->levels = memory_resize(removal->levels, removal->capacity * sizeof *removal->levels);
    }
    struct level *level = &removal->levels[removal->count];
    *level = (struct level){0};
    int fd = open_near(folder, name, err);
    if (fd < 0 || !open_level(level, fd, err))
        return false;
    level->name = memory_string(name);
    removal->count++;
    if (removal->count > STREAMS_MAX)
        level_close(&removal->levels[removal->count - 1 - STREAMS_MAX]);
    return true;
}

/* The folder above the last one, open again. */
static bool ascend(struct removal *removal, struct error *err)
{
    struct level *last = &removal->levels[removal->count - 1], *above = last - 1;
    if (above->stream != NULL)
        return true;
    int fd = open_near(dirfd(last->stream), "..", err);
    return fd >= 0 && open_level(above, fd, err);
}

/* The last folder was read to its end: out of it, and away with it. One whose name is not known any more (its stream
 * had been closed above) is met again when the folder above is read. */
static bool leave(struct removal *removal, int folder, struct error *err)
{
    struct level *last = &removal->levels[removal->count - 1];
    if (removal->count > 1 && !ascend(removal, err))
        return false;
    int above = removal->count > 1 ? dirfd((last - 1)->stream) : folder;
    if (last->name == NULL || unlinkat(above, last->name, AT_REMOVEDIR) == 0 || errno == ENOENT) {
        level_close(last);
        removal->count--;
        return true;
    }
    if (errno != ENOTEMPTY || ++last->tries == TRIES)
        return fail_errno(err, "removing a folder");
    rewinddir(last->stream);
    return true;
}

static bool is_dots(const char *name)
{
    return text_equal(name, ".") || text_equal(name, "..");
}

/* False with ENOTEMPTY set: a folder to descend into. */
static bool unlink_any(int folder, const char *name, unsigned char type)
{
    if (type != DT_DIR && unlinkat(folder, name, 0) == 0)
        return true;
    if (type != DT_DIR && errno != EISDIR && errno != EPERM)
        return errno == ENOENT;
    int first = errno;
    if (unlinkat(folder, name, AT_REMOVEDIR) == 0 || errno == ENOENT)
        return true;
    if (errno == ENOTDIR && type != DT_DIR)
        errno = first; /* EPERM was meant */
    else if (errno == ENOTDIR)
        return unlinkat(folder, name, 0) == 0 || errno == ENOENT;
    return false;
}

static bool empty(struct removal *removal, int folder, struct error *err)
{
    while (removal->count > 0) {
        DIR *stream = removal->levels[removal->count - 1].stream;
        errno = 0;
        const struct dirent *entry = readdir(stream);
        if (entry == NULL && errno != 0)
            return fail_errno(err, "reading a folder");
        bool goes_on = true;
        if (entry == NULL)
            goes_on = leave(removal, folder, err);
        else if (!is_dots(entry->d_name) && !unlink_any(dirfd(stream), entry->d_name, entry->d_type))
            goes_on = errno == ENOTEMPTY || errno == EEXIST ? descend(removal, dirfd(stream), entry->d_name, err)
                                                            : fail_errno(err, "removing what is below it");
        if (!goes_on)
            return false;
    }
    return true;
}

bool remove_entry(int folder, const char *name, bool is_recursive, struct error *err)
{
    errno = 0;
    if (unlink_any(folder, name, DT_UNKNOWN))
        return errno != ENOENT || fail_errno(err, "remove");
    if (errno != ENOTEMPTY && errno != EEXIST)
        return fail_errno(err, "remove");
    if (!is_recursive)
        return error_set_errno(err, ERROR_CONFLICT, "the folder is not empty");
    struct removal removal __attribute__((cleanup(removal_done))) = {0};
    if (!descend(&removal, folder, name, err) || !empty(&removal, folder, err))
        return false;
    /* It is still there when it was so deep that its own name was given up. */
    return unlinkat(folder, name, AT_REMOVEDIR) == 0 || errno == ENOENT || fail_errno(err, "removing the folder");
}

bool files_remove(struct helper *helper, struct error *err)
{
    const struct files_request *request = helper->request;
    AUTO_PLACE place = PLACE_NONE;
    struct stat status;
    struct error why = {0};
    bool is_recursive = request->flags & FILES_RECURSIVE;
    if ((is_recursive && !helper_end_with_front(helper, err)) ||
        !resolve_parent(helper, request->root, request->path, &place, err))
        return false;
    AUTO_FD int lock = -1;
    if (request->flags & (FILES_IF_MATCH | FILES_IF_ANY))
        lock = condition_lock(helper, &place, &why);
    if (why.kind != ERROR_NONE) {
        *err = why;
        return false;
    }
    if (!condition_check(request, &place, &status, err))
        return false;
    if ((request->flags & FILES_NO_FOLDERS) && S_ISDIR(status.st_mode))
        return error_set(err, ERROR_CONFLICT, "is a folder");
    if (request->flags & FILES_NO_FOLDERS) /* never rmdir(2), also when it became one */
        return unlinkat(place.folder, place.name, 0) == 0 || fail_errno(err, "remove");
    return remove_entry(place.folder, place.name, is_recursive, err);
}
