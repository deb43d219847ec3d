/* walk.c - see walk.h. A stack of levels instead of recursion: the depth is the tree's to choose. */
#include "sandboxd/helpers/files/walk.h"

#include "sandboxd/helpers/files/helper.h"
#include "shared/base/beneath.h"
#include "shared/base/memory.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/vfs.h>

#define READ_BYTES 65536
#define PART_BYTES 65536 /* a part of a folder is at least this, however much others hold */

/* A folder being gone through. */
struct level {
    int fd; /* -1: closed to keep few open */
    dev_t device;
    ino_t inode;
    size_t path_size; /* of the folder itself */
    char *names;      /* each: a byte of enum files_type, the name, NUL */
    size_t size, capacity;
    uint32_t *order; /* where each begins, sorted */
    size_t next, count, room;
    bool has_more; /* names are left in fd */
};

struct walk {
    int root; /* borrowed */
    enum walk_order order;
    struct level *levels;
    size_t depth, room;
    uint64_t skipped;
    size_t held;    /* bytes of all levels' names and order */
    bool was_given; /* the place of the top level was given just now: it may be entered */
    enum files_type given_type;
    size_t path_size;
    char path[FRONT_FILES_PATH_MAX + 1];
    char buffer[READ_BYTES] __attribute__((aligned(8)));
};

enum files_type walk_type_of_mode(uint32_t mode)
{
    switch (mode & S_IFMT) {
    case S_IFDIR:
        return FILES_FOLDER;
    case S_IFLNK:
        return FILES_SYMLINK;
    case S_IFIFO:
        return FILES_FIFO;
    case S_IFSOCK:
        return FILES_SOCKET;
    case S_IFCHR:
        return FILES_CHAR_DEVICE;
    case S_IFBLK:
        return FILES_BLOCK_DEVICE;
    default:
        return FILES_REGULAR;
    }
}

bool walk_is_pseudo(int fd)
{
    static const long PSEUDO[] = {PROC_SUPER_MAGIC,   SYSFS_MAGIC,   CGROUP_SUPER_MAGIC, CGROUP2_SUPER_MAGIC,
                                  DEVPTS_SUPER_MAGIC, DEBUGFS_MAGIC, TRACEFS_MAGIC,      SECURITYFS_MAGIC,
                                  BINFMTFS_MAGIC,     BPF_FS_MAGIC,  PSTOREFS_MAGIC,     EFIVARFS_MAGIC,
                                  0x19800202 /* mqueue */};
    struct statfs system;
    if (fstatfs(fd, &system) < 0)
        return true;
    for (size_t i = 0; i < sizeof PSEUDO / sizeof PSEUDO[0]; i++) {
        if ((long)system.f_type == PSEUDO[i])
            return true;
    }
    return false;
}

uint64_t walk_skipped(const struct walk *walk)
{
    return walk->skipped;
}

static enum files_type type_of_name(int fd, const struct dirent64 *entry, bool *is_there)
{
    *is_there = true;
    if (entry->d_type != DT_UNKNOWN)
        return walk_type_of_mode((uint32_t)DTTOIF(entry->d_type));
    struct stat status;
    *is_there = fstatat(fd, entry->d_name, &status, AT_SYMLINK_NOFOLLOW) == 0;
    return *is_there ? walk_type_of_mode(status.st_mode) : FILES_REGULAR;
}

static void keep_name(struct level *level, enum files_type type, const char *name)
{
    size_t size = strlen(name) + 2;
    if (level->size + size > level->capacity) {
        level->capacity = level->capacity ? level->capacity * 2 : 4096;
        level->names = memory_resize(level->names, level->capacity);
    }
    if (level->count == level->room) {
        level->room = level->room ? level->room * 2 : 64;
        level->order = memory_resize(level->order, level->room * sizeof level->order[0]);
    }
    level->order[level->count++] = (uint32_t)level->size;
    level->names[level->size] = (char)type;
    memcpy(level->names + level->size + 1, name, size - 1);
    level->size += size;
}

