#include "sandboxd/templates/store_lock.h"
#include "sandboxd/templates/templates.h"
#include "shared/base/fd.h"
#include "shared/base/log.h"
#include "shared/base/memory.h"
#include "shared/base/text.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>

/* One look through the folder. */
struct cleaning {
    const char *folder;
    bool (*is_used)(void *context, const char *version);
    void *context;
    size_t gone; /* folders that are now called .gone-* */
};

static bool is_current(const struct cleaning *cleaning, const char *name, const char *version)
{
    AUTO_FREE char *link = memory_printf("%s/%s", cleaning->folder, name);
    char target[FRONT_LAUNCHER_NAME_BYTES] = "";
    return readlink(link, target, sizeof target - 1) > 0 && strcmp(target, version) == 0;
}

static bool is_abandoned(const struct cleaning *cleaning, const char *entry)
{
    AUTO_FREE char *path = memory_printf("%s/%s", cleaning->folder, entry);
    AUTO_FD int lock = store_lock_folder(path, NULL);
    return lock >= 0;
}

static void put_out_of_sight(struct cleaning *cleaning, const char *entry)
{
    AUTO_FREE char *from = memory_printf("%s/%s", cleaning->folder, entry);
    AUTO_FREE char *to = memory_printf("%s/" STORE_PREFIX_GONE "%s", cleaning->folder, entry);
    if (rename(from, to) == 0)
        cleaning->gone++;
    else
        log_warn("templates", "%s cannot be removed: %s", from, strerrordesc_np(errno));
}

static void look_at(struct cleaning *cleaning, const char *entry)
{
    char name[FRONT_LAUNCHER_NAME_BYTES];
    if (text_starts_with(entry, STORE_PREFIX_GONE)) {
        cleaning->gone++;
    } else if (text_starts_with(entry, STORE_PREFIX_LINK)) {
        AUTO_FREE char *path = memory_printf("%s/%s", cleaning->folder, entry);
        unlink(path);
    } else if (text_starts_with(entry, STORE_PREFIX_NEW)) {
        if (is_abandoned(cleaning, entry))
            put_out_of_sight(cleaning, entry);
    } else if (template_is_version(entry, name) && !is_current(cleaning, name, entry) &&
               !cleaning->is_used(cleaning->context, entry)) {
        put_out_of_sight(cleaning, entry);
    }
}

/* --- taking away --- */

static void remove_gone(const char *folder)
{
    DIR *entries = opendir(folder);
    for (const struct dirent *entry = entries ? readdir(entries) : NULL; entry; entry = readdir(entries)) {
        if (!text_starts_with(entry->d_name, STORE_PREFIX_GONE))
            continue;
        AUTO_FREE char *path = memory_printf("%s/%s", folder, entry->d_name);
        (void)!fd_remove_tree(path, NULL); /* next time then */
    }
    if (entries)
        closedir(entries);
}

/* A grandchild, nobody's to wait for; without our descriptors, some of which are locks. */
static void remove_gone_aside(const char *folder)
{
    pid_t child = fork();
    if (child == 0) {
        if (fork() == 0) {
            close_range(3, ~0U, 0);
            remove_gone(folder);
        }
        _exit(0);
    }
    while (child > 0 && waitpid(child, NULL, 0) < 0 && errno == EINTR) {
    }
}

void templates_clean(const char *folder, bool (*is_used)(void *context, const char *version), void *context)
{
    AUTO_FD int store = store_lock(folder, STORE_LOCK_TRY, NULL);
    DIR *entries = store < 0 ? NULL : opendir(folder);
    if (entries == NULL)
        return;
    struct cleaning cleaning = {.folder = folder, .is_used = is_used, .context = context};
    for (const struct dirent *entry = readdir(entries); entry; entry = readdir(entries))
        look_at(&cleaning, entry->d_name);
    closedir(entries);
    if (cleaning.gone > 0)
        remove_gone_aside(folder);
}
