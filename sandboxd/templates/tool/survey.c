#include "sandboxd/templates/tool/settle.h"

#include "shared/base/memory.h"
#include "shared/base/text.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { DISK_BLOCK = 512 };

/* A walk without recursion: the folders that are open, from the root down. */
struct walk {
    DIR *folders[TREE_DEPTH_MAX + 2];
    size_t depth;
    struct template_record *record;
    struct tree_limits limits;
};

static void walk_done(struct walk *walk)
{
    while (walk->depth > 0)
        closedir(walk->folders[--walk->depth]);
}

static bool enter(struct walk *walk, int at, const char *name, struct error *err)
{
    if (walk->depth == sizeof walk->folders / sizeof walk->folders[0])
        return error_set(err, ERROR_INVALID, "folder \"%.80s\" lies deeper than %d", name, TREE_DEPTH_MAX);
    int fd = openat(at, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    DIR *folder = fd < 0 ? NULL : fdopendir(fd);
    if (folder == NULL)
        return tree_fail(err, "read folder", name);
    walk->folders[walk->depth++] = folder;
    return true;
}

static bool look_at(struct walk *walk, int at, const char *name, struct error *err)
{
    struct stat status;
    if (fstatat(at, name, &status, AT_SYMLINK_NOFOLLOW) < 0)
        return tree_fail(err, "look at", name);
    if (S_ISCHR(status.st_mode) || S_ISBLK(status.st_mode))
        return error_set(err, ERROR_INVALID, "\"%.80s\" is a device", name);
    if (S_ISREG(status.st_mode) && (status.st_mode & (S_ISUID | S_ISGID)) &&
        fchmodat(at, name, status.st_mode & 01777, 0) < 0)
        return tree_fail(err, "chmod", name);
    walk->record->files++;
    /* A file of several names counts once, roughly: by its share. */
    walk->record->size_bytes +=
        (uint64_t)status.st_blocks * DISK_BLOCK / (S_ISDIR(status.st_mode) ? 1 : status.st_nlink);
    if (walk->record->files > walk->limits.entries || walk->record->size_bytes > walk->limits.bytes)
        return error_set(err, ERROR_TOO_LARGE, "it has more than %" PRIu64 " files or %" PRIu64 " MiB (--max-mb)",
                         walk->limits.entries, walk->limits.bytes >> 20);
    return !S_ISDIR(status.st_mode) || enter(walk, at, name, err);
}

bool settle_survey(struct tree *tree, struct template_record *record, struct error *err)
{
    __attribute__((cleanup(walk_done))) struct walk walk = {.record = record, .limits = tree->limits};
    record->size_bytes = 0;
    record->files = 0;
    if (!enter(&walk, tree->root, ".", err))
        return false;
    while (walk.depth > 0) {
        DIR *folder = walk.folders[walk.depth - 1];
        errno = 0;
        const struct dirent *entry = readdir(folder);
        if (entry == NULL && errno)
            return tree_fail(err, "read", "a folder");
        if (entry == NULL) {
            closedir(folder);
            walk.depth--;
        } else if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0 &&
                   !look_at(&walk, dirfd(folder), entry->d_name, err)) {
            return false;
        }
    }
    return true;
}
