/* paused_marks.c - needs no fsync: what it tells of ends with the boot, and it is there after a kill -9 without. */
#include "sandboxd/sandbox/paused_marks.h"

#include "shared/base/log.h"
#include "shared/base/random.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

bool paused_mark(int folder, const char *sandbox_id, struct error *err)
{
    if (folder < 0)
        return true;
    AUTO_FD int file = openat(folder, sandbox_id, O_WRONLY | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    enum error_kind kind = errno == ENOSPC || errno == EDQUOT ? ERROR_DISK_FULL : ERROR_INTERNAL;
    return file >= 0 || error_set_errno(err, kind, "note that the sandbox is paused");
}

void paused_unmark(int folder, const char *sandbox_id)
{
    if (folder >= 0 && unlinkat(folder, sandbox_id, 0) != 0 && errno != ENOENT)
        log_warn("sandbox", "the note that a sandbox is paused cannot be removed: errno %d sandbox=%s", errno,
                 sandbox_id);
}

bool paused_is_marked(int folder, const char *sandbox_id)
{
    return folder >= 0 && faccessat(folder, sandbox_id, F_OK, AT_SYMLINK_NOFOLLOW) == 0;
}

void paused_marks_clean(int folder, struct registry *registry)
{
    int copy = folder < 0 ? -1 : openat(folder, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *all = copy < 0 ? NULL : fdopendir(copy);
    if (!all)
        return;
    for (const struct dirent *each = readdir(all); each; each = readdir(all)) {
        AUTO_REGISTRY_VIEW view = {0};
        bool lives = random_is_id(each->d_name, "sbx") && registry_find(registry, each->d_name, &view) &&
                     view.state != REGISTRY_ENDED;
        if (!lives && each->d_name[0] != '.')
            paused_unmark(folder, each->d_name);
    }
    (void)closedir(all);
}
