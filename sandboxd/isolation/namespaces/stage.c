#include "sandboxd/isolation/namespaces/stage.h"

#include "sandboxd/isolation/device_rows.h"

#include "shared/base/fd.h"
#include "shared/base/memory.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

enum { SLOT_PATH_BYTES = 32 };

static const char *const FOLDERS[] = {STAGE_ROOT,  STAGE_USR, STAGE_AREA,   STAGE_NEW,
                                      STAGE_SLOTS, STAGE_OWN, STAGE_DEVICES};

/* --- of a slot: names below its folder --- */

static const char *const SLOT_FOLDERS[] = {"dev", "dev/pts", "dev/shm", "nothing"};

#define COUNT(array) (sizeof(array) / sizeof(array)[0])

static bool make_folders(int at, const char *const *folders, size_t count, struct error *err)
{
    for (size_t i = 0; i < count; i++) {
        if (mkdirat(at, folders[i], 0755) < 0 || fchmodat(at, folders[i], 0755, 0) < 0)
            return error_set_errno(err, ERROR_INTERNAL, "make %s of the stage", folders[i]);
    }
    return true;
}

/* A node, or (`is_bound`) the empty file that one is bound over. */
static bool make_node(int at, const struct node_row *row, bool is_bound, struct error *err)
{
    mode_t kind = is_bound ? S_IFREG : S_IFCHR;
    dev_t device = is_bound ? 0 : makedev(row->major, row->minor);
    return (mknodat(at, row->path, kind | 0666, device) == 0 && fchmodat(at, row->path, 0666, 0) == 0) ||
           error_set_errno(err, ERROR_INTERNAL, "make %s of the stage", row->path);
}

static bool fill_slot(int slot, bool is_rootless, struct error *err)
{
    if (!make_folders(slot, SLOT_FOLDERS, COUNT(SLOT_FOLDERS), err))
        return false;
    for (size_t i = 0; i < COUNT(NODES); i++) {
        if (!make_node(slot, &NODES[i], is_rootless, err))
            return false;
    }
    for (size_t i = 0; i < COUNT(LINKS); i++) {
        if (symlinkat(LINKS[i].to, slot, LINKS[i].path) < 0)
            return error_set_errno(err, ERROR_INTERNAL, "link %s of the stage", LINKS[i].path);
    }
    return true;
}

static void name_slot(char path[static SLOT_PATH_BYTES], uint32_t slot)
{
    snprintf(path, SLOT_PATH_BYTES, STAGE_SLOTS "/%" PRIu32, slot);
}

bool stage_make_slot(const struct stage *stage, uint32_t slot, struct error *err)
{
    char path[SLOT_PATH_BYTES];
    name_slot(path, slot);
    stage_remove_slot(stage, slot);
    if (!make_folders(stage->writable, (const char *const[]){path}, 1, err))
        return false;
    AUTO_FD int folder = openat(stage->writable, path, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (folder < 0)
        return error_set_errno(err, ERROR_INTERNAL, "open %s of the stage", path);
    return fill_slot(folder, stage->is_rootless, err);
}

void stage_remove_slot(const struct stage *stage, uint32_t slot)
{
    char path[SLOT_PATH_BYTES];
    name_slot(path, slot);
    AUTO_FD int folder = openat(stage->writable, path, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (folder < 0)
        return;
    for (size_t i = 0; i < COUNT(NODES); i++)
        (void)unlinkat(folder, NODES[i].path, 0);
    for (size_t i = 0; i < COUNT(LINKS); i++)
        (void)unlinkat(folder, LINKS[i].path, 0);
    for (size_t i = COUNT(SLOT_FOLDERS); i > 0; i--)
        (void)unlinkat(folder, SLOT_FOLDERS[i - 1], AT_REMOVEDIR);
    (void)unlinkat(stage->writable, path, AT_REMOVEDIR);
}

/* "dev/null" is at devices/dev/null. */
static bool enter_nodes(struct error *err)
{
    char from[SLOT_PATH_BYTES];
    char to[SLOT_PATH_BYTES];
    for (size_t i = 0; i < COUNT(NODES); i++) {
        snprintf(from, sizeof from, STAGE_DEVICES "/%s", NODES[i].path);
        snprintf(to, sizeof to, STAGE_OWN "/%s", NODES[i].path);
        if (mount(from, to, NULL, MS_BIND, NULL) < 0)
            return error_set_errno(err, ERROR_INTERNAL, "bind %s", from);
    }
    return true;
}

bool stage_enter_slot(const struct stage *stage, uint32_t slot, struct error *err)
{
    char path[SLOT_PATH_BYTES];
    name_slot(path, slot);
    if (mount(path, STAGE_OWN, NULL, MS_BIND, NULL) < 0)
        return error_set_errno(err, ERROR_INTERNAL, "bind %s", path);
    return !stage->is_rootless || enter_nodes(err);
}

/* --- the whole --- */

/* Under devices/, once for all births: the host's own nodes, in this mount namespace alone. */
static bool bind_devices(const char *path, const struct stage *stage, struct error *err)
{
    static const char *const DEV = STAGE_DEVICES "/dev";
    if (!make_folders(stage->writable, &DEV, 1, err))
        return false;
    AUTO_FD int devices = openat(stage->writable, STAGE_DEVICES, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    for (size_t i = 0; i < COUNT(NODES); i++) {
        AUTO_FREE char *from = memory_printf("/%s", NODES[i].path);
        AUTO_FREE char *to = memory_printf("%s/" STAGE_DEVICES "/%s", path, NODES[i].path);
        if (!make_node(devices, &NODES[i], true, err))
            return false;
        if (mount(from, to, NULL, MS_BIND, NULL) < 0)
            return error_set_errno(err, ERROR_INTERNAL, "bind %s at %s", from, to);
    }
    return true;
}

static bool open_stage(const char *path, struct stage *stage, struct error *err)
{
    stage->folder = open(path, O_PATH | O_DIRECTORY | O_CLOEXEC);
    stage->writable = open_tree(AT_FDCWD, path, OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC);
    if (stage->folder < 0 || stage->writable < 0)
        return error_set_errno(err, ERROR_INTERNAL, "open %s", path);
    if (!make_folders(stage->writable, FOLDERS, COUNT(FOLDERS), err) ||
        (stage->is_rootless && !bind_devices(path, stage, err)))
        return false;
    return mount(NULL, path, NULL, MS_REMOUNT | MS_BIND | MS_RDONLY | MS_NOSUID | MS_NOEXEC, NULL) == 0 ||
           error_set_errno(err, ERROR_INTERNAL, "make %s read-only", path);
}

bool stage_make(const char *path, bool is_rootless, struct stage *made, struct error *err)
{
    struct stage stage = STAGE_NONE;
    stage.is_rootless = is_rootless;
    if (!fd_make_folders(path, 0700, err))
        return false;
    /* Folders, nodes and links take no blocks; only the launcher writes, so that inodes need no bound. */
    if (mount("parley", path, "tmpfs", MS_NOSUID | MS_NOEXEC, "size=64k,nr_inodes=0,mode=0755") < 0)
        return error_set_errno(err, ERROR_INTERNAL, "mount a stage at %s", path);
    if (!open_stage(path, &stage, err)) {
        stage_remove(&stage, path);
        return false;
    }
    *made = stage;
    return true;
}

void stage_remove(struct stage *stage, const char *path)
{
    if (stage->folder >= 0)
        close(stage->folder);
    if (stage->writable >= 0)
        close(stage->writable);
    *stage = STAGE_NONE;
    (void)umount2(path, MNT_DETACH);
    (void)rmdir(path);
}