static size_t bytes_of(const struct level *level)
{
    return level->size + level->count * sizeof level->order[0];
}

static int compare_names(const void *a, const void *b, void *names)
{
    const char *base = names;
    return strcmp(base + *(const uint32_t *)a + 1, base + *(const uint32_t *)b + 1);
}

/* The names of one buffer that getdents64 filled. */
static void keep_names(struct walk *walk, struct level *level, size_t size)
{
    for (size_t at = 0; at < size;) {
        const struct dirent64 *entry = (const void *)(walk->buffer + at);
        at += entry->d_reclen;
        const char *name = entry->d_name;
        if (name[0] == '.' && (name[1] == '\0' || (name[1] == '.' && name[2] == '\0')))
            continue;
        bool is_there;
        enum files_type type = type_of_name(level->fd, entry, &is_there);
        if (is_there)
            keep_name(level, type, name);
        else if (errno != ENOENT)
            walk->skipped++;
    }
}

/* The next part of a folder's names, as a rule all of them; what was there is replaced. */
static void read_names(struct walk *walk, struct level *level)
{
    walk->held -= bytes_of(level);
    level->size = level->count = level->next = 0;
    level->has_more = false;
    for (;;) {
        long got = syscall(SYS_getdents64, level->fd, walk->buffer, sizeof walk->buffer);
        if (got < 0 && errno != ENOENT)
            walk->skipped++;
        if (got <= 0)
            break;
        keep_names(walk, level, (size_t)got);
        if (bytes_of(level) >= PART_BYTES && walk->held + bytes_of(level) >= WALK_NAMES_BYTES) {
            level->has_more = true;
            break;
        }
    }
    walk->held += bytes_of(level);
    if (level->count > 1)
        qsort_r(level->order, level->count, sizeof level->order[0], compare_names, level->names);
}

/* Few stay open: the one WALK_OPEN_MAX above is closed, unless its position is needed still. */
static void push(struct walk *walk, int fd, const struct stat *status)
{
    if (walk->depth == walk->room) {
        walk->room = walk->room ? walk->room * 2 : 16;
        walk->levels = memory_resize(walk->levels, walk->room * sizeof walk->levels[0]);
    }
    if (walk->depth >= WALK_OPEN_MAX) {
        struct level *above = &walk->levels[walk->depth - WALK_OPEN_MAX];
        if (!above->has_more && above->fd >= 0) {
            close(above->fd);
            above->fd = -1;
        }
    }
    struct level *level = &walk->levels[walk->depth++];
    *level = (struct level){.fd = fd, .device = status->st_dev, .inode = status->st_ino, .path_size = walk->path_size};
    read_names(walk, level);
}

static void pop(struct walk *walk)
{
    struct level *level = &walk->levels[--walk->depth];
    walk->held -= bytes_of(level);
    if (level->fd >= 0)
        close(level->fd);
    free(level->names);
    free(level->order);
}

