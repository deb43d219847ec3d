#include "sandboxd/isolation/namespaces/stage.h"

#include "shared/base/fd.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

static const char *const FOLDERS[] = {STAGE_ROOT,    STAGE_USR, STAGE_AREA,       STAGE_NEW,
                                      STAGE_NOTHING, STAGE_DEV, STAGE_DEV "/pts", STAGE_DEV "/shm"};

/* The harmless ones. They are the kernel's: it matters nothing whose mount they lie on. */
static const struct node_row {
    const char *path;
    unsigned major, minor;
} NODES[] = {{STAGE_DEV "/null", 1, 3},   {STAGE_DEV "/zero", 1, 5},    {STAGE_DEV "/full", 1, 7},
             {STAGE_DEV "/random", 1, 8}, {STAGE_DEV "/urandom", 1, 9}, {STAGE_DEV "/tty", 5, 0}};

static const struct link_row {
    const char *path, *to;
} LINKS[] = {{STAGE_DEV "/ptmx", "pts/ptmx"},
             {STAGE_DEV "/fd", "/proc/self/fd"},
             {STAGE_DEV "/stdin", "/proc/self/fd/0"},
             {STAGE_DEV "/stdout", "/proc/self/fd/1"},
             {STAGE_DEV "/stderr", "/proc/self/fd/2"}};

#define COUNT(array) (sizeof(array) / sizeof(array)[0])

static bool fill(int stage, struct error *err)
{
    for (size_t i = 0; i < COUNT(FOLDERS); i++) {
        if (mkdirat(stage, FOLDERS[i], 0755) < 0 || fchmodat(stage, FOLDERS[i], 0755, 0) < 0)
            return error_set_errno(err, ERROR_INTERNAL, "make %s of the stage", FOLDERS[i]);
    }
    for (size_t i = 0; i < COUNT(NODES); i++) {
        if (mknodat(stage, NODES[i].path, S_IFCHR | 0666, makedev(NODES[i].major, NODES[i].minor)) < 0 ||
            fchmodat(stage, NODES[i].path, 0666, 0) < 0)
            return error_set_errno(err, ERROR_INTERNAL, "make %s of the stage", NODES[i].path);
    }
    for (size_t i = 0; i < COUNT(LINKS); i++) {
        if (symlinkat(LINKS[i].to, stage, LINKS[i].path) < 0)
            return error_set_errno(err, ERROR_INTERNAL, "link %s of the stage", LINKS[i].path);
    }
    return true;
}

int stage_make(const char *path, struct error *err)
{
    if (!fd_make_folders(path, 0700, err))
        return -1;
    if (mount("parley", path, "tmpfs", MS_NOSUID | MS_NOEXEC, "size=64k,nr_inodes=64,mode=0755") < 0) {
        error_set_errno(err, ERROR_INTERNAL, "mount a stage at %s", path);
        return -1;
    }
    AUTO_FD int stage = open(path, O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (stage < 0)
        error_set_errno(err, ERROR_INTERNAL, "open %s", path);
    bool is_made = stage >= 0 && fill(stage, err);
    if (is_made && mount(NULL, path, NULL, MS_REMOUNT | MS_BIND | MS_RDONLY | MS_NOSUID | MS_NOEXEC, NULL) < 0)
        is_made = error_set_errno(err, ERROR_INTERNAL, "make %s read-only", path);
    if (is_made)
        return TAKE_FD(stage);
    stage_remove(path);
    return -1;
}

void stage_remove(const char *path)
{
    (void)umount2(path, MNT_DETACH);
    (void)rmdir(path);
}
