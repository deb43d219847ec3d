/* files.c - what a sandbox has on its disk that its template has not: the upper layers of its overlays. */
#include "sandboxd/evidence/page.h"
#include "shared/base/fd.h"
#include "shared/base/memory.h"

#include <dirent.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/xattr.h>
#include <unistd.h>

struct walk {
    struct page page;
    uint64_t looks;
    char path[PATH_MAX]; /* inside; of what is looked at */
};

static const char *type_of(const struct stat *status)
{
    switch (status->st_mode & S_IFMT) {
    case S_IFREG:
        return "file";
    case S_IFDIR:
        return "dir";
    case S_IFLNK:
        return "symlink";
    case S_IFIFO:
        return "fifo";
    case S_IFSOCK:
        return "socket";
    case S_IFCHR: /* a whiteout: overlayfs.rst, "whiteouts and opaque directories" */
        return status->st_rdev == makedev(0, 0) ? "deleted" : "char";
    default:
        return "block";
    }
}

/* A folder that hides what lies below it in the template. */
static bool is_opaque(int folder)
{
    static const char *const NAMES[] = {"trusted.overlay.opaque", "user.overlay.opaque"};
    for (size_t i = 0; i < sizeof NAMES / sizeof *NAMES; i++) {
        char value[4] = "";
        if (fgetxattr(folder, NAMES[i], value, sizeof value) > 0 && value[0] == 'y')
            return true;
    }
    return false;
}

static json_t *describe(const struct walk *walk, const struct stat *status, int folder, const char *name, int opened)
{
    char mode[8], target[PATH_MAX];
    const char *type = type_of(status);
    json_t *item = json_pack("{s:o, s:s}", "path", page_text(walk->path, strlen(walk->path)), "type", type);
    if (strcmp(type, "deleted") == 0)
        return item;
    snprintf(mode, sizeof mode, "%04o", (unsigned)(status->st_mode & 07777));
    json_object_set_new(item, "mode", json_string(mode));
    json_object_set_new(item, "size", json_integer(status->st_size));
    json_object_set_new(item, "uid", page_id(&walk->page, status->st_uid));
    json_object_set_new(item, "gid", page_id(&walk->page, status->st_gid));
    json_object_set_new(item, "mtime",
                        page_time((int64_t)status->st_mtim.tv_sec * 1000 + status->st_mtim.tv_nsec / 1000000));
    ssize_t length = S_ISLNK(status->st_mode) ? readlinkat(folder, name, target, sizeof target) : 0;
    if (length > 0)
        json_object_set_new(item, "target", page_text(target, (size_t)length));
    if (opened >= 0 && is_opaque(opened))
        json_object_set_new(item, "replaced", json_true());
    return item;
}

static void walk_folder(struct walk *walk, int folder, size_t depth);

static void look_at(struct walk *walk, int folder, const char *name, size_t depth)
{
    struct stat status;
    if (++walk->looks > EVIDENCE_LOOKS_MAX || fstatat(folder, name, &status, AT_SYMLINK_NOFOLLOW) < 0) {
        walk->page.truncated |= walk->looks > EVIDENCE_LOOKS_MAX;
        return;
    }
    AUTO_FD int below = -1;
    if (S_ISDIR(status.st_mode))
        below = openat(folder, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    if (page_wants(&walk->page))
        page_add(&walk->page, describe(walk, &status, folder, name, below));
    if (below >= 0 && !walk->page.is_full)
        walk_folder(walk, below, depth + 1);
}

/* The paths of those in it, each in turn, at the end of walk->path. */
static void walk_folder(struct walk *walk, int folder, size_t depth)
{
    size_t length = strlen(walk->path);
    int own = depth < EVIDENCE_DEPTH_MAX ? fcntl(folder, F_DUPFD_CLOEXEC, 3) : -1;
    DIR *list = own < 0 ? NULL : fdopendir(own);
    const struct dirent *entry;
    walk->page.truncated |= list == NULL;
    while (list && !walk->page.is_full && walk->looks <= EVIDENCE_LOOKS_MAX && (entry = readdir(list)) != NULL) {
        if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0)
            continue;
        if (!text_format(walk->path + length, sizeof walk->path - length, "/%s", entry->d_name))
            walk->page.truncated = true;
        else
            look_at(walk, folder, entry->d_name, depth);
        walk->path[length] = '\0';
    }
    if (list)
        closedir(list);
    else if (own >= 0)
        close(own);
}

bool evidence_files(const struct evidence_order *order, struct error *err)
{
    static const char *const LAYERS[][2] = {{"root/upper", ""}, {"usr/upper", "/usr"}};
    AUTO_FREE struct walk *walk = memory_new(sizeof *walk);
    walk->page.order = order;
    for (size_t i = 0; i < sizeof LAYERS / sizeof *LAYERS; i++) {
        AUTO_FD int layer = openat(order->folder, LAYERS[i][0], O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        strcpy(walk->path, LAYERS[i][1]);
        if (layer >= 0 && !walk->page.is_full)
            walk_folder(walk, layer, 0);
    }
    return page_end(&walk->page, "files", err);
}