struct walk *walk_new(int folder, enum walk_order order, struct error *err)
{
    AUTO_FD int fd = openat(folder, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    struct stat status;
    if (fd < 0 || fstat(fd, &status) < 0) {
        error_set_errno(err, errno == EACCES ? ERROR_FORBIDDEN : ERROR_INTERNAL, "reading the folder");
        return NULL;
    }
    struct walk *walk = memory_new(sizeof *walk);
    walk->root = folder;
    walk->order = order;
    push(walk, TAKE_FD(fd), &status);
    return walk;
}

void walk_free(struct walk *walk)
{
    if (walk == NULL)
        return;
    while (walk->depth > 0)
        pop(walk);
    free(walk->levels);
    free(walk);
}

/* A folder that was closed meanwhile, by its path; only when it is the same still. */
static bool open_again(struct walk *walk, struct level *level)
{
    if (level->fd >= 0)
        return true;
    char last = walk->path[level->path_size];
    walk->path[level->path_size] = '\0';
    struct open_how how = {.flags = O_RDONLY | O_DIRECTORY | O_CLOEXEC,
                           .resolve = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS};
    const char *path = level->path_size ? walk->path : ".";
    AUTO_FD int fd = beneath_open(walk->root, path, &how);
    walk->path[level->path_size] = last;
    struct stat status;
    if (fd < 0 || fstat(fd, &status) < 0 || status.st_dev != level->device || status.st_ino != level->inode)
        return false;
    level->fd = TAKE_FD(fd);
    return true;
}

/* The path of the level's own place `name`; false when it is too long. */
static bool set_path(struct walk *walk, const struct level *level, const char *name)
{
    size_t at = level->path_size, size = strlen(name);
    if (at + (at > 0) + size > FRONT_FILES_PATH_MAX)
        return false;
    if (at > 0)
        walk->path[at++] = '/';
    memcpy(walk->path + at, name, size + 1);
    walk->path_size = at + size;
    return true;
}

static void give(struct walk *walk, struct walk_place *place, enum files_type type, bool is_leaving)
{
    const struct level *level = &walk->levels[walk->depth - 1];
    *place = (struct walk_place){.path = walk->path,
                                 .path_size = walk->path_size,
                                 .name = walk->path + level->path_size + (level->path_size > 0),
                                 .folder = level->fd,
                                 .type = type,
                                 .depth = (uint32_t)walk->depth,
                                 .is_leaving = is_leaving};
}

/* The top level is done with: true when its folder is given once more. */
static bool leave(struct walk *walk, struct walk_place *place)
{
    size_t path_size = walk->levels[walk->depth - 1].path_size;
    pop(walk);
    if (walk->depth == 0)
        return false;
    walk->path_size = path_size;
    walk->path[path_size] = '\0';
    struct level *level = &walk->levels[walk->depth - 1];
    if (!open_again(walk, level)) {
        walk->skipped += level->count - level->next + (walk->order == WALK_AROUND);
        level->next = level->count;
        return false;
    }
    if (walk->order == WALK_AROUND)
        give(walk, place, FILES_FOLDER, true);
    return walk->order == WALK_AROUND;
}

bool walk_next(struct walk *walk, struct walk_place *place)
{
    walk->was_given = false;
    while (walk->depth > 0) {
        struct level *level = &walk->levels[walk->depth - 1];
        if (level->next == level->count && level->has_more) {
            read_names(walk, level);
            continue;
        }
        if (level->next == level->count) {
            if (leave(walk, place))
                return true;
            continue;
        }
        const char *name = level->names + level->order[level->next++];
        if (!set_path(walk, level, name + 1)) {
            walk->skipped++;
            continue;
        }
        walk->was_given = true;
        walk->given_type = (enum files_type)name[0];
        give(walk, place, walk->given_type, false);
        return true;
    }
    return false;
}

bool walk_enter(struct walk *walk)
{
    if (!walk->was_given || walk->given_type != FILES_FOLDER)
        return false;
    walk->was_given = false;
    const struct level *level = &walk->levels[walk->depth - 1];
    const char *name = walk->path + level->path_size + (level->path_size > 0);
    AUTO_FD int fd = open_child_folder(level->fd, name, O_RDONLY);
    struct stat status;
    if (fd < 0 || fstat(fd, &status) < 0) {
        walk->skipped += errno != ENOENT && errno != ENOTDIR && errno != ELOOP;
        return false;
    }
    if (status.st_dev != walk->levels[0].device &&
        !walk_is_pseudo(walk->levels[0].fd < 0 ? walk->root : walk->levels[0].fd) && walk_is_pseudo(fd)) {
        walk->skipped++;
        return false;
    }
    push(walk, TAKE_FD(fd), &status);
    return true;
}
