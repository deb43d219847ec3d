/* watch_folders.c - see watch_folders.h. Sorted by wd, which the kernel counts upwards: new ones come at the end. */
#include "sandboxd/helpers/files/watch_folders.h"

#include "shared/base/memory.h"
#include "shared/base/text.h"

#include <errno.h>
#include <string.h>
#include <sys/inotify.h>

void watch_folders_done(struct watch_folders *folders)
{
    for (size_t i = 0; i < folders->count; i++)
        free(folders->all[i].name);
    free(folders->all);
    folders->all = NULL;
    folders->count = folders->room = 0;
}

/* Where wd is, or would be. */
static size_t position_of(const struct watch_folders *folders, int wd)
{
    size_t low = 0, high = folders->count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (folders->all[middle].wd < wd)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static struct watched *find(const struct watch_folders *folders, int wd)
{
    size_t at = position_of(folders, wd);
    return at < folders->count && folders->all[at].wd == wd ? &folders->all[at] : NULL;
}

const struct watched *watch_folders_find(const struct watch_folders *folders, int wd)
{
    return find(folders, wd);
}

int watch_folders_child(const struct watch_folders *folders, int parent, const char *name)
{
    for (size_t i = 0; i < folders->count; i++) {
        if (folders->all[i].parent == parent && strcmp(folders->all[i].name, name) == 0)
            return folders->all[i].wd;
    }
    return -1;
}

bool watch_folders_path(const struct watch_folders *folders, int wd, const char *name, char path[static PATH_MAX])
{
    char text[PATH_MAX];
    size_t at = sizeof text - 1;
    text[at] = '\0';
    const struct watched *watched = find(folders, wd);
    for (const char *part = name; part[0]; part = watched->name, watched = find(folders, watched->parent)) {
        size_t size = strlen(part), slash = text[at] != '\0';
        if (watched == NULL || size + slash > at)
            return false;
        at -= slash;
        if (slash)
            text[at] = '/';
        at -= size;
        memcpy(text + at, part, size);
    }
    memcpy(path, text + at, sizeof text - at);
    return true;
}

void watch_folders_move(struct watch_folders *folders, int wd, int parent, const char *name)
{
    struct watched *watched = find(folders, wd);
    if (watched == NULL || watched->parent < 0 || wd == parent)
        return;
    free(watched->name);
    watched->name = memory_string(name);
    watched->parent = parent;
}

static void keep(struct watch_folders *folders, int wd, int parent, const char *name)
{
    if (folders->count == folders->room) {
        folders->room = folders->room ? folders->room * 2 : 64;
        folders->all = memory_resize(folders->all, folders->room * sizeof folders->all[0]);
    }
    size_t at = position_of(folders, wd);
    memmove(folders->all + at + 1, folders->all + at, (folders->count - at) * sizeof folders->all[0]);
    folders->all[at] = (struct watched){.wd = wd, .parent = parent, .name = memory_string(name)};
    folders->count++;
}

int watch_folders_add(struct watch_folders *folders, int fd, int parent, const char *name, uint32_t mask,
                      struct error *err)
{
    char path[32];
    if (folders->count >= WATCH_FOLDERS_MAX) {
        error_set(err, ERROR_NO_CAPACITY, "more than %d folders to watch", WATCH_FOLDERS_MAX);
        return -1;
    }
    /* Through the descriptor: nobody can put a symlink between the look and the watch. */
    if (!text_format(path, sizeof path, "/proc/self/fd/%d", fd))
        path[0] = '\0';
    int wd = inotify_add_watch(folders->inotify, path, mask);
    if (wd < 0) {
        enum error_kind kind = errno == ENOSPC || errno == ENOMEM ? ERROR_NO_CAPACITY : ERROR_INTERNAL;
        error_set_errno(err, kind, "watching a folder");
        return -1;
    }
    if (find(folders, wd))
        watch_folders_move(folders, wd, parent, name); /* it was moved here, and its event has yet to come */
    else
        keep(folders, wd, parent, name);
    return wd;
}

void watch_folders_forget(struct watch_folders *folders, int wd)
{
    struct watched *watched = find(folders, wd);
    if (watched == NULL)
        return;
    free(watched->name);
    size_t at = (size_t)(watched - folders->all);
    folders->count--;
    memmove(watched, watched + 1, (folders->count - at) * sizeof *watched);
}

static bool is_below(const struct watch_folders *folders, const struct watched *watched, int top)
{
    for (size_t i = 0; watched && i < PATH_MAX; i++) {
        if (watched->parent == top)
            return true;
        watched = find(folders, watched->parent);
    }
    return false;
}

void watch_folders_remove(struct watch_folders *folders, int wd, bool also_itself)
{
    if (folders->count == 0)
        return;
    /* All are looked at before any is taken out: each needs those above it. */
    AUTO_FREE bool *is_gone = memory_array(folders->count, sizeof *is_gone);
    for (size_t i = 0; i < folders->count; i++) {
        const struct watched *watched = &folders->all[i];
        is_gone[i] = watched->wd == wd ? also_itself : is_below(folders, watched, wd);
    }
    size_t kept = 0;
    for (size_t i = 0; i < folders->count; i++) {
        if (is_gone[i]) {
            (void)inotify_rm_watch(folders->inotify, folders->all[i].wd);
            free(folders->all[i].name);
        } else {
            folders->all[kept++] = folders->all[i];
        }
    }
    folders->count = kept;
}
